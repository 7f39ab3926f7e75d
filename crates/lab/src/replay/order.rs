//! Restores the order of arrival of requests: proxies log them when they are answered.

use crate::access_log::Record;
use crate::events::EventQueue;

/// The maximum number of requests that are held back.
pub(super) const RECORDS_MAX: usize = 1 << 18;

/// The maximum memory for the fields of held requests.
const BYTES_MAX: usize = 64 << 20;

/// Holds requests back until no earlier one is expected.
#[derive(Debug)]
pub(super) struct Order {
    patience_ns: u64,
    waiting: EventQueue<Record>,
    bytes: usize,
    was_full: bool,
}

impl Order {
    /// `patience_ns`: a line may follow lines of requests that arrived this much later.
    pub(super) fn new(patience_ns: u64) -> Order {
        Order { patience_ns, waiting: EventQueue::default(), bytes: 0, was_full: false }
    }

    pub(super) fn keep(&mut self, record: Record) {
        self.bytes += record.bytes.capacity();
        self.waiting.enter(record.at_ns, record);
    }

    /// The next in order, if no earlier one is expected from a log that has reached this time.
    pub(super) fn due(&mut self, come_to_ns: u64) -> Option<Record> {
        let is_full = self.waiting.len() >= RECORDS_MAX || self.bytes >= BYTES_MAX;
        let due = self.next_before(come_to_ns.saturating_add(1).saturating_sub(self.patience_ns));
        if due.is_some() || !is_full {
            return due;
        }
        self.was_full = true;
        self.next()
    }

    /// Whether a request was released early because there was no room.
    pub(super) fn was_full(&self) -> bool {
        self.was_full
    }

    /// The next in order.
    pub(super) fn next(&mut self) -> Option<Record> {
        self.next_before(u64::MAX)
    }

    fn next_before(&mut self, end_ns: u64) -> Option<Record> {
        let (_, record) = self.waiting.next_before(end_ns)?;
        self.bytes -= record.bytes.capacity();
        Some(record)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::access_log::VALUE_BYTES_MAX;

    /// The times of the requests in the order in which they leave.
    fn ordered(times: &[u64], patience_ns: u64) -> Vec<u64> {
        let mut order = Order::new(patience_ns);
        let mut given = Vec::new();
        let mut come_to_ns = 0;
        for &at_ns in times {
            order.keep(Record { at_ns, ..Record::default() });
            come_to_ns = come_to_ns.max(at_ns);
            while let Some(record) = order.due(come_to_ns) {
                given.push(record.at_ns);
            }
        }
        while let Some(record) = order.next() {
            given.push(record.at_ns);
        }
        given
    }

    #[test]
    fn it_waits_no_longer_than_needed() {
        let mut order = Order::new(10);
        for at_ns in [5, 3] {
            order.keep(Record { at_ns, ..Record::default() });
        }
        assert!(order.due(12).is_none());
        assert!(order.due(13).is_some_and(|record| record.at_ns == 3));
        assert!(order.due(14).is_none() && order.due(15).is_some());
    }

    /// Memory counts, not letters: a buffer may be larger than its text.
    #[test]
    fn long_fields_take_bounded_memory() {
        let mut order = Order::new(1);
        let mut kept = 0;
        for at_ns in 0..100_000 {
            let mut bytes = Vec::with_capacity(2 * VALUE_BYTES_MAX);
            bytes.extend([b'a'; VALUE_BYTES_MAX]);
            order.keep(Record { at_ns, bytes, ..Record::default() });
            while order.due(0).is_some() {}
            kept = kept.max(order.waiting.len());
        }
        assert!(kept > 30_000 && order.was_full(), "{kept}");
        assert!(order.bytes <= BYTES_MAX, "{}", order.bytes);
        while order.next().is_some() {}
        assert_eq!(order.bytes, 0);
    }

    proptest! {
        #[test]
        fn requests_within_patience_leave_in_order(gaps in prop::collection::vec((0u64..20, 0u64..10), 0..100)) {
            let mut now = 100;
            let times: Vec<u64> = gaps.iter().map(|&(gap, late)| { now += gap; now - late }).collect();
            let mut sorted = times.clone();
            sorted.sort_unstable();
            prop_assert_eq!(ordered(&times, 10), sorted);
        }

        #[test]
        fn nothing_is_lost(times in prop::collection::vec(0u64..1000, 0..100)) {
            let mut given = ordered(&times, 10);
            let mut times = times;
            times.sort_unstable();
            given.sort_unstable();
            prop_assert_eq!(given, times);
        }
    }
}
