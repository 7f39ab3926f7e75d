//! The requests that wait or are inside: their ids, their turns, and the waiting work. A request that would wait too
//! long is refused on arrival, so the newest requests of the greediest members are refused first.

use std::time::Duration;

use crate::base::Timestamp;
use crate::law::protect::slab::Slab;

/// Identifies a request from its arrival to its end: its place, and a serial, because places are reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(u32);

/// The bits of an id that hold the place; the other bits hold the serial.
const PLACE_BITS: u32 = 17;
const PLACES: u32 = 1 << PLACE_BITS;
const SERIALS: u32 = 1 << (u32::BITS - PLACE_BITS);

impl Id {
    /// The id of a request that is not counted: nothing happens when such a request ends.
    pub const UNCOUNTED: Id = Id(0);

    fn new(place: u32, serial: u32) -> Id {
        Id(serial << PLACE_BITS | place)
    }

    /// The place of the request in the slab of all requests that wait or are inside.
    pub const fn place(self) -> u32 {
        self.0 & (PLACES - 1)
    }

    const fn serial(self) -> u32 {
        self.0 >> PLACE_BITS
    }

    /// The id as a number. Only [`UNCOUNTED`](Id::UNCOUNTED) is 0.
    pub const fn bits(self) -> u32 {
        self.0
    }

    pub const fn from_bits(bits: u32) -> Id {
        Id(bits)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Waiting,
    Inside,
    Gone,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct InFlight {
    pub(super) stage: Stage,
    /// The lease class of the request.
    pub(super) class: u8,
    pub(super) page: u16,
    /// The member that sent the request.
    pub(super) leaf: u32,
    pub(super) serial: u32,
    /// The estimated work for which the member is charged when the request is released.
    pub(super) work_ns: i64,
    /// When the request arrived, if it waits; when it was released, if it is inside.
    pub(super) since: Timestamp,
    /// Where the request's turn lay on arrival.
    pub(super) position: Position,
}

/// All requests that wait or are inside.
#[derive(Clone, Debug)]
pub(super) struct Requests {
    pub(super) slab: Slab<InFlight>,
    last_serial: u32,
}

impl Requests {
    pub(super) fn new() -> Requests {
        Requests { slab: Slab::new(), last_serial: 0 }
    }

    pub(super) fn insert(&mut self, request: InFlight) -> Id {
        self.last_serial = self.last_serial % (SERIALS - 1) + 1;
        let serial = self.last_serial;
        let place = self.slab.insert(InFlight { serial, ..request });
        debug_assert!(place < PLACES, "at most PLACES requests are inside or waiting");
        Id::new(place, serial)
    }

    /// The place of a request that still waits or is inside.
    pub(super) fn find(&self, id: Id) -> Option<u32> {
        let request = self.slab.get(id.place())?;
        (request.serial == id.serial() && request.stage != Stage::Gone).then_some(id.place())
    }

    pub(super) fn id(&self, place: u32) -> Id {
        Id::new(place, self.slab[place].serial)
    }

    /// Forgets a request that is in no list.
    pub(super) fn remove(&mut self, place: u32) {
        self.slab[place].stage = Stage::Gone;
        self.slab.remove(place);
    }
}

/// Where the turn of a request lies among the turns of all requests.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Position {
    /// The virtual time until the request's turn.
    pub(super) ahead_ns: i64,
    /// Whether the request's turn has come because its member has used less than its share.
    pub(super) has_credit: bool,
}

/// The waiting work, in nanoseconds that the requests will spend inside.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Backlog {
    work_ns: i64,
    with_credit_ns: i64,
}

impl Backlog {
    pub(super) fn add(&mut self, position: Position, work_ns: i64) {
        self.work_ns += work_ns;
        self.with_credit_ns += if position.has_credit { work_ns } else { 0 };
    }

    pub(super) fn remove(&mut self, position: Position, work_ns: i64) {
        self.add(position, -work_ns);
    }

    pub(super) fn work_ns(&self) -> i64 {
        self.work_ns
    }

    /// How long the last of all waiting requests will wait (Little, 1961).
    pub(super) fn queue(&self, limit: usize) -> Duration {
        time(self.work_ns, limit)
    }

    /// About how long a request would wait. Requests with credit go first. Until the turn of a request without credit,
    /// each active group is given the work by which virtual time advances.
    pub(super) fn expected(&self, position: Position, limit: usize, active: u32) -> Duration {
        let others_ns = position.ahead_ns.max(0).saturating_mul(i64::from(active));
        time(self.with_credit_ns.saturating_add(others_ns), limit)
    }
}

/// The time that work takes if `limit` requests are served at a time.
fn time(work_ns: i64, limit: usize) -> Duration {
    Duration::from_nanos(work_ns.max(0) as u64 / limit.max(1) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: i64 = 1_000_000_000;

    #[test]
    fn those_with_credit_wait_for_each_other_and_the_rest_for_its_turn_too() {
        let (credit, other) = (
            Position { ahead_ns: 0, has_credit: true },
            Position { ahead_ns: 4 * SECOND_NS, has_credit: false },
        );
        let mut backlog = Backlog::default();
        backlog.add(credit, 8 * SECOND_NS);
        backlog.add(other, 80 * SECOND_NS);
        assert_eq!(backlog.queue(8), Duration::from_secs(11));
        assert_eq!(backlog.expected(credit, 8, 10), Duration::from_secs(1));
        assert_eq!(
            backlog.expected(other, 8, 10),
            Duration::from_secs(6),
            "1 s, and 4 s of each of ten groups"
        );
        backlog.remove(credit, 8 * SECOND_NS);
        assert_eq!(backlog.expected(credit, 8, 10), Duration::ZERO);
    }
}
