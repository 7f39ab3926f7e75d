//! The state of keys outside the table's rows: the auxiliary states of laws, and open tickets.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::base::{Key, Quantile, Timestamp};
use crate::law::{AuxState, Law, OpenTickets, Reservations};
use crate::table::{BoundedMap, Expiring};

/// If more than one in this many bytes of room is taken, a key's tickets are dropped when its last open one is closed.
const CROWDED_AT: usize = 4;

/// While at least half of the room is free, only one sweep in this many is done, because a sweep visits every value.
const SWEEPS_SKIPPED: u32 = 30;

/// The auxiliary states and the open tickets, which share one limit in bytes. A law that finds no room here falls back
/// to a simpler one.
#[derive(Debug)]
pub struct AuxStore {
    map: BoundedMap<Kept>,
    sweeps: AtomicU32,
    /// The highest serial of any key whose tickets have all been closed. A new key continues from this
    /// serial, so that a ticket from an earlier life of the key never closes a later ticket.
    serials: AtomicU32,
}

#[derive(Debug)]
struct Kept {
    aux: AuxState,
    expires: Timestamp,
}

impl Expiring for Kept {
    fn is_over(&self, now: Timestamp) -> bool {
        self.expires <= now
    }

    fn size(&self) -> usize {
        BoundedMap::<Kept>::PLACE_BYTES + self.aux.bytes()
    }
}

/// The purpose for which a value is used.
enum Use<'l> {
    /// A request of this cost is judged by a law with an auxiliary state.
    Judge { law: &'l Law, cost: u32 },
    /// A ticket is opened or closed. The first ticket of a key has the serial after `last_serial`. If the SLO
    /// counts work, `work` is the estimate of costs with which a new key begins.
    Ticket { lease: Duration, last_serial: u32, work: Option<Quantile> },
}

impl Use<'_> {
    /// An empty value, without heap memory. It counts as expired until it is written.
    fn fresh(&self, now: Timestamp) -> Kept {
        let aux = match *self {
            Use::Judge { law, .. } => law.aux().expect("only laws with an auxiliary state are asked for one"),
            Use::Ticket { last_serial, work: None, .. } => AuxState::Tickets(OpenTickets::after(last_serial)),
            Use::Ticket { lease, last_serial, work: Some(costs) } => {
                AuxState::Work(Reservations::new(OpenTickets::after(last_serial), costs, lease))
            }
        };
        Kept { aux, expires: now }
    }

    /// Whether an existing value is for this use. A `write` replaces a value for another use.
    fn owns(&self, aux: &AuxState) -> bool {
        match self {
            Use::Judge { law, .. } => law.owns(aux),
            Use::Ticket { work, .. } => match aux {
                AuxState::Tickets(_) => work.is_none(),
                AuxState::Work(_) => work.is_some(),
                _ => false,
            },
        }
    }

    /// The maximum heap memory of one value after the next write, in bytes.
    fn bytes_after(&self, aux: &AuxState) -> usize {
        match (self, aux) {
            (Use::Judge { law, cost }, aux) => law.aux_bytes_after(aux, *cost),
            (Use::Ticket { .. }, AuxState::Tickets(tickets)) => tickets.bytes_after(),
            (Use::Ticket { .. }, AuxState::Work(work)) => work.tickets.bytes_after(),
            (Use::Ticket { .. }, aux) => aux.bytes(),
        }
    }

    /// The lifetime of a value after a write.
    fn lifetime(&self) -> Duration {
        match self {
            Use::Judge { law, .. } => law.memory(),
            Use::Ticket { lease, .. } => *lease,
        }
    }
}

impl AuxStore {
    pub fn new(bytes_max: usize) -> AuxStore {
        AuxStore { map: BoundedMap::new(bytes_max), sweeps: AtomicU32::new(0), serials: AtomicU32::new(0) }
    }

    /// Passes the auxiliary state of `key` to `judge`. Passes None if the law has no such state, or if a
    /// request of this cost finds no room.
    #[inline]
    pub fn with<R>(
        &self,
        key: Key,
        law: &Law,
        cost: u32,
        now: Timestamp,
        judge: impl FnOnce(Option<&mut AuxState>) -> R,
    ) -> R {
        match law.has_aux() {
            false => judge(None),
            true => self.write(key, &Use::Judge { law, cost }, now, judge),
        }
    }

    /// Passes the auxiliary state of `key` to `write`, or None if the key has no such state.
    pub fn with_known<R>(&self, key: Key, law: &Law, write: impl FnOnce(Option<&mut AuxState>) -> R) -> R {
        match law.has_aux() {
            false => write(None),
            true => self.write_known(key, &Use::Judge { law, cost: 0 }, write),
        }
    }

    /// Passes the auxiliary state of `key`, or a fresh one that is not kept, to `judge`.
    pub fn with_known_or_fresh<R>(
        &self,
        key: Key,
        law: &Law,
        cost: u32,
        now: Timestamp,
        judge: impl FnOnce(Option<&mut AuxState>) -> R,
    ) -> R {
        // Even a judgement that counts nothing may grow a known auxiliary state, so room is reserved as usual.
        match self.with_known(key, law, |aux| aux.is_some()) {
            true => self.with(key, law, cost, now, judge),
            false => judge(law.aux().as_mut()),
        }
    }

    /// A copy of the state that [`with`](AuxStore::with) would pass: usually a few kilobytes, at most 512 KiB.
    pub fn copy(&self, key: Key, law: &Law, cost: u32, now: Timestamp) -> Option<AuxState> {
        if !law.has_aux() {
            return None;
        }
        let (usage, mut place) = (Use::Judge { law, cost }, self.map.at(key));
        let own_bytes = place.get().map_or(0, |kept| kept.size());
        // A clone may have less spare capacity than the original, so the original is measured.
        let bytes = |aux: &AuxState| usage.bytes_after(aux).max(aux.bytes());
        let (bytes, aux) = match place.get() {
            Some(kept) if !kept.is_over(now) && usage.owns(&kept.aux) => (bytes(&kept.aux), kept.aux.clone()),
            _ => {
                let fresh = usage.fresh(now).aux;
                (bytes(&fresh), fresh)
            }
        };
        let taken = self.map.taken() - own_bytes + BoundedMap::<Kept>::PLACE_BYTES + bytes;
        (taken <= self.map.room()).then_some(aux)
    }

    /// Opens a ticket of `key` that lasts for `lease`, and returns its serial. None if there is no room.
    pub fn open_ticket(
        &self,
        key: Key,
        lease: Duration,
        work: Option<Quantile>,
        now: Timestamp,
    ) -> Option<u32> {
        let opening = Use::Ticket { lease, last_serial: self.serials.load(Relaxed), work };
        self.write(key, &opening, now, |aux| Some(aux?.tickets()?.open(now, lease)))
    }

    /// Closes a ticket of `key`. `is_work` says whether the ticket's SLO counts work. `learned` contains the
    /// true cost and the quantile that the key's estimate aims at. Returns false if the ticket is not open.
    pub fn close_ticket(
        &self,
        key: Key,
        serial: u32,
        begun_ms: u32,
        is_work: bool,
        learned: Option<(u32, f32)>,
    ) -> bool {
        let work = is_work.then(Quantile::default);
        self.write_known(key, &Use::Ticket { lease: Duration::ZERO, last_serial: 0, work }, |aux| {
            let Some(aux) = aux else { return false };
            let Some(tickets) = aux.tickets() else { return false };
            let is_closed = tickets.close(serial, begun_ms);
            if tickets.is_empty() {
                self.serials.fetch_max(tickets.last_serial(), Relaxed);
            }
            if let (true, AuxState::Work(work), Some((cost, p))) = (is_closed, aux, learned) {
                work.costs.observe(cost, p);
            }
            is_closed
        })
    }

    /// The estimate of a key's costs, which begins as the estimate for all keys. None if the key has no state for work.
    pub fn estimate(&self, key: Key) -> Option<Quantile> {
        match &self.map.at(key).get()?.aux {
            AuxState::Work(work) => Some(work.costs),
            _ => None,
        }
    }

    /// The number of open tickets of keys whose SLO counts work: reservations whose true cost is not known yet.
    pub fn reservations(&self, now: Timestamp) -> usize {
        let open = self.map.pick(|_, kept| match &kept.aux {
            AuxState::Work(work) if !kept.is_over(now) => Some(work.open_at(now)),
            _ => None,
        });
        open.flatten().sum()
    }

    pub fn remove(&self, key: Key) {
        self.map.at(key).remove();
    }

    /// All keys with an auxiliary state or open tickets.
    pub fn keys(&self) -> Vec<Key> {
        self.map.pick(|key, _| Some(key)).flatten().collect()
    }

    /// A copy of a key's auxiliary state or tickets, and its remaining lifetime.
    pub fn kept(&self, key: Key, now: Timestamp) -> Option<(AuxState, Duration)> {
        let mut place = self.map.at(key);
        let kept = place.get().filter(|kept| !kept.is_over(now))?;
        Some((kept.aux.clone(), kept.expires.since(now)))
    }

    /// Restores a copy. Returns false if there is no room for the copy, or if slowlane cannot have written it.
    pub fn put_back(&self, key: Key, aux: AuxState, expires: Timestamp, now: Timestamp) -> bool {
        aux.is_sound() && self.map.at(key).put(Kept { aux, expires }, now)
    }

    pub fn bytes(&self) -> u64 {
        self.map.taken() as u64
    }

    /// Drops expired values. While at least half of the room is free, most calls do nothing. To be called every second.
    pub fn sweep(&self, now: Timestamp) {
        let is_crowded = self.map.taken() > self.map.room() / 2;
        if self.sweeps.fetch_add(1, Relaxed).is_multiple_of(SWEEPS_SKIPPED) || is_crowded {
            self.map.sweep(now);
        }
    }

    /// Passes the value of `key` to `write`: a fresh one if there is none for this use, or None if there is
    /// no room for the write. A known auxiliary state that finds no room is reset, because it has missed a
    /// write. Open tickets stay, and can still be closed.
    fn write<R>(
        &self,
        key: Key,
        usage: &Use<'_>,
        now: Timestamp,
        write: impl FnOnce(Option<&mut AuxState>) -> R,
    ) -> R {
        let mut place = self.map.at(key);
        let is_own = place.get().is_some_and(|kept| !kept.is_over(now) && usage.owns(&kept.aux));
        if !is_own && !place.put(usage.fresh(now), now) {
            return write(None);
        }
        let more = |kept: &mut Kept| usage.bytes_after(&kept.aux).saturating_sub(kept.aux.bytes());
        let more = place.get().map_or(0, more);
        if !place.reserve(more, now) {
            if matches!(usage, Use::Judge { .. }) {
                place.put(usage.fresh(now), now);
            }
            return write(None);
        }
        let written = place.update(more, |kept| {
            kept.expires = now + usage.lifetime();
            write(Some(&mut kept.aux))
        });
        written.expect("there is a value")
    }

    /// Passes the value of `key` to `write`, or None if there is none for this use. The value's lifetime stays
    /// unchanged. `write` must not enlarge the value, because no room is reserved; room that `write` frees is returned.
    fn write_known<R>(&self, key: Key, usage: &Use<'_>, write: impl FnOnce(Option<&mut AuxState>) -> R) -> R {
        let mut place = self.map.at(key);
        if !place.get().is_some_and(|kept| usage.owns(&kept.aux)) {
            return write(None);
        }
        let (result, is_over) = place
            .update(0, |kept| {
                let result = write(Some(&mut kept.aux));
                (result, kept.aux.tickets().is_some_and(|tickets| tickets.is_empty()))
            })
            .expect("there is a value");
        // While there is room, the value stays, so that the next ticket can reuse it and its memory.
        if is_over && self.map.taken() > self.map.room() / CROWDED_AT {
            place.remove();
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Rate;
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

    /// Whether a request of a cost finds an auxiliary state.
    fn judges(aux_store: &AuxStore, key: Key, law: &Law, cost: u32, now: Timestamp) -> bool {
        let (mut entry, arrival) = (Entry::default(), Arrival { cost, ..Arrival::at(now) });
        aux_store.with(key, law, cost, now, |aux| {
            let has_aux = aux.is_some();
            law.judge(&mut entry, aux, &arrival);
            has_aux
        })
    }

    fn length(aux_store: &AuxStore, law: &Law) -> Option<usize> {
        aux_store.with_known(KEY, law, |aux| aux.map(|aux| aux.bytes()))
    }

    #[test]
    fn a_write_without_room_gets_no_value_and_resets_it() {
        let (log, aux_store) = (law("sliding-log"), AuxStore::new(PLACE + 4 * 8));
        assert!(judges(&aux_store, KEY, &log, 4, NOW));
        assert!(!judges(&aux_store, OTHER, &log, 1, NOW), "another key finds no place");
        assert!(!judges(&aux_store, KEY, &log, 1, NOW), "nor does a fifth admission");
        assert_eq!(length(&aux_store, &log), Some(0), "the log has missed a request");
        assert!(judges(&aux_store, KEY, &log, 1, NOW));
    }

    #[test]
    fn a_value_of_another_use_is_replaced_by_a_write_and_left_alone_otherwise() {
        let (log, fair, aux_store) = (law("sliding-log"), law("fair"), AuxStore::new(1 << 20));
        assert!(judges(&aux_store, KEY, &log, 1, NOW));
        let bytes = aux_store.bytes();
        assert_eq!(aux_store.copy(KEY, &fair, 1, NOW), fair.aux());
        assert_eq!(length(&aux_store, &fair), None);
        assert!(!aux_store.close_ticket(KEY, 1, NOW.ticks_ms(), false, None));
        assert_eq!((length(&aux_store, &log), aux_store.bytes()), (Some(4 * 8), bytes));
        assert_eq!(aux_store.open_ticket(KEY, Duration::from_secs(1), None, NOW), Some(1));
        assert_eq!(length(&aux_store, &log), None);
        assert_eq!(aux_store.bytes(), PLACE as u64 + 4 * 8, "nothing of the first use is left");
    }

    #[test]
    fn expired_values_make_room_with_the_next_sweep() {
        let (log, aux_store) = (law("sliding-log"), AuxStore::new(PLACE + 4 * 8));
        judges(&aux_store, KEY, &log, 1, NOW);
        let later = NOW + log.memory();
        assert_eq!(aux_store.copy(OTHER, &log, 1, later), None, "a copy foresees that there is no room");
        assert!(!judges(&aux_store, OTHER, &log, 1, later));
        aux_store.sweep(later);
        assert_eq!(aux_store.copy(OTHER, &log, 1, later), log.aux());
        assert!(judges(&aux_store, OTHER, &log, 1, later));
        aux_store.remove(OTHER);
        assert_eq!(aux_store.bytes(), 0);
    }

    #[test]
    fn a_copy_of_a_value_has_the_rest_of_its_life_until_it_is_over() {
        let (log, aux_store) = (law("sliding-log"), AuxStore::new(1 << 20));
        judges(&aux_store, KEY, &log, 1, NOW);
        let second = Duration::from_secs(1);
        assert_eq!(aux_store.open_ticket(OTHER, 3 * second, None, NOW), Some(1));
        assert!(aux_store.kept(KEY, NOW).is_some());
        let left = |now| aux_store.kept(OTHER, now).map(|(_, left)| left);
        assert_eq!([left(NOW), left(NOW + 2 * second)], [Some(3 * second), Some(second)]);
        assert_eq!(left(NOW + 3 * second), None);
    }

    /// While more than half is free, one sweep of 30 is done, and the first at once. Later, each is.
    #[test]
    fn a_store_with_room_is_swept_seldom_and_a_crowded_one_each_time() {
        let log = law("sliding-log");
        let value = PLACE + 4 * 8;
        for (room, swept) in [(2 * value, false), (2 * value - 1, true)] {
            let aux_store = AuxStore::new(room);
            let is_swept = || {
                if aux_store.bytes() == 0 {
                    judges(&aux_store, KEY, &log, 4, NOW);
                }
                assert_eq!(aux_store.bytes(), value as u64);
                aux_store.sweep(NOW + log.memory());
                aux_store.bytes() == 0
            };
            let sweeps: Vec<bool> = (0..=SWEEPS_SKIPPED).map(|_| is_swept()).collect();
            assert!(sweeps[0] && sweeps[30], "{room}");
            assert!(sweeps[1..30].iter().all(|&is_done| is_done == swept), "{room}: {sweeps:?}");
        }
    }
}
