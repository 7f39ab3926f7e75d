//! All blocks: those of operators by their fields, and those of SLOs by their keys.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use thiserror::Error;

use crate::base::{Blocked, BlockedBy, Target, Timestamp, Verdict, target::Fields};
use crate::policy::{BlockIndex, BlockTargetError, Case, Policy};
use crate::throttle::changes::Feed;
use crate::throttle::key_blocks::{KeyBlock, KeyBlocks};
use crate::throttle::{BlockOrigin, Change};

/// The maximum number of blocks that operators can set.
pub const OPERATOR_BLOCKS_MAX: usize = 10_000;

/// A block that cannot be set. The message gives the remedy.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BlockError {
    #[error(transparent)]
    Fault(#[from] BlockTargetError),
    #[error(
        "{OPERATOR_BLOCKS_MAX} blocks are in force, the maximum: end some with `slowlane block rm`, or block a network"
    )]
    TooMany,
}

/// The blocks of a throttle.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    pub(super) operators: Mutex<Operators>,
    pub(super) keys: KeyBlocks,
    pub(super) feed: Feed,
}

/// The blocks that operators have set. Each change is put in force in the policy before the lock is released.
#[derive(Debug, Default)]
pub(super) struct Operators {
    pub(super) blocks: BTreeMap<Fields, Blocked>,
    numbers: u32,
}

impl Operators {
    /// Sets a block with its own number, if `add` can index it. A block that has already expired ends the previous
    /// one.
    pub(super) fn set(
        &mut self,
        fields: Fields,
        until: Timestamp,
        now: Timestamp,
        add: impl FnOnce(&Fields, Blocked) -> Result<(), BlockTargetError>,
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
        add(&fields, blocked)?;
        self.blocks.insert(fields, blocked);
        Ok(())
    }

    fn has_room(&mut self, now: Timestamp) -> bool {
        self.blocks.len() < OPERATOR_BLOCKS_MAX || self.sweep(now)
    }

    /// Drops expired blocks. True if there were any.
    pub(super) fn sweep(&mut self, now: Timestamp) -> bool {
        let before = self.blocks.len();
        self.blocks.retain(|_, blocked| blocked.holds_at(now));
        self.blocks.len() < before
    }

    /// The blocks, indexed for a policy. A block for which the policy has no room is dropped.
    pub(super) fn index(&self, policy: &Policy) -> BlockIndex {
        let mut index = BlockIndex::default();
        for (fields, blocked) in &self.blocks {
            let _ = policy.add_block(&mut index, fields, *blocked);
        }
        index
    }
}

impl Blocks {
    pub(super) fn operators(&self) -> MutexGuard<'_, Operators> {
        self.operators.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The block of a request's key under one of its SLOs.
    #[inline]
    pub(super) fn find(&self, case: &Case<'_>, now: Timestamp) -> Option<Blocked> {
        if self.keys.are_none() { None } else { self.of_key(case, now) }
    }

    #[cold]
    fn of_key(&self, case: &Case<'_>, now: Timestamp) -> Option<Blocked> {
        let block = self.keys.find(case.key, now)?;
        let holds = !block.origin.is_dry_run() || case.slo.dry_run;
        holds.then_some(Blocked { by: BlockedBy::Slo(case.key), until: block.until })
    }

    /// Blocks the key of a request that its SLO has refused, if the SLO has the option.
    #[inline]
    pub(super) fn refused(&self, case: &Case<'_>, verdict: Verdict, now: Timestamp) {
        // Few verdicts are refusals, so the option of the SLO is rarely read.
        if !verdict.is_let_through()
            && let Some(block) = case.slo.block
        {
            let origin = if case.slo.dry_run { BlockOrigin::DryRun } else { BlockOrigin::Slo };
            self.begin(case, KeyBlock { until: now + block, origin: origin(Some(case.slo.id)) }, now);
        }
    }

    #[cold]
    fn begin(&self, case: &Case<'_>, block: KeyBlock, now: Timestamp) {
        if self.keys.put(case.key, block, now) && !block.origin.is_dry_run() {
            self.feed.note_key(|| Change { target: Target::Key(case.key), until: Some(block.until) });
        }
    }
}
