//! All blocks: the operators' blocks, by their fields, and the SLOs' blocks, by their keys.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::base::{Blocked, BlockedBy, Key, SloId, Target, Timestamp, Verdict, target::Fields};
use crate::policy::{BlockIndex, BlockTargetError, Case, Policy};
use crate::table::{BoundedMap, Expiring};
use crate::throttle::Change;
use crate::throttle::changes::Feed;

/// The maximum number of blocks that operators can set.
pub const OPERATOR_BLOCKS_MAX: usize = 10_000;

/// The maximum number of blocked keys, which take about 5 MB. Additional keys are not blocked.
pub const KEY_BLOCKS_MAX: usize = 100_000;

/// The error for a block that cannot be set. Its message gives the remedy.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BlockError {
    #[error(transparent)]
    Fault(#[from] BlockTargetError),
    #[error(
        "{OPERATOR_BLOCKS_MAX} blocks are in force, the maximum: end some with `slowlane block rm`, or block a network"
    )]
    TooMany,
}

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
    /// The `block` option of an SLO. None if the block comes from another node.
    Slo(Option<SloId>),
    /// The `block` option of an SLO with `dry_run=yes`: no request is actually refused.
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
            BlockOrigin::Slo(None) | BlockOrigin::DryRun(None) => f.write_str("an SLO on another node"),
        }
    }
}

impl Expiring for KeyBlock {
    fn is_over(&self, now: Timestamp) -> bool {
        self.until <= now
    }
}

/// The blocks of a throttle.
#[derive(Debug)]
pub(super) struct Blocks {
    operators: Mutex<Operators>,
    pub(super) keys: BoundedMap<KeyBlock>,
    pub(super) feed: Feed,
}

/// The blocks that operators have set. Each change is applied to the policy before the lock is released.
#[derive(Debug, Default)]
pub(super) struct Operators {
    pub(super) blocks: BTreeMap<Fields, Blocked>,
    numbers: u32,
}

impl Operators {
    /// Sets a block with a new number, if the policy can index it. A block that has already expired ends the
    /// previous block with the same fields.
    pub(super) fn set(
        &mut self,
        fields: Fields,
        until: Timestamp,
        now: Timestamp,
        (policy, index): (&Policy, &mut BlockIndex),
    ) -> Result<(), BlockError> {
        if until <= now {
            self.blocks.remove(&fields);
            return Ok(());
        }
        if !self.blocks.contains_key(&fields) && !self.has_room(now) {
            return Err(BlockError::TooMany);
        }
        self.numbers = self.numbers.wrapping_add(1);
        let blocked = Blocked { by: BlockedBy::Operator(self.numbers), until };
        policy.add_block(index, &fields, blocked)?;
        self.blocks.insert(fields, blocked);
        Ok(())
    }

    fn has_room(&mut self, now: Timestamp) -> bool {
        self.blocks.len() < OPERATOR_BLOCKS_MAX || self.sweep(now)
    }

    /// Drops expired blocks. Returns whether there were any.
    pub(super) fn sweep(&mut self, now: Timestamp) -> bool {
        let before = self.blocks.len();
        self.blocks.retain(|_, blocked| blocked.holds_at(now));
        self.blocks.len() < before
    }

    /// The blocks, indexed for a policy. A block for which the policy has no room is left out of the index.
    pub(super) fn index(&self, policy: &Policy) -> BlockIndex {
        let mut index = BlockIndex::default();
        for (fields, blocked) in &self.blocks {
            let _ = policy.add_block(&mut index, fields, *blocked);
        }
        index
    }
}

impl Blocks {
    pub(super) fn new() -> Blocks {
        let (operators, feed) = (Mutex::default(), Feed::default());
        Blocks { operators, keys: BoundedMap::new(KEY_BLOCKS_MAX), feed }
    }

    pub(super) fn operators(&self) -> MutexGuard<'_, Operators> {
        self.operators.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The block of a request's key under one of the request's SLOs. A dry run's block applies only to dry runs.
    #[inline]
    pub(super) fn find(&self, case: &Case<'_>, now: Timestamp) -> Option<Blocked> {
        if self.keys.is_empty() { None } else { self.of_case(case, now) }
    }

    #[cold]
    fn of_case(&self, case: &Case<'_>, now: Timestamp) -> Option<Blocked> {
        let block = self.of_key(case.key, now)?;
        let holds = !block.origin.is_dry_run() || case.slo.dry_run;
        holds.then_some(Blocked { by: BlockedBy::Slo(case.key), until: block.until })
    }

    /// Blocks the key of a request if the verdict is a refusal and the SLO has the `block` option.
    #[inline]
    pub(super) fn refused(&self, case: &Case<'_>, verdict: Verdict, now: Timestamp) {
        // Few verdicts are refusals, so the SLO's `block` option is rarely read.
        if !verdict.is_let_through()
            && let Some(block) = case.slo.block
        {
            let origin = if case.slo.dry_run { BlockOrigin::DryRun } else { BlockOrigin::Slo };
            self.begin(case, KeyBlock { until: now + block, origin: origin(Some(case.slo.id)) }, now);
        }
    }

    #[cold]
    fn begin(&self, case: &Case<'_>, block: KeyBlock, now: Timestamp) {
        if self.put(case.key, block, now) && !block.origin.is_dry_run() {
            self.feed.note(|| Change { target: Target::Key(case.key), until: Some(block.until) });
        }
    }

    /// The block of a key, even a dry run's block, unless it has ended by `now`.
    pub(super) fn of_key(&self, key: Key, now: Timestamp) -> Option<KeyBlock> {
        self.keys.at(key).get().filter(|block| !block.is_over(now)).copied()
    }

    /// Blocks a key, unless the key has a block of the same kind (dry run or not) that ends no sooner.
    /// Returns false if too many keys are blocked.
    pub(super) fn put(&self, key: Key, block: KeyBlock, now: Timestamp) -> bool {
        let mut place = self.keys.at(key);
        let is_dry_run = block.origin.is_dry_run();
        let stays =
            |before: &mut KeyBlock| before.until >= block.until && before.origin.is_dry_run() == is_dry_run;
        place.get().is_some_and(stays) || place.put(block, now)
    }

    /// All blocks of keys that have not ended by `now`, including dry runs' blocks.
    pub(super) fn of_keys(&self, now: Timestamp) -> impl Iterator<Item = (Key, KeyBlock)> {
        self.keys.pick(move |key, block| (!block.is_over(now)).then_some((key, *block))).flatten()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(60_000);

    /// The keys that are blocked, without those of dry runs.
    fn count(blocks: &Blocks, now: Timestamp) -> usize {
        blocks.of_keys(now).filter(|(_, block)| !block.origin.is_dry_run()).count()
    }

    fn until(seconds: u64) -> KeyBlock {
        KeyBlock { until: NOW + Duration::from_secs(seconds), origin: BlockOrigin::Slo(None) }
    }

    #[test]
    fn a_block_holds_until_its_end_and_a_later_end_wins() {
        let (blocks, key) = (Blocks::new(), Key::from_bits(7));
        assert!(blocks.keys.is_empty() && blocks.put(key, until(10), NOW));
        assert!(blocks.put(key, until(5), NOW), "it ends no sooner for that");
        let at = |seconds| NOW + Duration::from_secs(seconds);
        assert_eq!(blocks.of_key(key, at(9)), Some(until(10)));
        assert_eq!((blocks.of_key(key, at(10)), count(&blocks, at(10))), (None, 0));
        blocks.keys.sweep(at(10));
        assert!(blocks.keys.is_empty());
        assert_eq!(blocks.keys.at(key).remove(), None);
    }

    #[test]
    fn a_block_of_a_dry_run_gives_way_to_a_real_one() {
        let (blocks, key) = (Blocks::new(), Key::from_bits(7));
        blocks.put(key, KeyBlock { origin: BlockOrigin::DryRun(None), ..until(100) }, NOW);
        assert_eq!((count(&blocks, NOW), blocks.keys.is_empty()), (0, false));
        blocks.put(key, until(10), NOW);
        assert_eq!((blocks.of_key(key, NOW), count(&blocks, NOW)), (Some(until(10)), 1));
    }

    #[test]
    fn memory_is_bounded_and_room_comes_back() {
        let blocks = Blocks::new();
        // A multiplication spreads the keys over the shards, as their hash does.
        let key = |number: usize| Key::from_bits((number as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        for number in 0..KEY_BLOCKS_MAX {
            assert!(blocks.put(key(number), until(10), NOW));
        }
        assert!(!blocks.put(key(KEY_BLOCKS_MAX), until(10), NOW));
        assert!(blocks.put(key(0), until(20), NOW), "a known key needs no room");
        assert_eq!((blocks.keys.refused(), count(&blocks, NOW)), (1, KEY_BLOCKS_MAX));
        let later = NOW + Duration::from_secs(10);
        blocks.keys.sweep(later);
        assert!(blocks.put(key(KEY_BLOCKS_MAX), until(30), later), "blocks that are over give way");
    }
}
