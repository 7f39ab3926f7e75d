//! The verdicts of a request's SLOs.

use serde::{Deserialize, Serialize};

use crate::base::{COUNTED_MAX, Key, SloId, Timestamp, Verdict};

/// The verdict of one SLO on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judged {
    pub slo: SloId,
    /// The key under which the request was counted.
    pub key: Key,
    pub verdict: Verdict,
    /// How many more requests or whole units of work would pass at once, or
    /// [`UNCOUNTED`](crate::base::UNCOUNTED).
    pub remaining: u32,
    /// The amount that the SLO charges: a number of requests, or grains of work.
    pub cost: u32,
    /// Whether the SLO is a dry run: its verdict is counted, but does not affect the decision.
    pub is_dry_run: bool,
    pub ends: Ends,
    pub assurance: Assurance,
}

/// When an SLO learns of a request's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ends {
    /// Never: the SLO counts the request once, when it arrives.
    Never,
    /// The SLO counts the request until its end.
    InFlight,
    /// The SLO counts work, and the response states how much.
    WithResponse,
    /// The SLO counts work, which is known only when the whole response has been sent.
    WithStream,
}

impl Ends {
    /// Whether the SLO counts work.
    #[inline]
    pub const fn is_work(self) -> bool {
        matches!(self, Ends::WithResponse | Ends::WithStream)
    }
}

/// The effect of assured rates on a verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assurance {
    /// Whether the assured rate of this SLO is charged, because a later SLO would delay or refuse the request.
    pub carries: bool,
    /// Whether the assured rate of an earlier SLO overrules this verdict. The verdict is counted but has no effect.
    pub is_carried: bool,
}

impl Assurance {
    pub const NONE: Assurance = Assurance { carries: false, is_carried: false };
}

impl Judged {
    /// Whether the entry counts the request. If another SLO refuses the request, the count must be taken back.
    pub const fn is_counted(&self) -> bool {
        self.verdict.is_let_through() || self.assurance.is_carried
    }

    /// The verdict as it takes effect: `Pass` if an assured rate overrules it.
    pub const fn in_force(&self) -> Verdict {
        if self.assurance.is_carried { Verdict::Pass } else { self.verdict }
    }

    /// Whether the entry counts the request until its end.
    pub(super) const fn is_until_end(&self) -> bool {
        !matches!(self.ends, Ends::Never) && self.cost > 0 && self.is_counted()
    }

    /// The moment at which a request that arrived at `at` may proceed under this verdict.
    pub fn due(&self, at: Timestamp) -> Timestamp {
        at + self.verdict.wait()
    }
}

/// The maximum number of SLOs for one request: the SLOs of a chain, and the SLOs that lookups add.
pub const JUDGED_MAX: usize = COUNTED_MAX;

/// The maximum number of SLOs in a chain: a request's own SLO, and two that `also=` adds.
pub const CHAIN_MAX: usize = 3;
