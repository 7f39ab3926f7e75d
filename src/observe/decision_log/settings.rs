//! Settings of the decision log.

use std::path::PathBuf;

use slowlane_core::base::Kind;

/// The path that means standard output.
pub(crate) const STDOUT: &str = "-";

/// The destination of the log, and the decisions to log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DecisionLogSettings {
    /// [`STDOUT`] or a file.
    pub path: PathBuf,
    pub sample: Sample,
    /// The maximum number of lines per second.
    pub per_second: u32,
    pub kinds: Vec<Kind>,
}

/// The fraction of the decisions that is logged, as a random sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    /// The largest draw of 64 random bits that is logged.
    most: u64,
}

impl Sample {
    /// A fraction of more than 0 and at most 1; `None` outside this range.
    pub(crate) fn new(part: f64) -> Option<Sample> {
        // For 1 the product is 2^64: the cast cuts it to the largest number.
        (part > 0.0 && part <= 1.0).then(|| Sample { most: (part * 2f64.powi(64)) as u64 })
    }

    pub(crate) fn draws(self, bits: u64) -> bool {
        bits <= self.most
    }
}
