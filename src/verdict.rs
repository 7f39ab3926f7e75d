//! What a proxy is told: pass, wait, or refuse.

use std::time::Duration;

use crate::key::Key;
use crate::slo_id::SloId;

/// The judgement of a law.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Let it through at once.
    Pass,
    /// Let it through after this long; never zero.
    Delay(Duration),
    /// Refuse it with a 429; asking again is of use after this many seconds, at least one.
    Deny { retry_after_s: u32 },
}

impl Verdict {
    /// `Delay(wait)`, or `Pass` where there is nothing to wait for.
    pub fn after(wait: Duration) -> Verdict {
        if wait.is_zero() { Verdict::Pass } else { Verdict::Delay(wait) }
    }

    /// The name it goes by in variables, headers and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Verdict::Pass => "pass",
            Verdict::Delay(_) => "delay",
            Verdict::Deny { .. } => "deny",
        }
    }

    /// The delay in whole milliseconds, rounded up so that no request is early; 0 when there is none.
    ///
    /// ```
    /// use std::time::Duration;
    /// use slowlane::verdict::Verdict;
    /// assert_eq!(Verdict::Delay(Duration::from_micros(19_400)).delay_ms(), 20);
    /// assert_eq!(Verdict::Pass.delay_ms(), 0);
    /// ```
    pub fn delay_ms(self) -> u64 {
        match self {
            Verdict::Delay(wait) => wait.as_nanos().div_ceil(1_000_000) as u64,
            Verdict::Pass | Verdict::Deny { .. } => 0,
        }
    }
}

/// A verdict, the SLO that asked for it, and the key that it was counted under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    pub verdict: Verdict,
    pub slo: SloId,
    pub key: Key,
}
