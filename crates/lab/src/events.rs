//! The queue of events; virtual time is the moment of its head.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Events by time; simultaneous events in the order in which they were entered.
#[derive(Debug)]
pub(crate) struct EventQueue<E> {
    /// Events that were entered in order, as most are: they need no search.
    in_order: VecDeque<EventPlace>,
    /// All others.
    heap: BinaryHeap<Reverse<EventPlace>>,
    events: Vec<Option<E>>,
    free: Vec<usize>,
    entered: u64,
}

/// Time, number, and index in `events`, which need not move with every other event.
type EventPlace = (u64, u64, usize);

impl<E> Default for EventQueue<E> {
    fn default() -> EventQueue<E> {
        EventQueue {
            in_order: VecDeque::new(),
            heap: BinaryHeap::new(),
            events: Vec::new(),
            free: Vec::new(),
            entered: 0,
        }
    }
}

impl<E> EventQueue<E> {
    pub(crate) fn enter(&mut self, at_ns: u64, event: E) {
        let place = self.free.pop().unwrap_or(self.events.len());
        match self.events.get_mut(place) {
            Some(free) => *free = Some(event),
            None => self.events.push(Some(event)),
        }
        let entry = (at_ns, self.entered, place);
        match self.in_order.back().is_none_or(|last| *last < entry) {
            true => self.in_order.push_back(entry),
            false => self.heap.push(Reverse(entry)),
        }
        self.entered += 1;
    }

    pub(crate) fn len(&self) -> usize {
        self.in_order.len() + self.heap.len()
    }

    /// The next event before a moment, and its time.
    pub(crate) fn next_before(&mut self, end_ns: u64) -> Option<(u64, E)> {
        let (first, late) = (self.in_order.front(), self.heap.peek().map(|Reverse(late)| late));
        let is_late = late.is_some_and(|late| first.is_none_or(|first| late < first));
        let &(at_ns, _, place) = if is_late { late? } else { first? };
        if at_ns >= end_ns {
            return None;
        }
        match is_late {
            true => drop(self.heap.pop()),
            false => drop(self.in_order.pop_front()),
        }
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
