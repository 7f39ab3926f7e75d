//! The debt of a bucket: requests that it refuses, and that pass all the same.

use std::time::Duration;

/// The most debt beyond the longest delay. Rates assured in sum to no more than the bucket's never reach it, unless
/// their bursts take longer than this to come back.
const DEBT_MAX: Duration = Duration::from_secs(10);

/// The most debt beyond the longest delay, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Debt {
    pub(super) max_ns: u64,
}

impl Debt {
    /// No debt: only requests that the law lets through are charged.
    pub(super) const NONE: Debt = Debt { max_ns: 0 };

    /// Debt as of requests that an assured rate carries past the law.
    pub(super) const OWED: Debt = Debt { max_ns: DEBT_MAX.as_nanos() as u64 };

    pub(super) const fn is_none(self) -> bool {
        self.max_ns == 0
    }
}
