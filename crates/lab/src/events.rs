//! The queue of events; virtual time is the moment of its head.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Events by time; events of one moment in the order in which they were entered.
#[derive(Debug)]
pub(crate) struct EventQueue<E> {
    /// Time, number, and place in `events`, which need not move with every other event.
    heap: BinaryHeap<Reverse<(u64, u64, usize)>>,
    events: Vec<Option<E>>,
    free: Vec<usize>,
    entered: u64,
}

impl<E> Default for EventQueue<E> {
    fn default() -> EventQueue<E> {
        EventQueue { heap: BinaryHeap::new(), events: Vec::new(), free: Vec::new(), entered: 0 }
    }
}

impl<E> EventQueue<E> {
    pub(crate) fn enter(&mut self, at_ns: u64, event: E) {
        let place = self.free.pop().unwrap_or(self.events.len());
        match self.events.get_mut(place) {
            Some(free) => *free = Some(event),
            None => self.events.push(Some(event)),
        }
        self.heap.push(Reverse((at_ns, self.entered, place)));
        self.entered += 1;
    }

    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }

    /// The next event before a moment, and its time.
    pub(crate) fn next_before(&mut self, end_ns: u64) -> Option<(u64, E)> {
        self.heap.peek().filter(|Reverse((at_ns, ..))| *at_ns < end_ns)?;
        let Reverse((at_ns, _, place)) = self.heap.pop()?;
        self.free.push(place);
        Some((at_ns, self.events[place].take()?))
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
