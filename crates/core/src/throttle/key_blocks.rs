//! The keys that SLOs have blocked.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hashbrown::{DefaultHashBuilder, HashMap};

use crate::base::key::Key;
use crate::base::slo_id::SloId;
use crate::base::time::Timestamp;

/// The most blocked keys, about 5 MB. Further keys are not blocked.
pub const KEY_BLOCKS_MAX: usize = 100_000;

/// Shards, so that connections on different cores seldom wait for each other.
const SHARDS: usize = 64;

/// The block of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyBlock {
    pub(super) until: Timestamp,
    /// The SLO that set it. None for one from elsewhere.
    pub(super) slo: Option<SloId>,
    /// A dry run set it, so it holds under dry runs only.
    pub(super) is_dry_run: bool,
}

/// Some of the blocks.
#[derive(Debug, Default)]
struct Shard {
    blocks: HashMap<Key, KeyBlock, DefaultHashBuilder>,
    swept_at: Timestamp,
}

/// The least time between two sweeps of a full shard: a flood of new keys must not scan it for each.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// Blocks by key.
#[derive(Debug)]
pub(super) struct KeyBlocks {
    shards: Box<[Mutex<Shard>]>,
    /// Blocks in all shards, those that are over included.
    count: AtomicUsize,
    refused: AtomicU64,
}

impl Default for KeyBlocks {
    fn default() -> KeyBlocks {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        KeyBlocks { shards, count: AtomicUsize::new(0), refused: AtomicU64::new(0) }
    }
}

impl KeyBlocks {
    /// Whether no key is blocked.
    #[inline]
    pub(super) fn are_none(&self) -> bool {
        self.count.load(Relaxed) == 0
    }

    /// The block of a key, if one holds at `now`.
    pub(super) fn find(&self, key: Key, now: Timestamp) -> Option<KeyBlock> {
        let block = self.shard(key).blocks.get(&key).copied();
        block.filter(|block| block.until > now)
    }

    /// Blocks a key. A block that ends later stays, unless a dry run set it. False if there are too many.
    pub(super) fn put(&self, key: Key, block: KeyBlock, now: Timestamp) -> bool {
        let mut shard = self.shard(key);
        let before = shard.blocks.get(&key).copied();
        if before.is_some_and(|before| before.until >= block.until && before.is_dry_run == block.is_dry_run) {
            return true;
        }
        if before.is_none() && !self.has_room(&mut shard, now) {
            self.refused.fetch_add(1, Relaxed);
            return false;
        }
        if shard.blocks.insert(key, block).is_none() {
            self.count.fetch_add(1, Relaxed);
        }
        true
    }

    /// Ends the block of a key. Returns the block, if there was one.
    pub(super) fn remove(&self, key: Key) -> Option<KeyBlock> {
        let removed = self.shard(key).blocks.remove(&key);
        self.count.fetch_sub(usize::from(removed.is_some()), Relaxed);
        removed
    }

    /// Forgets blocks that are over.
    pub(super) fn sweep(&self, now: Timestamp) {
        if !self.are_none() {
            self.shards.iter().for_each(|shard| self.sweep_shard(&mut lock(shard), now));
        }
    }

    /// All blocks of keys that hold at `now`.
    pub(super) fn list(&self, now: Timestamp) -> Vec<(Key, KeyBlock)> {
        let mut all = Vec::new();
        for shard in &self.shards {
            let shard = lock(shard);
            let blocks = shard.blocks.iter().map(|(key, block)| (*key, *block));
            all.extend(blocks.filter(|(_, block)| block.until > now));
        }
        all
    }

    /// The number of blocks that hold at `now`, without those of dry runs.
    pub(super) fn count(&self, now: Timestamp) -> usize {
        let in_force = |block: &&KeyBlock| block.until > now && !block.is_dry_run;
        self.shards.iter().map(|shard| lock(shard).blocks.values().filter(in_force).count()).sum()
    }

    /// Keys that were not blocked, because too many already were.
    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    fn has_room(&self, shard: &mut Shard, now: Timestamp) -> bool {
        if self.count.load(Relaxed) >= KEY_BLOCKS_MAX && now.since(shard.swept_at) >= SWEEP_EVERY {
            self.sweep_shard(shard, now);
        }
        self.count.load(Relaxed) < KEY_BLOCKS_MAX
    }

    fn sweep_shard(&self, shard: &mut Shard, now: Timestamp) {
        let before = shard.blocks.len();
        shard.blocks.retain(|_, block| block.until > now);
        shard.swept_at = now;
        self.count.fetch_sub(before - shard.blocks.len(), Relaxed);
    }

    fn shard(&self, key: Key) -> MutexGuard<'_, Shard> {
        // The table and the throttled keys choose their shards by other bits.
        lock(&self.shards[(key.bits() >> 48) as usize % SHARDS])
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(60_000);

    fn until(seconds: u64) -> KeyBlock {
        KeyBlock { until: NOW + Duration::from_secs(seconds), slo: None, is_dry_run: false }
    }

    #[test]
    fn a_block_holds_until_its_end_and_a_later_end_wins() {
        let (blocks, key) = (KeyBlocks::default(), Key::from_bits(7));
        assert!(blocks.are_none() && blocks.put(key, until(10), NOW));
        assert!(blocks.put(key, until(5), NOW), "it ends no sooner for that");
        let at = |seconds| NOW + Duration::from_secs(seconds);
        assert_eq!(blocks.find(key, at(9)), Some(until(10)));
        assert_eq!((blocks.find(key, at(10)), blocks.count(at(10))), (None, 0));
        blocks.sweep(at(10));
        assert!(blocks.are_none());
        assert_eq!(blocks.remove(key), None);
    }

    #[test]
    fn a_block_of_a_dry_run_gives_way_to_a_real_one() {
        let (blocks, key) = (KeyBlocks::default(), Key::from_bits(7));
        blocks.put(key, KeyBlock { is_dry_run: true, ..until(100) }, NOW);
        assert_eq!((blocks.count(NOW), blocks.are_none()), (0, false));
        blocks.put(key, until(10), NOW);
        assert_eq!((blocks.find(key, NOW), blocks.count(NOW)), (Some(until(10)), 1));
    }

    #[test]
    fn memory_is_bounded_and_room_comes_back() {
        let blocks = KeyBlocks::default();
        // A multiplication spreads the keys over the shards, as their hash does.
        let key = |number: usize| Key::from_bits((number as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        for number in 0..KEY_BLOCKS_MAX {
            assert!(blocks.put(key(number), until(10), NOW));
        }
        assert!(!blocks.put(key(KEY_BLOCKS_MAX), until(10), NOW));
        assert!(blocks.put(key(0), until(20), NOW), "a known key needs no room");
        assert_eq!((blocks.refused(), blocks.count(NOW)), (1, KEY_BLOCKS_MAX));
        let later = NOW + Duration::from_secs(10);
        assert!(blocks.put(key(KEY_BLOCKS_MAX), until(30), later), "blocks that are over give way");
    }
}
