//! Verdicts on requests: pass, delay, or deny.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A law's verdict on one request. Verdicts are ordered by strictness.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Verdict {
    /// Let the request through at once.
    Pass,
    /// Let the request through after this time, which is never zero.
    Delay(Duration),
    /// Refuse the request with status 429. `retry_after_s` is at least 1 second.
    Deny { retry_after_s: u32 },
}

impl Verdict {
    /// The `retry_after_s` of a request that can never pass, because the rate is 0 or the request costs more
    /// than the SLO ever admits. The value is one day, because the SLO may change within a day.
    pub const NEVER_S: u32 = 86_400;

    /// `Delay(wait)`, or `Pass` if `wait` is zero.
    pub fn after(wait: Duration) -> Verdict {
        if wait.is_zero() { Verdict::Pass } else { Verdict::Delay(wait) }
    }

    /// Whether the request passes, at once or after a delay.
    pub const fn is_let_through(self) -> bool {
        !matches!(self, Verdict::Deny { .. })
    }

    /// The delay, or zero if there is none.
    pub const fn wait(self) -> Duration {
        match self {
            Verdict::Delay(wait) => wait,
            Verdict::Pass | Verdict::Deny { .. } => Duration::ZERO,
        }
    }

    pub const fn kind(self) -> Kind {
        match self {
            Verdict::Pass => Kind::Pass,
            Verdict::Delay(_) => Kind::Delay,
            Verdict::Deny { .. } => Kind::Deny,
        }
    }

    /// The name of the verdict in variables, headers and metrics.
    pub const fn name(self) -> &'static str {
        self.kind().name()
    }

    /// The delay in milliseconds, rounded up so that no request passes early; 0 if there is no delay.
    ///
    /// ```
    /// use std::time::Duration;
    /// use slowlane_core::base::Verdict;
    /// assert_eq!(Verdict::Delay(Duration::from_micros(19_400)).delay_ms(), 20);
    /// assert_eq!(Verdict::Pass.delay_ms(), 0);
    /// ```
    pub fn delay_ms(self) -> u64 {
        self.wait().as_nanos().div_ceil(1_000_000) as u64
    }
}

/// A verdict without its numbers, for counters, filters and reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Pass,
    Delay,
    Deny,
}

impl Kind {
    /// All kinds, ordered by strictness. Arrays of counts by kind use this order.
    pub const ALL: [Kind; 3] = [Kind::Pass, Kind::Delay, Kind::Deny];

    /// The names, in the order of [`ALL`](Kind::ALL).
    const NAMES: [&'static str; 3] = ["pass", "delay", "deny"];

    /// The name of the kind in variables, headers, metrics, logs and reports.
    ///
    /// ```
    /// use slowlane_core::base::Kind;
    /// assert_eq!(Kind::ALL.map(Kind::name), ["pass", "delay", "deny"]);
    /// ```
    pub const fn name(self) -> &'static str {
        Kind::NAMES[self as usize]
    }

    /// The kind's index in [`Kind::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// The `remaining` of an SLO that did not count the request: any number of requests would pass at once.
pub const UNCOUNTED: u32 = u32::MAX;

/// The number of remaining requests to display. None if no limit counted the request.
///
/// ```
/// use slowlane_core::base::{UNCOUNTED, counted};
/// assert_eq!((counted(4), counted(UNCOUNTED)), (Some(4), None));
/// ```
#[inline]
pub fn counted(remaining: u32) -> Option<u32> {
    (remaining != UNCOUNTED).then_some(remaining)
}
