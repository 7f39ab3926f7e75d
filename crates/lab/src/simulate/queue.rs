//! The queue of events; virtual time is the moment of its head.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use slowlane_core::base::ticket::Ticket;

/// An event of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The number of clients changes.
    Phase(usize),
    /// The client or greedy connection of this number asks.
    Ask(u32),
    /// The attacker asks.
    Attack,
    /// A request that was let through ends.
    End(Box<Ticket>),
    /// Several nodes and their store talk.
    Talk(Talk),
}

/// An event between nodes, by their number, and their store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Talk {
    /// A period of the node begins.
    Period(u32),
    /// The node's message reaches the store.
    AtStore(u32),
    /// The answer to its message reaches the node.
    Reply(u32),
    /// The store forgets everything.
    Flush,
}

/// Events by time; events of one moment in the order in which they were entered.
#[derive(Debug, Default)]
pub(super) struct Queue {
    heap: BinaryHeap<Reverse<Due>>,
    entered: u64,
}

#[derive(Debug)]
struct Due {
    at_ns: u64,
    number: u64,
    event: Event,
}

impl Queue {
    pub(super) fn enter(&mut self, at_ns: u64, event: Event) {
        self.heap.push(Reverse(Due { at_ns, number: self.entered, event }));
        self.entered += 1;
    }

    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }

    pub(super) fn next(&mut self) -> Option<(u64, Event)> {
        self.heap.pop().map(|Reverse(due)| (due.at_ns, due.event))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Due) -> std::cmp::Ordering {
        (self.at_ns, self.number).cmp(&(other.at_ns, other.number))
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Due) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Due {
    fn eq(&self, other: &Due) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Due {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_one_moment_keep_their_order() {
        let mut queue = Queue::default();
        for (at_ns, connection) in [(20, 0), (10, 1), (20, 2), (10, 3)] {
            queue.enter(at_ns, Event::Ask(connection));
        }
        let order = std::iter::from_fn(|| queue.next());
        let expected = [(10, 1), (10, 3), (20, 0), (20, 2)];
        assert!(order.eq(expected.map(|(at_ns, connection)| (at_ns, Event::Ask(connection)))));
    }
}
