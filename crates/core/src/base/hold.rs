//! Limits on held answers: how many may be held, for how long, and what the answer is when there are too many.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::Verdict;

/// The answer to a delayed request when no more answers may be held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WhenFull {
    #[default]
    Pass,
    Deny,
}

/// The `Retry-After`, in seconds, of a request that is denied because no more answers may be held.
const WHEN_FULL_RETRY_S: u32 = 1;

impl WhenFull {
    /// The verdict that replaces the delay.
    pub fn verdict(self) -> Verdict {
        match self {
            WhenFull::Pass => Verdict::Pass,
            WhenFull::Deny => Verdict::Deny { retry_after_s: WHEN_FULL_RETRY_S },
        }
    }
}

/// The longest hold that the shipped HAProxy files allow: their `timeout processing` minus a second.
pub const HOLD_SHIPPED: Duration = Duration::from_secs(20);

/// The number of answers that may be held at once, the longest hold, and the answer beyond that number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldLimits {
    pub holds_max: usize,
    /// The longest hold. Longer delays are shortened to this time.
    pub hold_max: Duration,
    pub when_full: WhenFull,
}
