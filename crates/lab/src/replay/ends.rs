//! The ends of requests in flight, for laws that count them.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use slowlane_core::base::ticket::Ticket;

/// The most requests in flight. The ends of more are unknown.
const ENDS_MAX: usize = 1 << 20;

/// The requests in flight that a law counts until they end.
#[derive(Default)]
pub(super) struct Ends {
    due: BinaryHeap<Reverse<End>>,
    count: u64,
    /// Requests whose end is unknown.
    pub(super) unknown: u64,
}

/// Ordered by time, then by arrival.
struct End {
    at_ns: u64,
    number: u64,
    ticket: Ticket,
}

impl End {
    fn place(&self) -> (u64, u64) {
        (self.at_ns, self.number)
    }
}

impl PartialEq for End {
    fn eq(&self, other: &End) -> bool {
        self.place() == other.place()
    }
}

impl Eq for End {}

impl PartialOrd for End {
    fn partial_cmp(&self, other: &End) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for End {
    fn cmp(&self, other: &End) -> Ordering {
        self.place().cmp(&other.place())
    }
}

impl Ends {
    /// Remembers when a request ends. None: unknown.
    pub(super) fn expect(&mut self, at_ns: Option<u64>, ticket: Ticket) {
        match at_ns.filter(|_| self.due.len() < ENDS_MAX) {
            Some(at_ns) => self.due.push(Reverse(End { at_ns, number: self.count, ticket })),
            None => self.unknown += 1,
        }
        self.count += 1;
    }

    /// Calls `end` for each request that has ended by now, in the order of their ends.
    pub(super) fn until(&mut self, now_ns: u64, mut end: impl FnMut(&Ticket, u64)) {
        while self.due.peek().is_some_and(|Reverse(next)| next.at_ns <= now_ns) {
            if let Some(Reverse(ended)) = self.due.pop() {
                end(&ended.ticket, ended.at_ns);
            }
        }
    }
}
