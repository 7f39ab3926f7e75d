//! The three kinds of verdict, and the name of each.

use serde::{Deserialize, Serialize};

/// A verdict without its numbers. Counters, filters and reports sort by it.
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

    /// Its name in variables, headers, metrics, logs and reports.
    ///
    /// ```
    /// use slowlane::base::kind::Kind;
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
