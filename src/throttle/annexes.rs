//! The annexes of all entries, bounded in bytes.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hashbrown::HashTable;

use crate::base::key::Key;
use crate::base::time::Timestamp;
use crate::law::{Annex, Law};

const SHARDS: usize = 16;

/// How often what has expired is looked for when there is no room.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// What `fair` and `sliding-log` remember beside the rows of the table. A law that finds no room here falls back to
/// a simpler one, and is counted.
#[derive(Debug)]
pub struct Annexes {
    shards: [Mutex<HashTable<Kept>>; SHARDS],
    bytes_max: usize,
    bytes: AtomicUsize,
    swept_at_ns: AtomicU64,
    fallbacks: AtomicU64,
}

#[derive(Debug)]
struct Kept {
    key: u64,
    annex: Annex,
    expires: Timestamp,
    bytes: usize,
}

/// What an annex costs beside what it holds.
const KEPT_BYTES: usize = 2 * size_of::<Kept>();

/// The numbers that an operator watches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnnexUsage {
    pub bytes: u64,
    /// Requests judged by the simpler law.
    pub fallbacks: u64,
}

impl Annexes {
    pub fn new(bytes_max: usize) -> Annexes {
        Annexes {
            shards: Default::default(),
            bytes_max,
            bytes: AtomicUsize::new(0),
            swept_at_ns: AtomicU64::new(0),
            fallbacks: AtomicU64::new(0),
        }
    }

    /// Gives `judge` the annex that `law` has for `key`, or none if there is no room for a request of this cost.
    pub fn with<R>(
        &self,
        key: Key,
        law: &Law,
        cost: u32,
        now: Timestamp,
        judge: impl FnOnce(Option<&mut Annex>) -> R,
    ) -> R {
        self.sweep(now);
        let mut shard = self.shard(key);
        let Some(kept) = self.kept(&mut shard, key, law, now) else { return judge(None) };
        let more = law.annex_bytes_after(&kept.annex, cost).saturating_sub(kept.annex.bytes());
        if !self.reserve(more) {
            // What it remembers would be wrong from now on: it knows nothing of what the simpler law lets through.
            if let Some(fresh) = law.annex() {
                kept.annex = fresh;
                self.account(kept);
            }
            return judge(None);
        }
        kept.bytes += more;
        let judged = judge(Some(&mut kept.annex));
        kept.expires = now + law.memory();
        self.account(kept);
        judged
    }

    /// Gives `write` the annex of `key`, if it has one.
    pub fn with_known<R>(&self, key: Key, law: &Law, write: impl FnOnce(Option<&mut Annex>) -> R) -> R {
        if !law.has_annex() {
            return write(None);
        }
        let mut shard = self.shard(key);
        match shard.find_mut(key.bits(), |kept| kept.key == key.bits()) {
            Some(kept) if law.owns(&kept.annex) => write(Some(&mut kept.annex)),
            _ => write(None),
        }
    }

    /// A copy of the annex that [`with`](Annexes::with) would give for `key`; none where it would have no room.
    ///
    /// It is half a mebibyte at the very most, under a `sliding-log` of that size, and mostly some kilobytes.
    pub fn copy(&self, key: Key, law: &Law, cost: u32, now: Timestamp) -> Option<Annex> {
        let room = |annex: &Annex| KEPT_BYTES + law.annex_bytes_after(annex, cost).max(annex.bytes());
        let (kept_bytes, needed, annex) = {
            let shard = self.shard(key);
            let kept = shard.find(key.bits(), |kept| kept.key == key.bits());
            let kept_bytes = kept.map_or(0, |kept| kept.bytes);
            match kept.filter(|kept| kept.expires > now && law.owns(&kept.annex)) {
                // A copy may be tighter than what it is of, so the room is told of that.
                Some(kept) => (kept_bytes, room(&kept.annex), kept.annex.clone()),
                None => {
                    let fresh = law.annex()?;
                    (kept_bytes, room(&fresh), fresh)
                }
            }
        };
        let swept = if self.is_sweep_due(now) { self.expired_bytes(key, now) } else { 0 };
        let of_others = self.bytes.load(Relaxed).saturating_sub(kept_bytes + swept);
        (of_others + needed <= self.bytes_max).then_some(annex)
    }

    /// Forgets the annex of `key`.
    pub fn remove(&self, key: Key) {
        let mut shard = self.shard(key);
        if let Ok(kept) = shard.find_entry(key.bits(), |kept| kept.key == key.bits()) {
            let (kept, _) = kept.remove();
            self.bytes.fetch_sub(kept.bytes, Relaxed);
        }
    }

    pub fn count_fallback(&self) {
        self.fallbacks.fetch_add(1, Relaxed);
    }

    pub fn usage(&self) -> AnnexUsage {
        AnnexUsage { bytes: self.bytes.load(Relaxed) as u64, fallbacks: self.fallbacks.load(Relaxed) }
    }

    /// The annex of a key, a fresh one if there is none of this law, or none if there is no room for it.
    fn kept<'s>(
        &self,
        shard: &'s mut HashTable<Kept>,
        key: Key,
        law: &Law,
        now: Timestamp,
    ) -> Option<&'s mut Kept> {
        let is_known = match shard.find_mut(key.bits(), |kept| kept.key == key.bits()) {
            Some(kept) => {
                if kept.expires <= now || !law.owns(&kept.annex) {
                    kept.annex = law.annex()?;
                    self.account(kept);
                }
                true
            }
            None => false,
        };
        if !is_known {
            let annex = law.annex()?;
            if !self.reserve(KEPT_BYTES) {
                return None;
            }
            let fresh = Kept { key: key.bits(), annex, expires: now, bytes: KEPT_BYTES };
            shard.insert_unique(key.bits(), fresh, |kept| kept.key);
        }
        shard.find_mut(key.bits(), |kept| kept.key == key.bits())
    }

    /// Takes so many bytes of what is left, or none.
    fn reserve(&self, bytes: usize) -> bool {
        let with = |taken: usize| taken.checked_add(bytes).filter(|&taken| taken <= self.bytes_max);
        self.bytes.fetch_update(Relaxed, Relaxed, with).is_ok()
    }

    /// Gives back what was reserved for an annex and is not needed.
    fn account(&self, kept: &mut Kept) {
        let bytes = KEPT_BYTES + kept.annex.bytes();
        debug_assert!(bytes <= kept.bytes, "no annex outgrows what was reserved for it");
        self.bytes.fetch_sub(kept.bytes - bytes, Relaxed);
        kept.bytes = bytes;
    }

    /// Once in a while, and only when half of the room is taken, everything that has expired goes.
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
        let swept_at = Timestamp::from_nanos(self.swept_at_ns.load(Relaxed));
        self.bytes.load(Relaxed) > self.bytes_max / 2 && now.since(swept_at) >= SWEEP_EVERY
    }

    /// What others than `key` have that a sweep would find.
    fn expired_bytes(&self, key: Key, now: Timestamp) -> usize {
        let is_swept = |kept: &&Kept| kept.expires <= now && kept.key != key.bits();
        let of_shard = |shard: &Mutex<HashTable<Kept>>| -> usize {
            lock(shard).iter().filter(is_swept).map(|kept| kept.bytes).sum()
        };
        self.shards.iter().map(of_shard).sum()
    }

    fn sweep_shard(&self, shard: &mut HashTable<Kept>, now: Timestamp) {
        shard.retain(|kept| {
            let is_live = kept.expires > now;
            if !is_live {
                self.bytes.fetch_sub(kept.bytes, Relaxed);
            }
            is_live
        });
    }

    fn shard(&self, key: Key) -> MutexGuard<'_, HashTable<Kept>> {
        lock(&self.shards[(key.bits() >> 40) as usize % SHARDS])
    }
}

fn lock(shard: &Mutex<HashTable<Kept>>) -> MutexGuard<'_, HashTable<Kept>> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
