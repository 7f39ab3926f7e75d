//! The keys that SLOs have blocked.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::base::{Key, SloId, Timestamp};
use crate::table::{BoundedMap, Expiring};

/// The maximum number of blocked keys, about 5 MB. Further keys are not blocked.
pub const KEY_BLOCKS_MAX: usize = 100_000;

/// The block of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyBlock {
    pub(super) until: Timestamp,
    pub(super) origin: BlockOrigin,
}

/// The origin of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BlockOrigin {
    Operator,
    /// The option `block` of an SLO. None if the block comes from another node.
    Slo(Option<SloId>),
    /// The same for an SLO with `dry_run=yes`: it blocks nothing.
    DryRun(Option<SloId>),
}

impl BlockOrigin {
    /// Whether the block affects dry runs only.
    pub fn is_dry_run(self) -> bool {
        matches!(self, BlockOrigin::DryRun(_))
    }
}

impl fmt::Display for BlockOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BlockOrigin::Operator => f.write_str("an operator"),
            BlockOrigin::Slo(Some(slo)) => write!(f, "SLO {slo}"),
            BlockOrigin::DryRun(Some(slo)) => write!(f, "the dry run of SLO {slo}"),
            BlockOrigin::Slo(None) | BlockOrigin::DryRun(None) => f.write_str("an SLO elsewhere"),
        }
    }
}

impl Expiring for KeyBlock {
    fn is_over(&self, now: Timestamp) -> bool {
        self.until <= now
    }
}

/// Blocks by key.
#[derive(Debug)]
pub(super) struct KeyBlocks(BoundedMap<KeyBlock>);

impl Default for KeyBlocks {
    fn default() -> KeyBlocks {
        KeyBlocks(BoundedMap::new(KEY_BLOCKS_MAX))
    }
}

impl KeyBlocks {
    /// Whether no key is blocked.
    #[inline]
    pub(super) fn are_none(&self) -> bool {
        self.0.is_empty()
    }

    /// The block of a key, if one is in force at `now`.
    pub(super) fn find(&self, key: Key, now: Timestamp) -> Option<KeyBlock> {
        self.0.at(key).get().filter(|block| !block.is_over(now)).copied()
    }

    /// Blocks a key. A block that ends later stays, unless a dry run set it. False if there are too many.
    pub(super) fn put(&self, key: Key, block: KeyBlock, now: Timestamp) -> bool {
        let mut place = self.0.at(key);
        let is_dry_run = block.origin.is_dry_run();
        let stays =
            |before: &mut KeyBlock| before.until >= block.until && before.origin.is_dry_run() == is_dry_run;
        place.get().is_some_and(stays) || place.put(block, now)
    }

    /// Ends the block of a key. Returns the block, if there was one.
    pub(super) fn remove(&self, key: Key) -> Option<KeyBlock> {
        self.0.at(key).remove()
    }

    /// Drops expired blocks.
    pub(super) fn sweep(&self, now: Timestamp) {
        self.0.sweep(now);
    }

    /// All blocks of keys in force at `now`.
    pub(super) fn list(&self, now: Timestamp) -> Vec<(Key, KeyBlock)> {
        self.0.pick(|key, block| (!block.is_over(now)).then_some((key, *block))).flatten().collect()
    }

    /// The number of blocks in force at `now`, without those of dry runs.
    pub(super) fn count(&self, now: Timestamp) -> usize {
        let in_force = |block: &KeyBlock| !block.is_over(now) && !block.origin.is_dry_run();
        self.0.pick(|_, block| in_force(block).then_some(())).map(|blocks| blocks.len()).sum()
    }

    /// Keys that were not blocked, because too many already were.
    pub(super) fn refused(&self) -> u64 {
        self.0.refused()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(60_000);

    fn until(seconds: u64) -> KeyBlock {
        KeyBlock { until: NOW + Duration::from_secs(seconds), origin: BlockOrigin::Slo(None) }
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
        blocks.put(key, KeyBlock { origin: BlockOrigin::DryRun(None), ..until(100) }, NOW);
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
        blocks.sweep(later);
        assert!(blocks.put(key(KEY_BLOCKS_MAX), until(30), later), "blocks that are over give way");
    }
}
