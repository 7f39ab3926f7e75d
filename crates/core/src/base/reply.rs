//! The reply: the part of a decision that a proxy gets.

use serde::{Deserialize, Serialize};

use crate::base::{Decision, Ruling, SloId, Ticket, Verdict};

/// The part of a decision that a proxy gets. It is much smaller than a decision, because replies are remembered.
///
/// ```
/// # use slowlane_core::base::{Assurance, Ends, Judged, Key, SloId, Timestamp};
/// use slowlane_core::base::{Decision, Reply, Verdict};
/// # let (slo, key, assurance) = (SloId::DEFAULT, Key::from_bits(7), Assurance::NONE);
/// # let judged =
/// #     Judged { slo, key, verdict: Verdict::Pass, remaining: 9, cost: 1, is_dry_run: false, ends: Ends::InFlight, assurance };
/// let decision = Decision::of(&[judged], 1, Timestamp::from_millis(1));
/// let reply = Reply::to(&decision);
/// assert_eq!((reply.verdict, reply.remaining), (Verdict::Pass, 9));
/// assert_eq!(reply.ticket.as_deref(), decision.ticket().as_ref());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    pub verdict: Verdict,
    pub slo: SloId,
    /// The number of further requests that would pass at once.
    pub remaining: u32,
    /// Few laws count a request until its end.
    pub ticket: Option<Box<Ticket>>,
}

impl Reply {
    pub fn to(decision: &Decision) -> Reply {
        let Ruling { verdict, slo, remaining, .. } = **decision;
        Reply { verdict, slo, remaining, ticket: decision.ticket().map(Box::new) }
    }
}
