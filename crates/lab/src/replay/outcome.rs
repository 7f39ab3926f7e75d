//! The outcome of a replay: verdicts of each policy, by SLO and key, with notes on their reliability.

use crate::access_log::LogOutcome;
use crate::replay::{KeyRow, ReplayTally, Series};
use slowlane_core::base::{Timestamp, date};
use slowlane_core::policy::Slo;

/// The outcome over all logs.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub logs: Vec<LogOutcome>,
    pub begun_ns: u64,
    pub ended_ns: u64,
    /// The policy, and the one that it is compared with.
    pub sides: Vec<Side>,
    /// By verdict of the first policy (pass, delay, deny): how often the second gave each verdict.
    pub changes: Option<[[u64; 3]; 3]>,
    /// Notes on the reliability of the figures.
    pub notes: Vec<String>,
}

/// The outcome under one policy.
#[derive(Clone, Debug)]
pub struct Side {
    pub name: String,
    /// The verdicts that the proxies would have got.
    pub total: ReplayTally,
    /// The verdicts of each SLO that was used, including those with `dry_run=yes`.
    pub slos: Vec<(Slo, ReplayTally)>,
    /// The number of keys with requests delayed or denied, and the first of them. With two policies: the keys on
    /// which they differ.
    pub throttled_keys: usize,
    pub keys: Vec<KeyRow>,
    pub series: Series,
}

impl Outcome {
    pub fn requests(&self) -> u64 {
        self.sides.first().map_or(0, |side| side.total.counts.requests)
    }

    /// The first and the last moment, to the second.
    pub(super) fn span(&self) -> [String; 2] {
        [self.begun_ns, self.ended_ns].map(|at_ns| date::written(Timestamp::from_nanos(at_ns)))
    }
}
