//! The state of a throttle: the policy in force, the table, and the annexes beside it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use arc_swap::{ArcSwap, Guard};

use crate::base::key::Key;
use crate::base::verdict::Judged;
use crate::law::Judgement;
use crate::policy::{Case, Policy};
use crate::table::{Entry, Sizing, Table, Usage};
use crate::throttle::annexes::Annexes;

/// The policy in force, the table, and the annexes beside it.
#[derive(Debug)]
pub struct Throttle {
    policy: ArcSwap<Policy>,
    pub(super) table: Table,
    pub(super) annexes: Annexes,
    fallbacks: AtomicU64,
}

/// The policy in force at the time of the call. Holding it keeps an old policy alive; drop it promptly.
pub type InForce = Guard<Arc<Policy>>;

/// Numbers of the annexes for the operator to watch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnnexUsage {
    pub bytes: u64,
    /// Requests judged by a simpler law because there was no room, or whose ticket was not remembered.
    pub fallbacks: u64,
}

impl Throttle {
    /// The annexes take up at most `annex_bytes_max` bytes beside the table.
    pub fn new(policy: Policy, sizing: Sizing, annex_bytes_max: usize) -> Throttle {
        Throttle {
            policy: ArcSwap::from_pointee(policy),
            table: Table::new(sizing),
            annexes: Annexes::new(annex_bytes_max),
            fallbacks: AtomicU64::new(0),
        }
    }

    /// The policy in force.
    pub fn policy(&self) -> InForce {
        self.policy.load()
    }

    /// Puts another policy in force and returns the old one. The table stays as it is.
    pub fn replace(&self, policy: Policy) -> Arc<Policy> {
        self.policy.swap(Arc::new(policy))
    }

    /// Forgets the entry of a key and its annex, if `is_to_go` agrees.
    pub fn forget(&self, key: Key, is_to_go: impl FnOnce(&Entry) -> bool) {
        if self.table.remove(key, is_to_go) {
            self.annexes.remove(key);
        }
    }

    pub fn table(&self) -> &Table {
        &self.table
    }

    pub fn usage(&self) -> Usage {
        self.table.usage()
    }

    pub fn annex_usage(&self) -> AnnexUsage {
        AnnexUsage { bytes: self.annexes.bytes(), fallbacks: self.fallbacks.load(Relaxed) }
    }

    /// Adds the SLO to a judgement, and counts a fallback.
    pub(super) fn judged(&self, case: &Case<'_>, judgement: Judgement) -> Judged {
        if judgement.fell_back {
            self.count_fallback();
        }
        judged(case, judgement)
    }

    /// Counts a request for which the annexes had no room.
    pub(super) fn count_fallback(&self) {
        self.fallbacks.fetch_add(1, Relaxed);
    }
}

/// Adds the SLO to a judgement.
pub(super) fn judged(case: &Case<'_>, judgement: Judgement) -> Judged {
    Judged {
        slo: case.slo.id,
        key: case.key,
        verdict: judgement.verdict,
        remaining: judgement.remaining,
        is_dry_run: case.slo.dry_run,
        counts_end: case.slo.law.counts_ends(),
    }
}
