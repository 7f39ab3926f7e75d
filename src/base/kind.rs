//! The three kinds of verdict, and the name of each.

use serde::{Deserialize, Serialize};

use crate::base::verdict::Verdict;

/// A verdict without its numbers: what counters, filters and reports sort by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Pass,
    Delay,
    Deny,
}

impl Kind {
    /// By strictness. Arrays that count by kind are in this order.
    pub const ALL: [Kind; 3] = [Kind::Pass, Kind::Delay, Kind::Deny];

    pub const fn of(verdict: Verdict) -> Kind {
        match verdict {
            Verdict::Pass => Kind::Pass,
            Verdict::Delay(_) => Kind::Delay,
            Verdict::Deny { .. } => Kind::Deny,
        }
    }

    /// Its name in variables, headers, metrics, logs and reports.
    ///
    /// ```
    /// use slowlane::base::{kind::Kind, verdict::Verdict};
    /// assert_eq!(Kind::of(Verdict::Deny { retry_after_s: 1 }).name(), "deny");
    /// assert_eq!(Kind::ALL.map(Kind::name), ["pass", "delay", "deny"]);
    /// ```
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Pass => "pass",
            Kind::Delay => "delay",
            Kind::Deny => "deny",
        }
    }

    /// Its place in [`Kind::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }
}
