//! The outcome of a file of cases: the verdicts that were expected, and those that came.

use serde::Serialize;

/// The outcome of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// In the order of the file.
    pub cases: Vec<CaseOutcome>,
    pub unused: Vec<Unused>,
}

/// The outcome of one case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CaseOutcome {
    pub line: usize,
    /// Its fields and SLOs.
    pub title: String,
    /// None: it holds.
    pub failures: Vec<Failure>,
}

/// A line of a case that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    pub line: usize,
    /// The line without its verdicts.
    pub step: String,
    pub expected: String,
    pub got: String,
}

/// A field that the policy does not use, and the first line that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unused {
    pub line: usize,
    pub field: String,
}

impl CaseOutcome {
    pub fn holds(&self) -> bool {
        self.failures.is_empty()
    }
}
