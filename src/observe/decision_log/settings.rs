//! Settings of the decision log: where its lines go, and which decisions it has.

use std::path::PathBuf;

use crate::base::kind::Kind;

/// Which decisions are logged, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub place: Place,
    pub sample: Sample,
    /// The most lines of any second.
    pub per_second: u32,
    pub kinds: Vec<Kind>,
}

/// Where the lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    Stdout,
    File(PathBuf),
}

/// The share of the decisions that is logged, chosen by chance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The greatest draw of 64 random bits that is logged.
    most: u64,
}

impl Sample {
    /// A share of more than 0 and at most 1.
    pub fn new(part: f64) -> Option<Sample> {
        // For 1 the product is 2^64: the cast cuts it to the largest number.
        (part > 0.0 && part <= 1.0).then(|| Sample { most: (part * 2f64.powi(64)) as u64 })
    }

    pub fn draws(self, bits: u64) -> bool {
        bits <= self.most
    }
}
