//! The score card: the outcome of every case.

use serde::Serialize;

use crate::base::columns::aligned;
use crate::base::shown::shown;
use crate::tools::conformance::case::{Case, Level};
use crate::tools::conformance::suite::exchanges;

#[derive(Clone, Debug)]
pub(crate) struct Card {
    pub rows: Vec<Row>,
}

#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub case: &'static Case,
    pub outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    Failed(String),
    Skipped(String),
}

impl Outcome {
    const fn word(&self) -> &'static str {
        match self {
            Outcome::Passed => "pass",
            Outcome::Failed(_) => "fail",
            Outcome::Skipped(_) => "skipped",
        }
    }

    /// A reason may quote the agent, so it is made safe to show.
    fn reason(&self) -> String {
        match self {
            Outcome::Passed => String::new(),
            Outcome::Failed(reason) | Outcome::Skipped(reason) => shown(reason),
        }
    }
}

impl Level {
    const fn word(self) -> &'static str {
        match self {
            Level::Required => "required",
            Level::Advised => "advised",
        }
    }
}

impl Card {
    /// Whether no required case fails.
    pub(crate) fn is_passed(&self) -> bool {
        self.count(Level::Required, "fail") == 0
    }

    fn count(&self, level: Level, word: &str) -> usize {
        self.rows.iter().filter(|row| row.case.level == level && row.outcome.word() == word).count()
    }

    /// The table, and a line that sums it up.
    pub(crate) fn to_text(&self) -> String {
        let heading = ["case", "section", "level", "result", "reason"].map(str::to_owned).to_vec();
        let row = |Row { case, outcome }: &Row| {
            let cells = [case.name, case.section, case.level.word(), outcome.word(), &outcome.reason()];
            cells.map(str::to_owned).to_vec()
        };
        let rows: Vec<_> = [heading].into_iter().chain(self.rows.iter().map(row)).collect();
        aligned(&rows, "  ", |_, _| true) + "\n" + &self.summary() + "\n"
    }

    fn summary(&self) -> String {
        let line = |level: Level| {
            let [passed, failed, skipped] = ["pass", "fail", "skipped"].map(|word| self.count(level, word));
            format!("{}: {passed} passed, {failed} failed, {skipped} skipped", level.word())
        };
        format!("{}; {}", line(Level::Required), line(Level::Advised))
    }

    /// One object, for `--json`.
    pub(crate) fn to_json(&self, address: String) -> impl Serialize {
        #[derive(Serialize)]
        struct Report {
            ok: bool,
            address: String,
            required: Counts,
            advised: Counts,
            cases: Vec<Line>,
        }
        #[derive(Serialize)]
        struct Counts {
            passed: usize,
            failed: usize,
            skipped: usize,
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
        let counts = |level| Counts {
            passed: self.count(level, "pass"),
            failed: self.count(level, "fail"),
            skipped: self.count(level, "skipped"),
        };
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
            required: counts(Level::Required),
            advised: counts(Level::Advised),
            cases: self.rows.iter().map(line).collect(),
        }
    }
}

/// Every case and what it expects, for `--list`.
pub(crate) fn list() -> String {
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
