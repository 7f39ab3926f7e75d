//! The score card: the outcome of every case.

use std::fmt;

use serde::Serialize;

use slowlane_core::base::{aligned, shown};

#[derive(Clone, Debug)]
pub(crate) struct Card {
    pub(super) rows: Vec<(Case, Outcome)>,
}

/// One line of the score card.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub name: &'static str,
    /// The section or the name of a specification, or the practice that the case follows.
    pub section: &'static str,
    pub level: Level,
    /// The expected behaviour.
    pub claim: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// The specification demands it, or no proxy can use the server without it.
    Required,
    Advised,
}

/// The outcome of a case, and its reason. An empty reason means no reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Passed(String),
    Failed(String),
    Skipped(String),
}

impl Outcome {
    /// The outcome's name and its reason. The reason may quote the server, so it is made safe to display.
    fn described(&self) -> (&'static str, Option<String>) {
        let (name, reason) = match self {
            Outcome::Passed(seen) => ("pass", seen),
            Outcome::Failed(reason) => ("fail", reason),
            Outcome::Skipped(reason) => ("skipped", reason),
        };
        (name, (!reason.is_empty()).then(|| shown(reason)))
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

/// One case in the object of `--json`.
#[derive(Serialize)]
struct Line {
    name: &'static str,
    section: &'static str,
    level: &'static str,
    claim: &'static str,
    result: &'static str,
    reason: Option<String>,
}

impl Card {
    /// Whether no required case fails.
    pub(crate) fn is_passed(&self) -> bool {
        self.counts(Level::Required).failed == 0
    }

    fn counts(&self, level: Level) -> Counts {
        let mut counts = Counts::default();
        for (_, outcome) in self.rows.iter().filter(|(case, _)| case.level == level) {
            match outcome {
                Outcome::Passed(_) => counts.passed += 1,
                Outcome::Failed(_) => counts.failed += 1,
                Outcome::Skipped(_) => counts.skipped += 1,
            }
        }
        counts
    }

    fn lines(&self) -> impl Iterator<Item = Line> {
        self.rows.iter().map(|(Case { name, section, level, claim }, outcome)| {
            let (result, reason) = outcome.described();
            Line { name, section, level: level.word(), claim, result, reason }
        })
    }

    /// The table, and a summary line.
    pub(crate) fn to_text(&self) -> String {
        let row = |line: Line| {
            let Line { name, section, level, result, reason, .. } = line;
            [name, section, level, result, &reason.unwrap_or_default()].map(str::to_owned).to_vec()
        };
        let [required, advised] = [Level::Required, Level::Advised].map(|level| self.counts(level));
        let summary = format!("required: {required}; advised: {advised}");
        table(["case", "section", "level", "result", "reason"], self.lines().map(row))
            + "\n"
            + &summary
            + "\n"
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
        let [required, advised] = [Level::Required, Level::Advised].map(|level| self.counts(level));
        Report { ok: self.is_passed(), address, required, advised, cases: self.lines().collect() }
    }
}

/// Every case and its expectation, for `--list`.
pub(super) fn listed(subject: &str, cases: impl Iterator<Item = Case>) -> String {
    let row =
        |case: Case| [case.name, case.section, case.level.word(), case.claim].map(str::to_owned).to_vec();
    table(["case", "section", "level", subject], cases.map(row))
}

fn table<const N: usize>(heading: [&str; N], rows: impl Iterator<Item = Vec<String>>) -> String {
    let rows: Vec<_> = [heading.map(str::to_owned).to_vec()].into_iter().chain(rows).collect();
    aligned(&rows, "  ", |_, _| true)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A required and an advised case, with these outcomes.
    fn card(required: Outcome, advised: Outcome) -> Card {
        let case = |level| Case { name: "ping", section: "6.7", level, claim: "answers a PING" };
        Card { rows: vec![(case(Level::Required), required), (case(Level::Advised), advised)] }
    }

    const PASSED: Outcome = Outcome::Passed(String::new());

    #[test]
    fn only_a_required_failure_fails_the_card() {
        let failed = || Outcome::Failed("because".into());
        let skipped = || Outcome::Skipped("no pipelining".into());
        assert!(card(PASSED, failed()).is_passed());
        assert!(card(skipped(), PASSED).is_passed());
        assert!(!card(failed(), PASSED).is_passed());
    }

    #[test]
    fn a_reason_cannot_paint_the_terminal() {
        let text = card(Outcome::Failed("\u{1b}[31m".into()), PASSED).to_text();
        assert!(text.contains("\\u{1b}[31m") && !text.contains('\u{1b}'), "{text}");
        assert!(
            text.ends_with(
                "required: 0 passed, 1 failed, 0 skipped; advised: 1 passed, 0 failed, 0 skipped\n"
            )
        );
    }
}
