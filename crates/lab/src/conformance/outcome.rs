//! The outcome of a case.

use slowlane_core::base::shown::shown;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    Failed(String),
    Skipped(String),
}

impl Outcome {
    pub(super) const fn word(&self) -> &'static str {
        match self {
            Outcome::Passed => "pass",
            Outcome::Failed(_) => "fail",
            Outcome::Skipped(_) => "skipped",
        }
    }

    /// A reason may quote the agent, so it is made safe to show.
    pub(super) fn reason(&self) -> String {
        match self {
            Outcome::Passed => String::new(),
            Outcome::Failed(reason) | Outcome::Skipped(reason) => shown(reason),
        }
    }
}
