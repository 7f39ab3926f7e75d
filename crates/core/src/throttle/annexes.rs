//! What keys have beside their rows: the annexes of laws, and open tickets.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::key::Key;
use crate::base::time::Timestamp;
use crate::law::{Annex, Law};
use crate::table::{BoundedMap, Expiring};
use crate::throttle::open_tickets::OpenTickets;

/// From this part of the room on, a key leaves with its last open ticket.
const CROWDED_AT: usize = 4;

/// While more than half of the room is free, only one sweep in so many is done: it looks at every annex.
const SWEEPS_SKIPPED: u32 = 30;

/// The annexes and the open tickets, in one bound of bytes. A law that finds no room here falls back to a simpler one.
#[derive(Debug)]
pub struct Annexes {
    map: BoundedMap<Kept>,
    sweeps: AtomicU32,
    /// The highest serial of the keys whose tickets have all been closed. A key that comes back goes on from it, so that
    /// none of its earlier tickets closes a later one.
    serials: AtomicU32,
}

#[derive(Debug)]
struct Kept {
    beside: Beside,
    expires: Timestamp,
}

impl Expiring for Kept {
    fn is_over(&self, now: Timestamp) -> bool {
        self.expires <= now
    }

    fn size(&self) -> usize {
        BoundedMap::<Kept>::PLACE_BYTES + self.beside.bytes()
    }
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

    /// The heap memory, in bytes.
    fn bytes(&self) -> usize {
        match self {
            Beside::Annex(annex) => annex.bytes(),
            Beside::Open(tickets) => tickets.bytes(),
        }
    }

    fn is_sound(&self) -> bool {
        match self {
            Beside::Annex(annex) => annex.is_sound(),
            Beside::Open(tickets) => tickets.is_sound(),
        }
    }
}

/// What a value is used for.
enum Use<'l> {
    /// A request of this cost is judged by a law with an annex.
    Judge { law: &'l Law, cost: u32 },
    /// A ticket is opened. The first of a key has the serial after the last one.
    Ticket { lease: Duration, last_serial: u32 },
}

impl Use<'_> {
    /// An empty value, without heap memory. It is over until it is written.
    fn fresh(&self, now: Timestamp) -> Kept {
        let beside = match *self {
            Use::Judge { law, .. } => {
                Beside::Annex(law.annex().expect("only laws with an annex are asked for one"))
            }
            Use::Ticket { last_serial, .. } => Beside::Open(OpenTickets::after(last_serial)),
        };
        Kept { beside, expires: now }
    }

    /// Whether an existing value is one for this use. A value for another use is replaced.
    fn owns(&self, beside: &Beside) -> bool {
        match (self, beside) {
            (Use::Judge { law, .. }, Beside::Annex(annex)) => law.owns(annex),
            (Use::Ticket { .. }, Beside::Open(_)) => true,
            (Use::Judge { .. } | Use::Ticket { .. }, _) => false,
        }
    }

    /// The most heap memory that one of its values can take after the next write, in bytes.
    fn bytes_after(&self, beside: &Beside) -> usize {
        match (self, beside) {
            (Use::Judge { law, cost }, Beside::Annex(annex)) => law.annex_bytes_after(annex, *cost),
            (_, Beside::Open(tickets)) => tickets.bytes_after(),
            (Use::Ticket { .. }, Beside::Annex(annex)) => annex.bytes(),
        }
    }

    /// How long a value outlives a write.
    fn lifetime(&self) -> Duration {
        match self {
            Use::Judge { law, .. } => law.memory(),
            Use::Ticket { lease, .. } => *lease,
        }
    }
}

impl Annexes {
    pub fn new(bytes_max: usize) -> Annexes {
        Annexes { map: BoundedMap::new(bytes_max), sweeps: AtomicU32::new(0), serials: AtomicU32::new(0) }
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
                .write(key, &Use::Judge { law, cost }, now, |beside| judge(beside.and_then(Beside::annex))),
        }
    }

    /// Gives `write` the annex of `key`, if it exists.
    pub fn with_known<R>(&self, key: Key, law: &Law, write: impl FnOnce(Option<&mut Annex>) -> R) -> R {
        match law.has_annex() {
            false => write(None),
            true => self.write_known(key, &Use::Judge { law, cost: 0 }, |beside| {
                write(beside.and_then(Beside::annex))
            }),
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
        if !law.has_annex() {
            return None;
        }
        let (usage, mut place) = (Use::Judge { law, cost }, self.map.at(key));
        let own_bytes = place.get().map_or(0, |kept| kept.size());
        // A clone may have less spare capacity than the original, so the original is measured.
        let bytes = |beside: &Beside| usage.bytes_after(beside).max(beside.bytes());
        let (bytes, mut beside) = match place.get() {
            Some(kept) if !kept.is_over(now) && usage.owns(&kept.beside) => {
                (bytes(&kept.beside), kept.beside.clone())
            }
            _ => {
                let fresh = usage.fresh(now).beside;
                (bytes(&fresh), fresh)
            }
        };
        let taken = self.map.taken() - own_bytes + BoundedMap::<Kept>::PLACE_BYTES + bytes;
        if taken <= self.map.room() { beside.annex().cloned() } else { None }
    }

    /// Opens a ticket of `key` for a lease, and returns its serial. None without room.
    pub fn open_ticket(&self, key: Key, lease: Duration, now: Timestamp) -> Option<u32> {
        let opening = Use::Ticket { lease, last_serial: self.serials.load(Relaxed) };
        self.write(key, &opening, now, |beside| Some(beside?.tickets()?.open(now, lease)))
    }

    /// Closes a ticket of `key`. False if it is not open.
    pub fn close_ticket(&self, key: Key, serial: u32, begun_ms: u32) -> bool {
        self.write_known(key, &Use::Ticket { lease: Duration::ZERO, last_serial: 0 }, |beside| {
            let Some(tickets) = beside.and_then(Beside::tickets) else { return false };
            let is_closed = tickets.close(serial, begun_ms);
            if tickets.is_empty() {
                self.serials.fetch_max(tickets.last_serial(), Relaxed);
            }
            is_closed
        })
    }

    pub fn remove(&self, key: Key) {
        self.map.at(key).remove();
    }

    /// All keys with an annex or open tickets.
    pub fn keys(&self) -> Vec<Key> {
        self.map.pick(|key, _| Some(key)).flatten().collect()
    }

    /// A copy of what a key has beside its row, and how long it still lives.
    pub fn kept(&self, key: Key, now: Timestamp) -> Option<(Aside, Duration)> {
        let mut place = self.map.at(key);
        let kept = place.get().filter(|kept| !kept.is_over(now))?;
        Some((Aside(kept.beside.clone()), kept.expires.since(now)))
    }

    /// Puts a copy back. False if there is no room for it, or if it is none that slowlane makes.
    pub fn put_back(&self, key: Key, Aside(beside): Aside, expires: Timestamp, now: Timestamp) -> bool {
        beside.is_sound() && self.map.at(key).put(Kept { beside, expires }, now)
    }

    pub fn bytes(&self) -> u64 {
        self.map.taken() as u64
    }

    /// Forgets what has not been written for long. Call it once a second.
    pub fn sweep(&self, now: Timestamp) {
        let is_crowded = self.map.taken() > self.map.room() / 2;
        if self.sweeps.fetch_add(1, Relaxed).is_multiple_of(SWEEPS_SKIPPED) || is_crowded {
            self.map.sweep(now);
        }
    }

    /// Gives `write` the value of `key`, a fresh one for a new key, or none without room for the write. A known annex that
    /// finds no room begins anew, since it has missed a write. Tickets that are open can end all the same.
    fn write<R>(
        &self,
        key: Key,
        usage: &Use<'_>,
        now: Timestamp,
        write: impl FnOnce(Option<&mut Beside>) -> R,
    ) -> R {
        let mut place = self.map.at(key);
        let is_own = place.get().is_some_and(|kept| !kept.is_over(now) && usage.owns(&kept.beside));
        if !is_own && !place.put(usage.fresh(now), now) {
            return write(None);
        }
        let more = |kept: &mut Kept| usage.bytes_after(&kept.beside).saturating_sub(kept.beside.bytes());
        let more = place.get().map_or(0, more);
        if !place.reserve(more, now) {
            if matches!(usage, Use::Judge { .. }) {
                place.put(usage.fresh(now), now);
            }
            return write(None);
        }
        let written = place.update(more, |kept| {
            kept.expires = now + usage.lifetime();
            write(Some(&mut kept.beside))
        });
        written.expect("there is a value")
    }

    /// Gives `write` the value of `key` if it exists and is one for this use. Its lifetime stays as it is. The write must not
    /// make it larger, since it reserves no room; what it frees is given back.
    fn write_known<R>(&self, key: Key, usage: &Use<'_>, write: impl FnOnce(Option<&mut Beside>) -> R) -> R {
        let mut place = self.map.at(key);
        if !place.get().is_some_and(|kept| usage.owns(&kept.beside)) {
            return write(None);
        }
        let (result, is_over) = place
            .update(0, |kept| {
                let result = write(Some(&mut kept.beside));
                (result, kept.beside.tickets().is_some_and(|tickets| tickets.is_empty()))
            })
            .expect("there is a value");
        // While there is room, the next ticket finds the value and its memory again.
        if is_over && self.map.taken() > self.map.room() / CROWDED_AT {
            place.remove();
        }
        result
    }
}

/// A copy of what a key has beside its row, for the snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Aside(Beside);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::units::Rate;
    use crate::law::{Arrival, Objective, Options};
    use crate::table::Entry;

    const NOW: Timestamp = Timestamp::from_millis(60_000);
    const KEY: Key = Key::from_bits(1);
    const OTHER: Key = Key::from_bits(2);
    const PLACE: usize = BoundedMap::<Kept>::PLACE_BYTES;

    fn law(name: &str) -> Law {
        let rate: Rate = "9/s".parse().unwrap();
        Law::new(name, Objective { burst: 0, rate }, Options::default()).unwrap()
    }

    /// Whether a request of a cost finds an annex.
    fn judges(annexes: &Annexes, key: Key, law: &Law, cost: u32, now: Timestamp) -> bool {
        let (mut entry, arrival) = (Entry::default(), Arrival { cost, ..Arrival::at(now) });
        annexes.with(key, law, cost, now, |annex| {
            let has_annex = annex.is_some();
            law.judge(&mut entry, annex, &arrival);
            has_annex
        })
    }

    fn length(annexes: &Annexes, law: &Law) -> Option<usize> {
        annexes.with_known(KEY, law, |annex| annex.map(|annex| annex.bytes()))
    }

    #[test]
    fn a_write_without_room_gets_no_value_and_resets_it() {
        let (log, annexes) = (law("sliding-log"), Annexes::new(PLACE + 4 * 8));
        assert!(judges(&annexes, KEY, &log, 4, NOW));
        assert!(!judges(&annexes, OTHER, &log, 1, NOW), "another key finds no place");
        assert!(!judges(&annexes, KEY, &log, 1, NOW), "nor does a fifth admission");
        assert_eq!(length(&annexes, &log), Some(0), "the log has missed a request");
        assert!(judges(&annexes, KEY, &log, 1, NOW));
    }

    #[test]
    fn a_value_of_another_use_is_replaced_by_a_write_and_left_alone_otherwise() {
        let (log, fair, annexes) = (law("sliding-log"), law("fair"), Annexes::new(1 << 20));
        assert!(judges(&annexes, KEY, &log, 1, NOW));
        let bytes = annexes.bytes();
        assert_eq!(annexes.copy(KEY, &fair, 1, NOW), fair.annex());
        assert_eq!(length(&annexes, &fair), None);
        assert!(!annexes.close_ticket(KEY, 1, NOW.ticks_ms()));
        assert_eq!((length(&annexes, &log), annexes.bytes()), (Some(4 * 8), bytes));
        assert_eq!(annexes.open_ticket(KEY, Duration::from_secs(1), NOW), Some(1));
        assert_eq!(length(&annexes, &log), None);
        assert_eq!(annexes.bytes(), PLACE as u64 + 4 * 8, "nothing of the first use is left");
    }

    #[test]
    fn expired_values_make_room_with_the_next_sweep() {
        let (log, annexes) = (law("sliding-log"), Annexes::new(PLACE + 4 * 8));
        judges(&annexes, KEY, &log, 1, NOW);
        let later = NOW + log.memory();
        assert_eq!(annexes.copy(OTHER, &log, 1, later), None, "a copy foresees that there is no room");
        assert!(!judges(&annexes, OTHER, &log, 1, later));
        annexes.sweep(later);
        assert_eq!(annexes.copy(OTHER, &log, 1, later), log.annex());
        assert!(judges(&annexes, OTHER, &log, 1, later));
        annexes.remove(OTHER);
        assert_eq!(annexes.bytes(), 0);
    }
}
