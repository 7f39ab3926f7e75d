//! Restores the order of arrival of requests: proxies log them when they are answered.

use std::mem;

use crate::access_log::{KEPT_BYTES_MAX, LogRecord};
use crate::events::EventQueue;

/// The maximum number of requests that are held back.
pub(super) const RECORDS_MAX: usize = 1 << 18;

/// The maximum memory for the fields of held requests.
const BYTES_MAX: usize = 64 << 20;

/// Holds requests back until no earlier one is expected.
#[derive(Debug)]
pub(super) struct Order {
    patience_ns: u64,
    waiting: EventQueue<LogRecord>,
    free: Vec<LogRecord>,
    bytes: usize,
    was_full: bool,
}

impl Order {
    /// `patience_ns`: a line may follow lines of requests that arrived this much later.
    pub(super) fn new(patience_ns: u64) -> Order {
        Order { patience_ns, waiting: EventQueue::default(), free: Vec::new(), bytes: 0, was_full: false }
    }

    /// Takes a record, and leaves an empty one in its place.
    pub(super) fn keep(&mut self, record: &mut LogRecord) {
        record.bytes.shrink_to(KEPT_BYTES_MAX);
        self.bytes += record.bytes.capacity();
        let kept = mem::replace(record, self.free.pop().unwrap_or_default());
        self.waiting.enter(kept.at_ns, kept);
    }

    /// The next in order, if no earlier one is expected from a log that has reached this time.
    pub(super) fn due(&mut self, come_to_ns: u64, record: &mut LogRecord) -> bool {
        let is_full = self.waiting.len() >= RECORDS_MAX || self.bytes >= BYTES_MAX;
        if self.next_before(come_to_ns.saturating_add(1).saturating_sub(self.patience_ns), record) {
            return true;
        }
        self.was_full |= is_full;
        is_full && self.next(record)
    }

    /// Whether a request was released early because there was no room.
    pub(super) fn was_full(&self) -> bool {
        self.was_full
    }

    /// The next in order. False: there is none.
    pub(super) fn next(&mut self, record: &mut LogRecord) -> bool {
        self.next_before(u64::MAX, record)
    }

    fn next_before(&mut self, end_ns: u64, record: &mut LogRecord) -> bool {
        let Some((_, next)) = self.waiting.next_before(end_ns) else { return false };
        self.bytes -= next.bytes.capacity();
        let mut free = mem::replace(record, next);
        free.clear();
        self.free.push(free);
        true
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
        let mut record = LogRecord::default();
        let mut come_to_ns = 0;
        for &at_ns in times {
            record.clear();
            record.at_ns = at_ns;
            order.keep(&mut record);
            come_to_ns = come_to_ns.max(at_ns);
            while order.due(come_to_ns, &mut record) {
                given.push(record.at_ns);
            }
        }
        while order.next(&mut record) {
            given.push(record.at_ns);
        }
        given
    }

    #[test]
    fn it_waits_no_longer_than_needed() {
        let mut order = Order::new(10);
        let mut record = LogRecord::default();
        for at_ns in [5, 3] {
            record.at_ns = at_ns;
            order.keep(&mut record);
        }
        assert!(!order.due(12, &mut record));
        assert!(order.due(13, &mut record) && record.at_ns == 3);
        assert!(!order.due(14, &mut record) && order.due(15, &mut record));
    }

    /// Memory counts, not letters: a buffer may be larger than its text.
    #[test]
    fn long_fields_take_bounded_memory() {
        let mut order = Order::new(1);
        let mut record = LogRecord::default();
        let mut kept = 0;
        for at_ns in 0..100_000 {
            record.clear();
            record.at_ns = at_ns;
            record.bytes.reserve(8 * VALUE_BYTES_MAX);
            record.bytes.extend([b'a'; VALUE_BYTES_MAX]);
            order.keep(&mut record);
            while order.due(0, &mut record) {}
            kept = kept.max(order.waiting.len());
        }
        assert!(kept > 60_000 && order.was_full(), "{kept}");
        let spare = |order: &Order| order.free.iter().map(|record| record.bytes.capacity()).sum::<usize>();
        let count = order.waiting.len() + order.free.len();
        let bytes = order.bytes + spare(&order);
        assert!(bytes <= BYTES_MAX + count * KEPT_BYTES_MAX, "{bytes}");
        while order.next(&mut record) {}
        assert_eq!(order.bytes, 0);
        assert!(spare(&order) <= order.free.len() * KEPT_BYTES_MAX, "{}", spare(&order));
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
