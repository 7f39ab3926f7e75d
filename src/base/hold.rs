//! The bounds of holding answers, and what happens beyond them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::verdict::Verdict;

/// The fate of a request that cannot be held because too many already are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WhenFull {
    #[default]
    Pass,
    Deny,
}

/// A refusal in place of a hold asks the client to come back soon.
const WHEN_FULL_RETRY_S: u32 = 1;

impl WhenFull {
    pub fn verdict(self) -> Verdict {
        match self {
            WhenFull::Pass => Verdict::Pass,
            WhenFull::Deny => Verdict::Deny { retry_after_s: WHEN_FULL_RETRY_S },
        }
    }
}

/// How many answers may be held at once, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldLimits {
    pub holds_max: usize,
    /// Longer holds are cut to this.
    pub hold_max: Duration,
    pub when_full: WhenFull,
}
