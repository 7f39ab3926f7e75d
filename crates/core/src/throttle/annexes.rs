//! The side store of a throttle: the annexes of laws, and the open tickets of keys.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::key::Key;
use crate::base::time::Timestamp;
use crate::law::{Annex, Law};
use crate::table::{Keep, Side};
use crate::throttle::open_tickets::OpenTickets;

/// The side store, as decisions use it. Annexes and open tickets share one bound. A law that finds no room here
/// falls back to a simpler one.
#[derive(Debug)]
pub struct Annexes {
    side: Side<Beside>,
    /// The highest serial of the keys whose tickets have all been closed. A key that comes back goes on from it, so that
    /// none of its earlier tickets closes a later one.
    serials: AtomicU32,
}

/// The value of a key. A law has an annex or counts ends, never both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Beside {
    Annex(Annex),
    Open(OpenTickets),
}

impl Beside {
    fn annex(&mut self) -> Option<&mut Annex> {
        match self {
            Beside::Annex(annex) => Some(annex),
            Beside::Open(_) => None,
        }
    }

    fn tickets(&mut self) -> Option<&mut OpenTickets> {
        match self {
            Beside::Open(tickets) => Some(tickets),
            Beside::Annex(_) => None,
        }
    }
}

impl Annexes {
    pub fn new(bytes_max: usize) -> Annexes {
        Annexes { side: Side::new(bytes_max), serials: AtomicU32::new(0) }
    }

    /// Gives `judge` the annex of `key`. It gets none if the law has none, or if a request of this cost finds
    /// no room.
    #[inline]
    pub fn with<R>(
        &self,
        key: Key,
        law: &Law,
        cost: u32,
        now: Timestamp,
        judge: impl FnOnce(Option<&mut Annex>) -> R,
    ) -> R {
        match law.has_annex() {
            false => judge(None),
            true => self
                .side
                .with(key, &Writing { law, cost }, now, |beside| judge(beside.and_then(Beside::annex))),
        }
    }

    /// Gives `write` the annex of `key`, if it exists.
    pub fn with_known<R>(&self, key: Key, law: &Law, write: impl FnOnce(Option<&mut Annex>) -> R) -> R {
        match law.has_annex() {
            false => write(None),
            true => self
                .side
                .with_known(key, &Writing { law, cost: 0 }, |beside| write(beside.and_then(Beside::annex))),
        }
    }

    /// Gives `judge` the annex of `key`, or a fresh one that is not kept.
    pub fn with_known_or_fresh<R>(
        &self,
        key: Key,
        law: &Law,
        cost: u32,
        now: Timestamp,
        judge: impl FnOnce(Option<&mut Annex>) -> R,
    ) -> R {
        // Even a judgement that counts nothing may grow a known annex, so its room is reserved as always.
        match self.with_known(key, law, |annex| annex.is_some()) {
            true => self.with(key, law, cost, now, judge),
            false => judge(law.annex().as_mut()),
        }
    }

    /// A copy of the annex that [`with`](Annexes::with) would give: usually some kilobytes, 512 KiB at most.
    pub fn copy(&self, key: Key, law: &Law, cost: u32, now: Timestamp) -> Option<Annex> {
        match law.has_annex().then(|| self.side.copy(key, &Writing { law, cost }, now))? {
            Some(Beside::Annex(annex)) => Some(annex),
            _ => None,
        }
    }

    /// Opens a ticket of `key` for a lease, and returns its serial. None without room.
    pub fn open_ticket(&self, key: Key, lease: Duration, now: Timestamp) -> Option<u32> {
        let tickets = |beside: Option<&mut Beside>| Some(beside?.tickets()?.open(now, lease));
        let opening = Opening { lease, last_serial: self.serials.load(Relaxed) };
        self.side.with(key, &opening, now, tickets)
    }

    /// Closes a ticket of `key`. False if it is not open.
    pub fn close_ticket(&self, key: Key, serial: u32, begun_ms: u32) -> bool {
        let close = |beside: Option<&mut Beside>| {
            let Some(tickets) = beside.and_then(Beside::tickets) else { return false };
            let is_closed = tickets.close(serial, begun_ms);
            if tickets.is_empty() {
                self.serials.fetch_max(tickets.last_serial(), Relaxed);
            }
            is_closed
        };
        self.side.with_known(key, &Opening { lease: Duration::ZERO, last_serial: 0 }, close)
    }

    pub fn remove(&self, key: Key) {
        self.side.remove(key);
    }

    /// All keys with an annex or open tickets.
    pub fn keys(&self) -> Vec<Key> {
        self.side.keys()
    }

    /// A copy of what a key has beside its row, and how long it still lives.
    pub fn kept(&self, key: Key, now: Timestamp) -> Option<(Aside, Duration)> {
        self.side.kept_of(key, now).map(|(beside, left)| (Aside(beside), left))
    }

    /// Puts a copy back. False if there is no room for it, or if it is none that slowlane makes.
    pub fn put_back(&self, key: Key, Aside(beside): Aside, expires: Timestamp) -> bool {
        let bytes = bytes(&beside);
        is_sound(&beside) && self.side.put(key, beside, bytes, expires)
    }

    pub fn bytes(&self) -> u64 {
        self.side.bytes()
    }
}

/// A law with an annex, and the cost of the request about to be written into it.
struct Writing<'l> {
    law: &'l Law,
    cost: u32,
}

impl Keep<Beside> for Writing<'_> {
    fn fresh(&self) -> Beside {
        Beside::Annex(self.law.annex().expect("only laws with an annex write one"))
    }

    fn owns(&self, beside: &Beside) -> bool {
        matches!(beside, Beside::Annex(annex) if self.law.owns(annex))
    }

    fn bytes(&self, beside: &Beside) -> usize {
        bytes(beside)
    }

    fn bytes_after(&self, beside: &Beside) -> usize {
        match beside {
            Beside::Annex(annex) => self.law.annex_bytes_after(annex, self.cost),
            Beside::Open(_) => bytes(beside),
        }
    }

    fn lifetime(&self) -> Duration {
        self.law.memory()
    }
}

/// A ticket about to be opened.
struct Opening {
    lease: Duration,
    /// The serial before the first of a key without tickets.
    last_serial: u32,
}

impl Keep<Beside> for Opening {
    fn fresh(&self) -> Beside {
        Beside::Open(OpenTickets::after(self.last_serial))
    }

    fn owns(&self, beside: &Beside) -> bool {
        matches!(beside, Beside::Open(_))
    }

    fn bytes(&self, beside: &Beside) -> usize {
        bytes(beside)
    }

    fn bytes_after(&self, beside: &Beside) -> usize {
        match beside {
            Beside::Open(tickets) => tickets.bytes_after(),
            Beside::Annex(_) => bytes(beside),
        }
    }

    fn lifetime(&self) -> Duration {
        self.lease
    }

    /// The tickets that are open can end all the same.
    fn needs_each_write(&self) -> bool {
        false
    }

    fn is_over(&self, beside: &Beside) -> bool {
        matches!(beside, Beside::Open(tickets) if tickets.is_empty())
    }
}

/// A copy of what a key has beside its row, for the snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Aside(Beside);

fn is_sound(beside: &Beside) -> bool {
    match beside {
        Beside::Annex(annex) => annex.is_sound(),
        Beside::Open(tickets) => tickets.is_sound(),
    }
}

fn bytes(beside: &Beside) -> usize {
    match beside {
        Beside::Annex(annex) => annex.bytes(),
        Beside::Open(tickets) => tickets.bytes(),
    }
}
