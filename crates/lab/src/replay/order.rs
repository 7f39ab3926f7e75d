//! Puts requests back into the order of their arrival: proxies log them when they are answered.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::access_log::Record;

/// The most requests that are held back.
pub(super) const RECORDS_MAX: usize = 1 << 18;

/// The most memory for the fields of held requests.
const BYTES_MAX: usize = 64 << 20;

/// Holds requests back until no earlier one is expected.
///
/// ```text
///            earlier ◀───────────────────────── time ─────────────────────────▶ later
///  overdue   a heap:  ▪ ▪▪
///  sorted             ▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪        requests leave at its front
///  unsorted                                ▪▪ ▪▪▪ ▪▪▪▪▪ ▪▪▪   sorted when the front reaches the first of them
/// ```
/// A log is nearly in order, and sorting a nearly sorted list takes little more time than reading it.
#[derive(Debug)]
pub(super) struct Order {
    patience_ns: u64,
    come_to_ns: u64,
    sorted: VecDeque<Kept>,
    unsorted: Vec<Kept>,
    first_unsorted: Kept,
    /// Requests logged long after their time. In the list they would cause sort after sort.
    overdue: BinaryHeap<Reverse<Kept>>,
    records: Vec<Record>,
    free: Vec<u32>,
    bytes: usize,
    count: u64,
    was_full: bool,
}

/// Time, number in the order of lines, and place in `records`.
type Kept = (u64, u64, u32);

const NONE: Kept = (u64::MAX, u64::MAX, u32::MAX);

impl Order {
    /// `patience_ns`: a line may follow lines of requests that came this much later.
    pub(super) fn new(patience_ns: u64) -> Order {
        Order {
            patience_ns,
            come_to_ns: 0,
            sorted: VecDeque::new(),
            unsorted: Vec::new(),
            first_unsorted: NONE,
            overdue: BinaryHeap::new(),
            records: Vec::new(),
            free: Vec::new(),
            bytes: 0,
            count: 0,
            was_full: false,
        }
    }

    /// Takes a record, and leaves a free one in its place.
    pub(super) fn keep(&mut self, record: &mut Record) {
        let place = self.free.pop().unwrap_or_else(|| {
            self.records.push(Record::default());
            self.records.len() as u32 - 1
        });
        let kept = (record.at_ns, self.count, place);
        self.count += 1;
        record.tighten();
        self.bytes += record.bytes.capacity();
        std::mem::swap(record, &mut self.records[place as usize]);
        if kept.0.saturating_add(self.patience_ns / 2) < self.come_to_ns {
            self.overdue.push(Reverse(kept));
        } else {
            self.first_unsorted = self.first_unsorted.min(kept);
            self.unsorted.push(kept);
        }
    }

    /// The next in order, if no earlier one is expected from a log that has reached this time.
    pub(super) fn due(&mut self, come_to_ns: u64, record: &mut Record) -> bool {
        self.come_to_ns = come_to_ns;
        let first = self.first();
        let is_full = self.len() >= RECORDS_MAX || self.bytes >= BYTES_MAX;
        let is_due = first.0.saturating_add(self.patience_ns) <= come_to_ns;
        self.was_full |= is_full && !is_due;
        (is_full || is_due) && self.next(record)
    }

    /// Whether a request left early because there was no room.
    pub(super) fn was_full(&self) -> bool {
        self.was_full
    }

    /// The next in order. False: there is none.
    pub(super) fn next(&mut self, record: &mut Record) -> bool {
        let first = self.first();
        if first == NONE {
            return false;
        }
        if first == self.first_unsorted {
            self.sort();
        }
        match self.overdue.peek() {
            Some(&Reverse(kept)) if kept == first => drop(self.overdue.pop()),
            _ => drop(self.sorted.pop_front()),
        }
        let (_, _, place) = first;
        record.clear();
        std::mem::swap(record, &mut self.records[place as usize]);
        self.bytes -= record.bytes.capacity();
        self.free.push(place);
        true
    }

    fn first(&self) -> Kept {
        let sorted = self.sorted.front().copied().unwrap_or(NONE);
        let overdue = self.overdue.peek().map_or(NONE, |&Reverse(kept)| kept);
        sorted.min(overdue).min(self.first_unsorted)
    }

    fn len(&self) -> usize {
        self.sorted.len() + self.unsorted.len() + self.overdue.len()
    }

    fn sort(&mut self) {
        self.sorted.extend(self.unsorted.drain(..));
        // The stable sort takes advantage of runs that are sorted already.
        self.sorted.make_contiguous().sort();
        self.first_unsorted = NONE;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::access_log::{KEPT_BYTES_MAX, VALUE_BYTES_MAX};

    /// The times of the requests in the order in which they leave.
    fn ordered(times: &[u64], patience_ns: u64) -> Vec<u64> {
        let mut order = Order::new(patience_ns);
        let mut given = Vec::new();
        let mut record = Record::default();
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
        let mut record = Record::default();
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
        let mut record = Record::default();
        let mut kept = 0;
        for at_ns in 0..100_000 {
            record.clear();
            record.at_ns = at_ns;
            record.bytes.reserve(8 * VALUE_BYTES_MAX);
            record.bytes.extend([b'a'; VALUE_BYTES_MAX]);
            order.keep(&mut record);
            while order.due(0, &mut record) {}
            kept = kept.max(order.len());
        }
        assert!(kept > 60_000 && order.was_full(), "{kept}");
        let bytes = |order: &Order| order.records.iter().map(|record| record.bytes.capacity()).sum::<usize>();
        assert!(bytes(&order) <= BYTES_MAX + order.records.len() * KEPT_BYTES_MAX, "{}", bytes(&order));
        while order.next(&mut record) {}
        assert!(bytes(&order) <= order.records.len() * KEPT_BYTES_MAX, "{}", bytes(&order));
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
