//! The side store: values by key that do not fit a row, bounded in bytes.

use std::collections::VecDeque;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use hashbrown::HashTable;

use crate::base::key::Key;
use crate::base::time::Timestamp;
use crate::table::locks::{AtomicU64, AtomicUsize, Mutex, MutexGuard};
use crate::table::spread::Spread;

/// A few threads seldom meet in one of this many shards.
const SHARDS: usize = 16;

/// The shortest pause between two searches for expired values, when more than half of the room is taken.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// The pause when there is room enough. A search may take a millisecond.
const SWEEP_SELDOM: Duration = Duration::from_secs(30);

/// A hash table with so few values for its slots is made anew, with room for twice as many values.
const EMPTY_AT: usize = 4;

/// From this part of the room on, values that are over leave at once.
const CROWDED_AT: usize = 4;

/// How one use of the store creates, recognises and measures its values.
pub trait Keep<T> {
    /// An empty value, without heap memory, for a key that has none.
    fn fresh(&self) -> T;

    /// Whether an existing value belongs to this use. A value of another use is replaced.
    fn owns(&self, value: &T) -> bool;

    /// The heap memory of a value, in bytes.
    fn bytes(&self, value: &T) -> usize;

    /// The most heap memory that the value can have after the next write, in bytes.
    fn bytes_after(&self, value: &T) -> usize;

    /// How long the value outlives a write.
    fn lifetime(&self) -> Duration;

    /// Whether a value that has missed a write is of no more use.
    fn needs_each_write(&self) -> bool {
        true
    }

    /// Whether a value says no more than none at all. It leaves with the write that made it so, once a quarter of the room is
    /// taken.
    fn is_over(&self, _: &T) -> bool {
        false
    }
}

/// The most heap memory of a deque after `more` elements, in bytes.
pub fn deque_bytes_after<T>(deque: &VecDeque<T>, more: usize) -> usize {
    let (wanted, capacity) = (deque.len() + more, deque.capacity());
    // A deque grows by doubling, from four.
    let grown = if wanted > capacity { wanted.next_power_of_two().max(2 * capacity) } else { capacity };
    grown.max(4) * size_of::<T>()
}

/// Values by key, beside the rows of a [`Table`](crate::table::Table). Together they take up at most
/// `bytes_max` bytes, with two slots of a hash table for each. A table that has just grown has 2.3, and one with very many
/// removals up to 4.6 until the next search for expired values. A write that finds no room gets no value.
#[derive(Debug)]
pub struct Side<T> {
    shards: [Mutex<HashTable<Kept<T>>>; SHARDS],
    spread: Spread,
    bytes_max: usize,
    bytes: AtomicUsize,
    swept_at_ns: AtomicU64,
}

#[derive(Debug)]
struct Kept<T> {
    key: Key,
    value: T,
    expires: Timestamp,
    /// Bytes accounted for the value: its place and its heap memory.
    bytes: usize,
}

impl<T> Kept<T> {
    /// Bytes of a value beside its heap memory. The factor covers the free slots of a hash table of the usual size.
    const PLACE_BYTES: usize = 2 * size_of::<Kept<T>>();
}

impl<T> Side<T> {
    pub fn new(bytes_max: usize) -> Side<T> {
        Side {
            shards: std::array::from_fn(|_| Mutex::new(HashTable::new())),
            spread: Spread::new(),
            bytes_max,
            bytes: AtomicUsize::new(0),
            swept_at_ns: AtomicU64::new(0),
        }
    }

    /// Gives `write` the value of `key`, a fresh one for a new key, or none without room for the write. A known value that
    /// finds no room is reset to a fresh one if it [needs each write](Keep::needs_each_write).
    pub fn with<R>(
        &self,
        key: Key,
        keep: &impl Keep<T>,
        now: Timestamp,
        write: impl FnOnce(Option<&mut T>) -> R,
    ) -> R {
        self.sweep(now);
        let mut shard = self.shard(key);
        let Some(kept) = self.kept(&mut shard, key, keep, now) else { return write(None) };
        let more = keep.bytes_after(&kept.value).saturating_sub(keep.bytes(&kept.value));
        if !self.reserve(more) {
            if keep.needs_each_write() {
                kept.value = keep.fresh();
                self.account(kept, keep);
            }
            return write(None);
        }
        kept.bytes += more;
        let result = write(Some(&mut kept.value));
        kept.expires = now + keep.lifetime();
        self.account(kept, keep);
        result
    }

    /// Gives `write` the value of `key` if it exists and belongs to this use. Its lifetime stays as it is. The
    /// write must not make it larger, since it reserves no room; what it frees is given back, and usually all of a
    /// value that [is over](Keep::is_over).
    pub fn with_known<R>(&self, key: Key, keep: &impl Keep<T>, write: impl FnOnce(Option<&mut T>) -> R) -> R {
        let mut shard = self.shard(key);
        let Ok(mut kept) = shard.find_entry(self.spread.bits(key), |kept| kept.key == key) else {
            return write(None);
        };
        if !keep.owns(&kept.get().value) {
            return write(None);
        }
        let result = write(Some(&mut kept.get_mut().value));
        // While there is room, the next write finds the value and its memory again.
        if keep.is_over(&kept.get().value) && self.bytes.load(Relaxed) > self.bytes_max / CROWDED_AT {
            self.bytes.fetch_sub(kept.remove().0.bytes, Relaxed);
        } else {
            self.account(kept.get_mut(), keep);
        }
        result
    }

    /// A copy of the value that [`with`](Side::with) would give for `key`; none if there would be no room.
    pub fn copy(&self, key: Key, keep: &impl Keep<T>, now: Timestamp) -> Option<T>
    where
        T: Clone,
    {
        let room = |value: &T| Kept::<T>::PLACE_BYTES + keep.bytes_after(value).max(keep.bytes(value));
        let (kept_bytes, needed, value) = {
            let shard = self.shard(key);
            let kept = shard.find(self.spread.bits(key), |kept| kept.key == key);
            let kept_bytes = kept.map_or(0, |kept| kept.bytes);
            match kept.filter(|kept| kept.expires > now && keep.owns(&kept.value)) {
                // A clone may have less spare capacity than the original, so the original is measured.
                Some(kept) => (kept_bytes, room(&kept.value), kept.value.clone()),
                None => {
                    let fresh = keep.fresh();
                    (kept_bytes, room(&fresh), fresh)
                }
            }
        };
        let swept = if self.is_sweep_due(now) { self.expired_bytes(key, now) } else { 0 };
        // The value's own bytes count once, in `needed`.
        let of_others = self.bytes.load(Relaxed).saturating_sub(kept_bytes + swept);
        (of_others + needed <= self.bytes_max).then_some(value)
    }

    /// All keys that have a value.
    pub fn keys(&self) -> Vec<Key> {
        let mut keys = Vec::new();
        self.shards.iter().for_each(|shard| keys.extend(lock(shard).iter().map(|kept| kept.key)));
        keys
    }

    /// A copy of the value of `key` and its remaining lifetime, if it has not expired.
    pub fn kept_of(&self, key: Key, now: Timestamp) -> Option<(T, Duration)>
    where
        T: Clone,
    {
        let shard = self.shard(key);
        let kept = shard.find(self.spread.bits(key), |kept| kept.key == key)?;
        let left = kept.expires.since(now);
        (!left.is_zero()).then(|| (kept.value.clone(), left))
    }

    /// Gives `key` a value with this much heap memory, which replaces any other. False without room for it.
    pub fn put(&self, key: Key, value: T, heap_bytes: usize, expires: Timestamp) -> bool {
        self.remove(key);
        let bytes = Kept::<T>::PLACE_BYTES + heap_bytes;
        let has_room = self.reserve(bytes);
        if has_room {
            let kept = Kept { key, value, expires, bytes };
            self.shard(key).insert_unique(self.spread.bits(key), kept, |kept| self.spread.bits(kept.key));
        }
        has_room
    }

    /// Removes the value of `key`.
    pub fn remove(&self, key: Key) {
        let mut shard = self.shard(key);
        if let Ok(kept) = shard.find_entry(self.spread.bits(key), |kept| kept.key == key) {
            let (kept, _) = kept.remove();
            self.bytes.fetch_sub(kept.bytes, Relaxed);
        }
    }

    /// Bytes that all values take up together.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed) as u64
    }

    /// The value of a key, or a fresh one if it has none of this use. None without room for it.
    fn kept<'s>(
        &self,
        shard: &'s mut HashTable<Kept<T>>,
        key: Key,
        keep: &impl Keep<T>,
        now: Timestamp,
    ) -> Option<&'s mut Kept<T>> {
        let hash = self.spread.bits(key);
        let is_known = match shard.find_mut(hash, |kept| kept.key == key) {
            Some(kept) => {
                if kept.expires <= now || !keep.owns(&kept.value) {
                    kept.value = keep.fresh();
                    self.account(kept, keep);
                }
                true
            }
            None => false,
        };
        if !is_known {
            if !self.reserve(Kept::<T>::PLACE_BYTES) {
                return None;
            }
            let bytes = Kept::<T>::PLACE_BYTES;
            let fresh = Kept { key, value: keep.fresh(), expires: now, bytes };
            shard.insert_unique(hash, fresh, |kept| self.spread.bits(kept.key));
        }
        shard.find_mut(hash, |kept| kept.key == key)
    }

    /// Reserves `bytes`, or nothing if they do not fit.
    fn reserve(&self, bytes: usize) -> bool {
        let with = |taken: usize| taken.checked_add(bytes).filter(|&taken| taken <= self.bytes_max);
        self.bytes.fetch_update(Relaxed, Relaxed, with).is_ok()
    }

    /// Gives back the part of a reservation that the value did not use.
    fn account(&self, kept: &mut Kept<T>, keep: &impl Keep<T>) {
        let bytes = Kept::<T>::PLACE_BYTES + keep.bytes(&kept.value);
        debug_assert!(bytes <= kept.bytes, "no value outgrows what was reserved for it");
        // Without debug assertions a value that breaks the rule is counted all the same.
        match kept.bytes.checked_sub(bytes) {
            Some(unused) => self.bytes.fetch_sub(unused, Relaxed),
            None => self.bytes.fetch_add(bytes - kept.bytes, Relaxed),
        };
        kept.bytes = bytes;
    }

    /// Removes all expired values, if a search is due.
    fn sweep(&self, now: Timestamp) {
        if !self.is_sweep_due(now) {
            return;
        }
        let swept_at_ns = self.swept_at_ns.load(Relaxed);
        let is_ours =
            self.swept_at_ns.compare_exchange(swept_at_ns, now.as_nanos(), Relaxed, Relaxed).is_ok();
        if is_ours {
            self.shards.iter().for_each(|shard| self.sweep_shard(&mut lock(shard), now));
        }
    }

    fn is_sweep_due(&self, now: Timestamp) -> bool {
        let bytes = self.bytes.load(Relaxed);
        let pause = if bytes > self.bytes_max / 2 { SWEEP_EVERY } else { SWEEP_SELDOM };
        bytes > 0 && now.since(Timestamp::from_nanos(self.swept_at_ns.load(Relaxed))) >= pause
    }

    /// Bytes of other keys that a sweep would free.
    fn expired_bytes(&self, key: Key, now: Timestamp) -> usize {
        let is_swept = |kept: &&Kept<T>| kept.expires <= now && kept.key != key;
        let of_shard = |shard: &Mutex<HashTable<Kept<T>>>| -> usize {
            lock(shard).iter().filter(is_swept).map(|kept| kept.bytes).sum()
        };
        self.shards.iter().map(of_shard).sum()
    }

    fn sweep_shard(&self, shard: &mut HashTable<Kept<T>>, now: Timestamp) {
        shard.retain(|kept| {
            let is_live = kept.expires > now;
            if !is_live {
                self.bytes.fetch_sub(kept.bytes, Relaxed);
            }
            is_live
        });
        // Else it would keep the memory of its busiest time beside that of others.
        if shard.len() < shard.capacity() / EMPTY_AT {
            shard.shrink_to(2 * shard.len(), |kept| self.spread.bits(kept.key));
        }
    }

    fn shard(&self, key: Key) -> MutexGuard<'_, HashTable<Kept<T>>> {
        // The hash table uses both ends of the bits.
        lock(&self.shards[(self.spread.bits(key) >> 40) as usize % SHARDS])
    }
}

fn lock<T>(shard: &Mutex<HashTable<Kept<T>>>) -> MutexGuard<'_, HashTable<Kept<T>>> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Appends one byte at each write.
    struct Bytes;

    impl Keep<Vec<u8>> for Bytes {
        fn fresh(&self) -> Vec<u8> {
            Vec::new()
        }

        fn owns(&self, _: &Vec<u8>) -> bool {
            true
        }

        fn bytes(&self, value: &Vec<u8>) -> usize {
            value.len()
        }

        fn bytes_after(&self, value: &Vec<u8>) -> usize {
            value.len() + 1
        }

        fn lifetime(&self) -> Duration {
            Duration::from_secs(10)
        }
    }

    const NOW: Timestamp = Timestamp::from_millis(60_000);

    fn append(side: &Side<Vec<u8>>, key: u64, now: Timestamp) -> Option<usize> {
        side.with(Key::from_bits(key), &Bytes, now, |value| {
            let value = value?;
            value.push(0);
            Some(value.len())
        })
    }

    #[test]
    fn a_write_without_room_gets_no_value_and_resets_it() {
        let side = Side::new(Kept::<Vec<u8>>::PLACE_BYTES + 2);
        assert_eq!([append(&side, 1, NOW), append(&side, 1, NOW)], [Some(1), Some(2)]);
        assert_eq!(append(&side, 2, NOW), None, "another key finds no place");
        assert_eq!(append(&side, 1, NOW), None, "nor does a third byte");
        assert_eq!(append(&side, 1, NOW), Some(1));
    }

    /// Lists with its own mark.
    struct Marked(u8);

    type Values = (u8, Vec<u8>);

    impl Keep<Values> for Marked {
        fn fresh(&self) -> Values {
            (self.0, Vec::new())
        }

        fn owns(&self, (mark, _): &Values) -> bool {
            *mark == self.0
        }

        fn bytes(&self, (_, list): &Values) -> usize {
            list.len()
        }

        fn bytes_after(&self, (_, list): &Values) -> usize {
            list.len() + 1
        }

        fn lifetime(&self) -> Duration {
            Duration::from_secs(10)
        }
    }

    #[test]
    fn a_value_of_another_use_is_replaced_by_a_write_and_left_alone_otherwise() {
        let (side, key) = (Side::new(1_000), Key::from_bits(1));
        let push = |mark: u8| {
            side.with(key, &Marked(mark), NOW, |value| {
                let (_, list) = value.expect("there is room");
                list.push(9);
                list.len()
            })
        };
        assert_eq!([push(1), push(1)], [1, 2]);
        assert_eq!(side.copy(key, &Marked(2), NOW), Some((2, Vec::new())));
        side.with_known(key, &Marked(2), |value| assert_eq!(value, None));
        side.with_known(key, &Marked(1), |value| assert_eq!(value, Some(&mut (1, vec![9, 9]))));
        assert_eq!(push(2), 1);
        assert_eq!(side.bytes(), Kept::<Values>::PLACE_BYTES as u64 + 1, "nothing of the first use is left");
    }

    #[test]
    fn expired_values_go_also_while_there_is_room() {
        let side = Side::new(1 << 20);
        assert!((0..100).all(|key| append(&side, key, NOW) == Some(1)));
        append(&side, 100, NOW + SWEEP_SELDOM);
        assert_eq!(side.bytes(), Kept::<Vec<u8>>::PLACE_BYTES as u64 + 1);
    }

    #[test]
    fn what_a_known_value_frees_is_room_for_others() {
        let side = Side::new(2 * Kept::<Vec<u8>>::PLACE_BYTES + 2);
        append(&side, 1, NOW);
        append(&side, 1, NOW);
        assert_eq!(append(&side, 2, NOW), None);
        side.with_known(Key::from_bits(1), &Bytes, |value| value.unwrap().truncate(1));
        assert_eq!(append(&side, 2, NOW), Some(1));
        side.with_known(Key::from_bits(3), &Bytes, |value| assert_eq!(value, None));
    }

    #[test]
    fn memory_of_a_busy_time_is_given_back() {
        let side = Side::new(1 << 24);
        let slots = || side.shards.iter().map(|shard| lock(shard).capacity()).sum::<usize>();
        assert!((0..10_000).all(|key| append(&side, key, NOW) == Some(1)));
        assert!(slots() >= 10_000);
        append(&side, 0, NOW + SWEEP_SELDOM);
        assert!(slots() < 100, "{}", slots());
    }

    #[test]
    fn expired_values_make_room() {
        let side = Side::new(Kept::<Vec<u8>>::PLACE_BYTES + 2);
        append(&side, 1, NOW);
        let later = NOW + Duration::from_secs(10);
        assert_eq!(
            side.copy(Key::from_bits(2), &Bytes, later),
            Some(Vec::new()),
            "a copy foresees the sweep"
        );
        assert_eq!(append(&side, 2, later), Some(1));
        side.remove(Key::from_bits(2));
        assert_eq!(side.bytes(), 0);
    }
}
