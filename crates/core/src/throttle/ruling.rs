//! The ruling on a request under one SLO: of its law, or of a block before it.

use crate::base::blocked::{Blocked, BlockedBy};
use crate::base::time::Timestamp;
use crate::base::verdict::{Assurance, Judged, Verdict};
use crate::law::Judgement;
use crate::policy::Case;

/// The judgement of a law, or that of the block for which the law was not asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ruling {
    pub(super) judgement: Judgement,
    /// The end of the block of the key.
    blocked_until: Option<Timestamp>,
}

impl Ruling {
    #[inline]
    pub(super) fn of_law(judgement: Judgement) -> Ruling {
        Ruling { judgement, blocked_until: None }
    }

    /// Refuses a request for the rest of a block.
    pub(super) fn of_block(blocked: Blocked, now: Timestamp) -> Ruling {
        let verdict = Verdict::Deny { retry_after_s: blocked.rest_s(now) };
        let judgement = Judgement { verdict, remaining: 0, fell_back: false };
        Ruling { judgement, blocked_until: Some(blocked.until) }
    }

    /// Whether the law was not asked.
    pub(super) fn is_block(&self) -> bool {
        self.blocked_until.is_some()
    }

    /// The block of the key that decides. One of a dry run decides nothing.
    #[inline]
    pub(super) fn blocked(&self, case: &Case<'_>) -> Option<Blocked> {
        let until = self.blocked_until.filter(|_| !case.slo.dry_run)?;
        Some(Blocked { by: BlockedBy::Slo(case.key), until })
    }

    /// Adds the SLO.
    #[inline]
    pub(super) fn judged(&self, case: &Case<'_>) -> Judged {
        Judged {
            slo: case.slo.id,
            key: case.key,
            verdict: self.judgement.verdict,
            remaining: self.judgement.remaining,
            is_dry_run: case.slo.dry_run,
            counts_end: case.slo.law.counts_ends(),
            assurance: Assurance::NONE,
        }
    }

    /// Adds the SLO under the block of an operator, which also holds under a dry run.
    pub(super) fn judged_by_operator(&self, case: &Case<'_>) -> Judged {
        Judged { is_dry_run: false, ..self.judged(case) }
    }
}
