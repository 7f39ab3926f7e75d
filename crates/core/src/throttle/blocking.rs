//! Setting, ending and listing blocks.

use serde::{Deserialize, Serialize};

use crate::base::{Blocked, BlockedBy, DURATION_MAX, Key, Target, Timestamp, target::Fields};
use crate::policy::BlockIndex;
use crate::throttle::blocks::{KeyBlock, Operators};
use crate::throttle::{BlockError, BlockOrigin, Change, Changes, InForce, Receipt, Throttle};

/// A block by fields or by key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    pub target: Target,
    /// The first moment after the block.
    pub until: Timestamp,
    pub origin: BlockOrigin,
}

/// Counters of blocks for operators.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockUsage {
    pub operators: usize,
    /// The number of keys that SLOs have blocked, not counting dry runs.
    pub keys: usize,
    /// How often a key was not blocked because too many keys were already blocked.
    #[serde(skip)]
    pub refused: u64,
}

impl Throttle {
    /// Refuses all requests with these fields until the moment `until`. A second block of the same fields replaces the
    /// first. Returns a receipt if other nodes are to be notified.
    ///
    /// ```
    /// # use slowlane_core::{base::{Request, Sample, Value}, policy::Policy, table::Sizing, throttle::Throttle};
    /// # use slowlane_core::base::{Timestamp, Verdict};
    /// # use std::time::Duration;
    /// # let sizing = Sizing { entries_max: 1_000, expire: Duration::from_secs(30) };
    /// let throttle = Throttle::new(Policy::builtin(), sizing, 0);
    /// let (now, until) = (Timestamp::from_millis(60_000), Timestamp::from_millis(70_000));
    /// let fields = throttle.policy().block_fields([("source", "192.0.2.66")]).unwrap();
    /// throttle.block(fields, until, now).unwrap();
    /// let mut request = Request::new();
    /// request.push(b"source", Value::Text(b"192.0.2.66"));
    /// let verdict = |now| throttle.decide_one(&request, now, Sample::MIDDLE).verdict;
    /// assert_eq!(verdict(now), Verdict::Deny { retry_after_s: 10 });
    /// assert_eq!(verdict(until), Verdict::Pass);
    /// ```
    ///
    /// # Errors
    /// There are too many blocks, or too many distinct sets of fields.
    pub fn block(
        &self,
        fields: Fields,
        until: Timestamp,
        now: Timestamp,
    ) -> Result<Option<Receipt>, BlockError> {
        let mut operators = self.blocks.operators();
        let (policy, mut index) = self.index(&operators);
        operators.set(fields.clone(), until, now, (&policy, &mut index))?;
        let receipt = self.blocks.feed.note(|| Change { target: Target::Fields(fields), until: Some(until) });
        self.put_in_force(&operators);
        Ok(receipt)
    }

    /// Restores blocks of any origin, without notifying other nodes. Returns the number of blocks that found no room.
    pub fn block_again(&self, blocks: impl IntoIterator<Item = Block>, now: Timestamp) -> usize {
        let blocks = blocks.into_iter();
        self.put_all(blocks.map(|Block { target, until, origin }| (target, Some(until), origin)), now)
    }

    /// Ends a block. Returns false if there was none.
    pub fn unblock(&self, target: &Target) -> bool {
        let mut operators = self.blocks.operators();
        let was_there = match target {
            Target::Key(key) => self.blocks.keys.at(*key).remove().is_some(),
            Target::Fields(fields) => operators.blocks.remove(fields).is_some(),
        };
        if was_there {
            self.blocks.feed.note(|| Change { target: target.clone(), until: None });
            self.put_in_force(&operators);
        }
        was_there
    }

    /// The blocks that have not ended, including dry runs' blocks: all blocks set by operators, sorted by
    /// their fields, then the blocks of keys that end first, at most `keys_max` of them.
    pub fn blocks(&self, keys_max: usize, now: Timestamp) -> Vec<Block> {
        let operators = self.blocks.operators();
        let in_force = operators.blocks.iter().filter(|(_, blocked)| blocked.holds_at(now));
        let mut blocks: Vec<Block> = in_force
            .map(|(fields, blocked)| Block {
                target: Target::Fields(fields.clone()),
                until: blocked.until,
                origin: BlockOrigin::Operator,
            })
            .collect();
        drop(operators);
        let mut keys: Vec<(Key, KeyBlock)> = self.blocks.of_keys(now).collect();
        keys.sort_unstable_by_key(|(key, block)| (block.until, *key));
        blocks.extend(keys.into_iter().take(keys_max).map(|(key, block)| Block::of_key(key, &block)));
        blocks
    }

    /// The target of the operator block with this number, if the block is in force at `now`.
    pub fn operator_block(&self, number: u32, now: Timestamp) -> Option<Target> {
        let operators = self.blocks.operators();
        let is_it = |blocked: &Blocked| BlockedBy::Operator(number) == blocked.by && blocked.holds_at(now);
        let found = operators.blocks.iter().find(|(_, blocked)| is_it(blocked));
        found.map(|(fields, _)| Target::Fields(fields.clone()))
    }

    /// The block of a key, even a dry run's block, unless it has ended by `now`.
    pub fn key_block(&self, key: Key, now: Timestamp) -> Option<Block> {
        self.blocks.of_key(key, now).map(|block| Block::of_key(key, &block))
    }

    /// Drops expired blocks.
    pub(super) fn sweep_blocks(&self, now: Timestamp) {
        let mut operators = self.blocks.operators();
        if operators.sweep(now) {
            self.put_in_force(&operators);
        }
        drop(operators);
        self.blocks.keys.sweep(now);
    }

    pub fn block_usage(&self, now: Timestamp) -> BlockUsage {
        let operators = self.blocks.operators();
        BlockUsage {
            operators: operators.blocks.values().filter(|blocked| blocked.holds_at(now)).count(),
            keys: self.blocks.of_keys(now).filter(|(_, block)| !block.origin.is_dry_run()).count(),
            refused: self.blocks.keys.refused(),
        }
    }

    /// The changes to blocks since the last call, for a store that passes them to other nodes. Changes are
    /// recorded from the first call on.
    pub fn take_changes(&self) -> Changes {
        self.blocks.feed.take()
    }

    /// Applies changes from other nodes, without passing them on again. A block that has already expired ends
    /// an earlier block of the same target. Returns the number of blocks that found no room.
    pub fn apply(&self, changes: impl IntoIterator<Item = Change>, now: Timestamp) -> usize {
        let changes = changes.into_iter();
        self.put_all(changes.map(|Change { target, until }| (target, until, BlockOrigin::Slo(None))), now)
    }

    /// Sets or ends blocks. Returns the number of blocks that found no room.
    fn put_all(
        &self,
        blocks: impl Iterator<Item = (Target, Option<Timestamp>, BlockOrigin)>,
        now: Timestamp,
    ) -> usize {
        let mut operators = self.blocks.operators();
        let (policy, mut index) = self.index(&operators);
        let mut without_room = 0;
        for (target, until, origin) in blocks {
            // Blocks from other nodes may be wrong, so none may last longer than a block set on this node can.
            let until = until.filter(|&until| until > now).map(|until| until.min(now + DURATION_MAX));
            let is_done = match (target, until) {
                (Target::Fields(fields), Some(until)) => {
                    operators.set(fields, until, now, (&policy, &mut index)).is_ok()
                }
                (Target::Fields(fields), None) => {
                    operators.blocks.remove(&fields);
                    true
                }
                (Target::Key(key), Some(until)) => self.blocks.put(key, KeyBlock { until, origin }, now),
                (Target::Key(key), None) => {
                    self.blocks.keys.at(key).remove();
                    true
                }
            };
            without_room += usize::from(!is_done);
        }
        self.put_in_force(&operators);
        without_room
    }

    /// The policy in force, and an index of the operators' blocks, to which more blocks can be added.
    fn index(&self, operators: &Operators) -> (InForce, BlockIndex) {
        let policy = self.policy();
        let index = operators.index(&policy);
        (policy, index)
    }

    fn put_in_force(&self, operators: &Operators) {
        let (policy, index) = self.index(operators);
        policy.put_blocks(index);
    }
}

impl Block {
    /// Whether the block refuses requests. A dry run's block does not.
    pub fn is_in_force(&self) -> bool {
        !self.origin.is_dry_run()
    }

    fn of_key(key: Key, block: &KeyBlock) -> Block {
        Block { target: Target::Key(key), until: block.until, origin: block.origin }
    }
}
