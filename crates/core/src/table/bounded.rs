//! A map by key, with a bound on the number or the size of its values, spread over shards. Sweeps remove
//! expired values.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use hashbrown::HashTable;

use crate::base::{Key, Timestamp};
use crate::table::locks::{AtomicU64, AtomicUsize, Mutex, MutexGuard};
use crate::table::spread::Spread;
use crate::table::store::lock;

/// The maximum number of shards. With this many, threads rarely contend, and a write that makes a shard grow has few
/// values to move.
const SHARDS_MAX: usize = 256;

/// The room of each shard of a map, large enough that a key that finds no room can evict a value in its shard.
const SHARD_ROOM: usize = 1_024;

/// The number of slots that a sweep checks under one lock. This takes a microsecond, for which a request may wait.
const SWEPT_AT_ONCE: usize = 64;

/// The number of slots that are searched for a value to evict when a key finds no room. Usually, at least half of these
/// slots hold a value. The oldest of eight values is among the oldest third of all values in 96 of 100 cases.
const SAMPLES: usize = 16;

/// If a shard has room for more than this many times its values, a sweep shrinks it to room for twice its
/// values. Otherwise the shard would keep the memory of its busiest time.
const EMPTY_AT: usize = 4;

/// A value of a [`BoundedMap`].
pub trait Expiring {
    /// Whether the value has expired.
    fn is_over(&self, now: Timestamp) -> bool;

    /// The part of the room that the value takes: 1, or its size in bytes.
    fn size(&self) -> usize {
        1
    }

    /// How long the value has been idle, if it may be evicted for another value.
    fn idle(&self, _now: Timestamp) -> Option<Duration> {
        None
    }
}

/// Values by key. Together they take at most the room of the map. A value that finds no room is refused, or
/// takes the place of a value that has been [idle](Expiring::idle) for a long time.
///
/// A value that has expired stays until the next [sweep](BoundedMap::sweep), so that no request has to wait
/// for the removal of other values.
///
/// ```
/// use slowlane_core::{base::{Key, Timestamp}, table::{BoundedMap, Expiring}};
///
/// struct Until(Timestamp);
/// impl Expiring for Until {
///     fn is_over(&self, now: Timestamp) -> bool {
///         self.0 <= now
///     }
/// }
/// let (map, now, later) = (BoundedMap::new(1), Timestamp::from_millis(1), Timestamp::from_millis(2));
/// assert!(map.at(Key::from_bits(7)).put(Until(later), now));
/// assert!(!map.at(Key::from_bits(8)).put(Until(later), now));
/// map.sweep(later);
/// assert!(map.at(Key::from_bits(8)).put(Until(later), later));
/// ```
#[derive(Debug)]
pub struct BoundedMap<V> {
    shards: Box<[Mutex<Shard<V>>]>,
    spread: Spread,
    room: usize,
    taken: AtomicUsize,
    refused: AtomicU64,
}

#[derive(Debug)]
struct Shard<V> {
    values: HashTable<(Key, V)>,
    /// The slot at which the next search for a value to evict begins.
    next_sample: usize,
}

impl<V: Expiring> BoundedMap<V> {
    /// The size of a value without its heap memory, in a map that is bounded in bytes: two slots of a hash
    /// table. A table that has just grown has 2.3 slots for each value.
    pub const PLACE_BYTES: usize = 2 * size_of::<(Key, V)>();

    pub fn new(room: usize) -> BoundedMap<V> {
        let shards = (room / SHARD_ROOM).clamp(1, SHARDS_MAX).next_power_of_two();
        let shard = |_| Mutex::new(Shard { values: HashTable::new(), next_sample: 0 });
        BoundedMap {
            shards: (0..shards).map(shard).collect(),
            spread: Spread::new(),
            room,
            taken: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
        }
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.taken() == 0
    }

    /// The room that all values take: their number or their bytes, including values that have expired but are
    /// not swept yet.
    #[inline]
    pub fn taken(&self) -> usize {
        self.taken.load(Relaxed)
    }

    pub fn room(&self) -> usize {
        self.room
    }

    /// How often a value found no room.
    pub fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// The place of a key. Its shard is locked until the place is dropped.
    pub fn at(&self, key: Key) -> KeyPlace<'_, V> {
        let hash = self.spread.bits(key);
        // The bits in the middle choose the shard, because the hash table uses the bits at both ends.
        let shard = lock(&self.shards[(hash >> 40) as usize & (self.shards.len() - 1)]);
        let slot = shard.values.find_bucket_index(hash, |(known, _)| *known == key);
        KeyPlace { map: self, shard, key, hash, slot }
    }

    /// Calls `pick` for each value, and collects the results shard by shard. Each shard is locked separately.
    pub fn pick<R>(&self, mut pick: impl FnMut(Key, &V) -> Option<R>) -> impl Iterator<Item = Vec<R>> {
        self.shards.iter().map(move |shard| {
            lock(shard).values.iter().filter_map(|(key, value)| pick(*key, value)).collect()
        })
    }

    /// Removes expired values. The sweep checks some slots of each shard in turn, then the next slots of
    /// each, so that a request that waits for a shard gets it before the sweep returns to that shard.
    pub fn sweep(&self, now: Timestamp) {
        let (mut from, mut is_done) = (0, self.is_empty());
        while !is_done {
            is_done = true;
            for shard in &self.shards {
                is_done &= self.sweep_some(&mut lock(shard).values, from, now);
            }
            from += SWEPT_AT_ONCE;
        }
    }

    /// Sweeps some slots. Returns whether these were the last.
    fn sweep_some(&self, values: &mut HashTable<(Key, V)>, from: usize, now: Timestamp) -> bool {
        let (end, mut swept) = (from + SWEPT_AT_ONCE, 0);
        for slot in from..end.min(values.num_buckets()) {
            if let Ok(entry) = values.get_bucket_entry(slot)
                && entry.get().1.is_over(now)
            {
                let ((_, value), _) = entry.remove();
                swept += value.size();
            }
        }
        self.account(swept, 0);
        let is_last = end >= values.num_buckets();
        if is_last && values.len() < values.capacity() / EMPTY_AT {
            values.shrink_to(2 * values.len(), |(key, _)| self.spread.bits(*key));
        }
        is_last
    }

    /// Reserves room. If there is too little, reserves nothing and returns false.
    fn reserve(&self, more: usize) -> bool {
        let with = |taken: usize| taken.checked_add(more).filter(|&taken| taken <= self.room);
        more == 0 || self.taken.fetch_update(Relaxed, Relaxed, with).is_ok()
    }

    /// Records the size of a value after a write. It should not exceed the reserved size, but is recorded anyway.
    fn account(&self, reserved: usize, size: usize) {
        debug_assert!(size <= reserved, "no value outgrows its reservation");
        if size != reserved {
            self.taken.fetch_add(size.wrapping_sub(reserved), Relaxed);
        }
    }
}

/// The place of a key in a map, with a value or without one.
#[derive(Debug)]
pub struct KeyPlace<'m, V> {
    map: &'m BoundedMap<V>,
    shard: MutexGuard<'m, Shard<V>>,
    key: Key,
    hash: u64,
    slot: Option<usize>,
}

impl<V: Expiring> KeyPlace<'_, V> {
    /// The value, even if it has expired. Only [`update`](KeyPlace::update) may change the value's size.
    #[inline]
    pub fn get(&mut self) -> Option<&mut V> {
        self.shard.values.get_bucket_mut(self.slot?).map(|(_, value)| value)
    }

    /// Inserts or replaces the value. Returns false if there is no room; an existing value then stays.
    pub fn put(&mut self, value: V, now: Timestamp) -> bool {
        let (before, size) = (self.get().map_or(0, |before| before.size()), value.size());
        let more = size.saturating_sub(before);
        if !self.reserve(more, now) {
            return false;
        }
        match self.get() {
            Some(before) => *before = value,
            None => {
                let (spread, entry) = (self.map.spread, (self.key, value));
                let entry = self.shard.values.insert_unique(self.hash, entry, |(key, _)| spread.bits(*key));
                self.slot = Some(entry.bucket_index());
            }
        }
        self.map.account(before + more, size);
        true
    }

    /// Reserves room for an [`update`](KeyPlace::update); may evict an idle value. Returns false if there is no room.
    pub fn reserve(&mut self, more: usize, now: Timestamp) -> bool {
        let has_room = self.map.reserve(more) || self.evict(now) && self.map.reserve(more);
        if !has_room {
            self.map.refused.fetch_add(1, Relaxed);
        }
        has_room
    }

    /// Writes to the value, if there is one, and frees the room that it no longer needs, including reserved room.
    pub fn update<R>(&mut self, reserved: usize, write: impl FnOnce(&mut V) -> R) -> Option<R> {
        let map = self.map;
        let value = self.get()?;
        let reserved = value.size() + reserved;
        let result = write(value);
        map.account(reserved, value.size());
        Some(result)
    }

    pub fn remove(&mut self) -> Option<V> {
        let entry = self.shard.values.get_bucket_entry(self.slot.take()?).ok()?;
        let ((_, value), _) = entry.remove();
        self.map.account(value.size(), 0);
        Some(value)
    }

    /// From a sample of the shard's values, evicts the value that has been idle longest. Returns false if
    /// there is none.
    fn evict(&mut self, now: Timestamp) -> bool {
        let Shard { values, next_sample } = &mut *self.shard;
        let (slots, first) = (values.num_buckets(), *next_sample);
        *next_sample = (first + SAMPLES) % slots.max(1);
        let samples = (first..first + SAMPLES.min(slots)).map(|slot| slot % slots);
        let idle = |slot: usize| Some((values.get_bucket(slot)?.1.idle(now)?, slot));
        let longest = samples.filter(|&slot| Some(slot) != self.slot).filter_map(idle).max();
        let Some(Ok(entry)) = longest.map(|(_, slot)| values.get_bucket_entry(slot)) else { return false };
        let ((_, value), _) = entry.remove();
        self.map.account(value.size(), 0);
        true
    }
}

/// The maximum heap memory of a deque after adding `more` elements, in bytes.
pub fn deque_bytes_after<T>(deque: &VecDeque<T>, more: usize) -> usize {
    let (wanted, capacity) = (deque.len() + more, deque.capacity());
    // A deque grows by doubling, from four.
    let grown = if wanted > capacity { wanted.next_power_of_two().max(2 * capacity) } else { capacity };
    grown.max(4) * size_of::<T>()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(60_000);
    const LATER: Timestamp = Timestamp::from_millis(70_000);

    /// A list that lives until `LATER`, and may be evicted after ten seconds without a write.
    #[derive(Debug, PartialEq)]
    struct List {
        bytes: Vec<u8>,
        used: Timestamp,
    }

    impl Expiring for List {
        fn is_over(&self, now: Timestamp) -> bool {
            LATER <= now
        }

        fn size(&self) -> usize {
            BoundedMap::<List>::PLACE_BYTES + self.bytes.len()
        }

        fn idle(&self, now: Timestamp) -> Option<Duration> {
            Some(now.since(self.used)).filter(|idle| idle.as_secs() >= 5)
        }
    }

    /// Appends a byte. Returns the length of the list, or none without room.
    fn append(map: &BoundedMap<List>, key: u64, now: Timestamp) -> Option<usize> {
        let mut place = map.at(Key::from_bits(key));
        if place.get().is_none() && !place.put(List { bytes: Vec::new(), used: now }, now)
            || !place.reserve(1, now)
        {
            return None;
        }
        place.update(1, |list| {
            list.bytes.push(0);
            list.used = now;
            list.bytes.len()
        })
    }

    fn slots(map: &BoundedMap<List>) -> usize {
        map.shards.iter().map(|shard| lock(shard).values.capacity()).sum()
    }

    const PLACE: usize = BoundedMap::<List>::PLACE_BYTES;

    #[test]
    fn a_write_without_room_is_refused() {
        let map = BoundedMap::new(PLACE + 2);
        assert_eq!([append(&map, 1, NOW), append(&map, 1, NOW)], [Some(1), Some(2)]);
        assert_eq!(append(&map, 2, NOW), None, "another key finds no place");
        assert_eq!(append(&map, 1, NOW), None, "nor does a third byte");
        assert_eq!((map.taken(), map.refused()), (PLACE + 2, 2));
    }

    #[test]
    fn what_a_value_frees_is_room_for_others() {
        let map = BoundedMap::new(2 * PLACE + 2);
        append(&map, 1, NOW);
        append(&map, 1, NOW);
        assert_eq!(append(&map, 2, NOW), None);
        map.at(Key::from_bits(1)).update(0, |list| list.bytes.truncate(1));
        assert_eq!(append(&map, 2, NOW), Some(1));
        assert_eq!(map.at(Key::from_bits(3)).update(0, |_| ()), None);
        assert!(map.at(Key::from_bits(1)).put(List { bytes: Vec::new(), used: NOW }, NOW), "a smaller one");
        assert_eq!(append(&map, 2, NOW), Some(2));
        assert!(map.at(Key::from_bits(2)).remove().is_some());
        assert_eq!(map.taken(), PLACE);
    }

    #[test]
    fn values_that_are_over_go_with_the_sweep() {
        let map = BoundedMap::new(1 << 20);
        assert!((0..1_000).all(|key| append(&map, key, NOW) == Some(1)));
        map.sweep(NOW);
        assert_eq!(map.taken(), 1_000 * (PLACE + 1));
        map.sweep(LATER);
        assert!(map.is_empty());
    }

    #[test]
    fn memory_of_a_busy_time_is_given_back() {
        let map = BoundedMap::new(1 << 24);
        assert!((0..10_000).all(|key| append(&map, key, NOW) == Some(1)));
        assert!(slots(&map) >= 10_000);
        map.sweep(LATER);
        assert!(slots(&map) < 100, "{}", slots(&map));
    }

    #[test]
    fn the_value_that_is_idle_for_longest_makes_room() {
        let map = BoundedMap::new(3 * (PLACE + 1));
        let at = |second: u64| Timestamp::from_millis(50_000 + 1_000 * second);
        assert_eq!([0, 1, 2].map(|key| append(&map, key, at(key))), [Some(1); 3]);
        assert_eq!(append(&map, 3, at(4)), None, "all are in use");
        assert_eq!(append(&map, 3, at(8)), Some(1));
        let mut known: Vec<Key> = map.pick(|key, _| Some(key)).flatten().collect();
        known.sort();
        assert_eq!(known, [1, 2, 3].map(Key::from_bits));
        assert_eq!(map.taken(), 3 * (PLACE + 1));
    }
}
