//! The score card: the outcome of every case.

use std::fmt;

use serde::Serialize;

use crate::conformance::case::{Case, Level};
use crate::conformance::outcome::Outcome;
use crate::conformance::suite::exchanges;
use slowlane_core::base::columns::aligned;

#[derive(Clone, Debug)]
pub struct Card {
    pub rows: Vec<Row>,
}

#[derive(Clone, Debug)]
pub struct Row {
    pub(crate) case: &'static Case,
    pub(crate) outcome: Outcome,
}

impl Level {
    const fn word(self) -> &'static str {
        match self {
            Level::Required => "required",
            Level::Advised => "advised",
        }
    }
}

/// The number of cases of one level, by their outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct Counts {
    passed: usize,
    failed: usize,
    skipped: usize,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { passed, failed, skipped } = self;
        write!(f, "{passed} passed, {failed} failed, {skipped} skipped")
    }
}

impl Card {
    /// Whether no required case fails.
    pub fn is_passed(&self) -> bool {
        self.counts(Level::Required).failed == 0
    }

    fn counts(&self, level: Level) -> Counts {
        let mut counts = Counts::default();
        for row in self.rows.iter().filter(|row| row.case.level == level) {
            match row.outcome {
                Outcome::Passed => counts.passed += 1,
                Outcome::Failed(_) => counts.failed += 1,
                Outcome::Skipped(_) => counts.skipped += 1,
            }
        }
        counts
    }

    /// The table, and a line that sums it up.
    pub fn to_text(&self) -> String {
        let heading = ["case", "section", "level", "result", "reason"].map(str::to_owned).to_vec();
        let row = |Row { case, outcome }: &Row| {
            let cells = [case.name, case.section, case.level.word(), outcome.word(), &outcome.reason()];
            cells.map(str::to_owned).to_vec()
        };
        let rows: Vec<_> = [heading].into_iter().chain(self.rows.iter().map(row)).collect();
        let [required, advised] = [Level::Required, Level::Advised].map(|level| self.counts(level));
        let summary = format!("required: {required}; advised: {advised}");
        aligned(&rows, "  ", |_, _| true) + "\n" + &summary + "\n"
    }

    /// One object, for `--json`.
    pub fn to_json(&self, address: String) -> impl Serialize {
        #[derive(Serialize)]
        struct Report {
            ok: bool,
            address: String,
            required: Counts,
            advised: Counts,
            cases: Vec<Line>,
        }
        #[derive(Serialize)]
        struct Line {
            name: &'static str,
            section: &'static str,
            level: &'static str,
            claim: &'static str,
            result: &'static str,
            reason: Option<String>,
        }
        let line = |Row { case, outcome }: &Row| Line {
            name: case.name,
            section: case.section,
            level: case.level.word(),
            claim: case.claim,
            result: outcome.word(),
            reason: Some(outcome.reason()).filter(|reason| !reason.is_empty()),
        };
        Report {
            ok: self.is_passed(),
            address,
            required: self.counts(Level::Required),
            advised: self.counts(Level::Advised),
            cases: self.rows.iter().map(line).collect(),
        }
    }
}

/// Every case and what it expects, for `--list`.
pub fn list() -> String {
    let heading = ["case", "section", "level", "the agent"].map(str::to_owned).to_vec();
    let cases = exchanges().flat_map(|exchange| exchange.cases);
    let row =
        |case: &Case| [case.name, case.section, case.level.word(), case.claim].map(str::to_owned).to_vec();
    let rows: Vec<_> = [heading].into_iter().chain(cases.map(row)).collect();
    aligned(&rows, "  ", |_, _| true)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first required and the first advised case, with these outcomes.
    fn card(required: Outcome, advised: Outcome) -> Card {
        let first = |level| exchanges().flat_map(|all| all.cases).find(|case| case.level == level).unwrap();
        let rows = [(Level::Required, required), (Level::Advised, advised)];
        Card { rows: rows.map(|(level, outcome)| Row { case: first(level), outcome }).to_vec() }
    }

    #[test]
    fn only_a_required_failure_fails_the_card() {
        let failed = || Outcome::Failed("because".into());
        let skipped = || Outcome::Skipped("no pipelining".into());
        assert!(card(Outcome::Passed, failed()).is_passed());
        assert!(card(skipped(), Outcome::Passed).is_passed());
        assert!(!card(failed(), Outcome::Passed).is_passed());
    }

    #[test]
    fn a_reason_cannot_paint_the_terminal() {
        let text = card(Outcome::Failed("\u{1b}[31m".into()), Outcome::Passed).to_text();
        assert!(text.contains("\\u{1b}[31m") && !text.contains('\u{1b}'), "{text}");
        assert!(
            text.ends_with(
                "required: 0 passed, 1 failed, 0 skipped; advised: 1 passed, 0 failed, 0 skipped\n"
            )
        );
    }
}
