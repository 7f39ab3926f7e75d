//! A request that waits or is inside, and the id that names it.

use crate::base::Timestamp;
use crate::law::protect::refusal::Position;
use crate::law::protect::slab::Slab;

/// Names a request from its arrival to its end: the place that it has, and a serial, for the place is used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(u32);

/// There are fewer places than this.
const PLACE_BITS: u32 = 17;
const PLACES: u32 = 1 << PLACE_BITS;
const SERIALS: u32 = 1 << (u32::BITS - PLACE_BITS);

impl Id {
    /// The id of a request that is not counted: nothing happens at its end.
    pub const UNCOUNTED: Id = Id(0);

    fn new(place: u32, serial: u32) -> Id {
        Id(serial << PLACE_BITS | place)
    }

    /// Where the request stands among all that wait or are inside.
    pub const fn place(self) -> u32 {
        self.0 & (PLACES - 1)
    }

    const fn serial(self) -> u32 {
        self.0 >> PLACE_BITS
    }

    /// Not 0, but for [`UNCOUNTED`](Id::UNCOUNTED).
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
    /// The class of its lease.
    pub(super) class: u8,
    pub(super) page: u16,
    /// The member that asks.
    pub(super) leaf: u32,
    pub(super) serial: u32,
    /// The work that it has been charged: an estimate.
    pub(super) work_ns: i64,
    /// Its arrival while it waits, its release while it is inside.
    pub(super) since: Timestamp,
    /// Where its turn lay on arrival.
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
        debug_assert!(place < PLACES, "as many are inside or wait at most");
        Id::new(place, serial)
    }

    /// The place of a request, unless it is gone.
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
