//! The three kinds of verdict.

use serde::{Deserialize, Serialize};

/// A verdict without its numbers, for counters, filters and reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Pass,
    Delay,
    Deny,
}

impl Kind {
    /// All kinds, ordered by strictness. Arrays that count by kind have this order.
    pub const ALL: [Kind; 3] = [Kind::Pass, Kind::Delay, Kind::Deny];

    /// In the order of [`ALL`](Kind::ALL).
    const NAMES: [&'static str; 3] = ["pass", "delay", "deny"];

    /// Its name in variables, headers, metrics, logs and reports.
    ///
    /// ```
    /// use slowlane_core::base::Kind;
    /// assert_eq!(Kind::ALL.map(Kind::name), ["pass", "delay", "deny"]);
    /// ```
    pub const fn name(self) -> &'static str {
        Kind::NAMES[self as usize]
    }

    /// Its index in [`Kind::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }
}
