//! A queue of events in virtual time: the first event determines the current time.

use std::collections::{BTreeMap, VecDeque};

/// Events by time. Simultaneous events are in the order in which they were entered.
#[derive(Debug)]
pub(crate) struct EventQueue<E> {
    /// Events that were entered in order of time, as most events are. These events need no search.
    in_order: VecDeque<(u64, E)>,
    /// All other events, by time and number. No such event is later than the last event of `in_order`; of two events at
    /// the same time, the event in `in_order` was entered first.
    late: BTreeMap<(u64, u64), E>,
    /// The number of the next late event.
    next: u64,
}

impl<E> Default for EventQueue<E> {
    fn default() -> EventQueue<E> {
        EventQueue { in_order: VecDeque::new(), late: BTreeMap::new(), next: 0 }
    }
}

impl<E> EventQueue<E> {
    pub(crate) fn enter(&mut self, at_ns: u64, event: E) {
        if self.in_order.back().is_none_or(|&(last_ns, _)| last_ns <= at_ns) {
            return self.in_order.push_back((at_ns, event));
        }
        self.late.insert((at_ns, self.next), event);
        self.next += 1;
    }

    pub(crate) fn len(&self) -> usize {
        self.in_order.len() + self.late.len()
    }

    /// Takes the next event, with its time, if that time is before `end_ns`.
    pub(crate) fn next_before(&mut self, end_ns: u64) -> Option<(u64, E)> {
        let &(first_ns, _) = self.in_order.front()?;
        match self.late.first_entry().filter(|late| late.key().0 < first_ns) {
            Some(late) if late.key().0 < end_ns => Some((late.key().0, late.remove())),
            None if first_ns < end_ns => self.in_order.pop_front(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_one_moment_keep_their_order() {
        let mut queue = EventQueue::default();
        for (at_ns, number) in [(20, 0), (10, 1), (20, 2), (30, 3), (10, 4)] {
            queue.enter(at_ns, number);
        }
        let order = std::iter::from_fn(|| queue.next_before(30));
        assert!(order.eq([(10, 1), (10, 4), (20, 0), (20, 2)]));
        assert_eq!(queue.len(), 1);
    }
}
