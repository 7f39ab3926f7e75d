//! The report on files of cases, as text and as JSON.

use std::fmt::Write;

use serde::Serialize;

use crate::policy_test::mistake::{Mistake, Mistakes};
use crate::policy_test::outcome::{CaseOutcome, Failure, Outcome, Unused};
use slowlane_core::base::shown::shown;

/// A file and its outcome, or the mistakes that kept it from running.
#[derive(Clone, Debug)]
pub struct FileOutcome {
    /// Its path, as it was typed.
    pub file: String,
    pub result: Result<Outcome, Mistakes>,
}

impl FileOutcome {
    /// Whether every case ran and holds.
    pub fn holds(&self) -> bool {
        self.cases().iter().all(CaseOutcome::holds) && self.result.is_ok()
    }

    /// The mistakes, one per line, each with the name of the file.
    pub fn mistakes(&self) -> Vec<String> {
        let Err(Mistakes { listed, count }) = &self.result else { return Vec::new() };
        let file = shown(&self.file);
        let told = |mistake: &Mistake| match mistake.place {
            Some(_) => format!("{file}:{mistake}"),
            None => format!("{file}: {mistake}"),
        };
        let mut lines: Vec<String> = listed.iter().map(told).collect();
        if let more @ 1.. = count - listed.len() {
            lines.push(format!("{file}: and {more} more"));
        }
        lines
    }

    /// The fields that may be misspelt, one per line, each with the name of the file.
    pub fn warnings(&self) -> Vec<String> {
        let unused = self.result.as_ref().map(|outcome| outcome.unused.as_slice()).unwrap_or_default();
        unused
            .iter()
            .map(|unused| format!("{}:{}: {}", shown(&self.file), unused.line, doubt(unused)))
            .collect()
    }

    fn cases(&self) -> &[CaseOutcome] {
        self.result.as_ref().map(|outcome| outcome.cases.as_slice()).unwrap_or_default()
    }
}

fn doubt(Unused { field, .. }: &Unused) -> String {
    format!("{}: the policy does not use this field: is it misspelt?", shown(field))
}

/// The failed cases, and the others if `verbose`, with a summary as the last line.
pub fn report(files: &[FileOutcome], verbose: bool) -> String {
    let mut text = String::new();
    for file in files {
        for case in file.cases() {
            if verbose || !case.holds() {
                tell(&mut text, &file.file, case);
            }
        }
    }
    let faulty = files.iter().filter(|file| file.result.is_err()).count();
    let (cases, failed) = counts(files);
    let _ = write!(text, "{}: {} ok, {failed} failed", counted(cases, "case"), cases - failed);
    if faulty > 0 {
        let _ = write!(text, "; {} not run", counted(faulty, "file"));
    }
    text + "\n"
}

/// One case: `ok` or the lines that do not hold, with both verdicts below each other.
fn tell(text: &mut String, file: &str, case: &CaseOutcome) {
    let (place, title) = (format!("{}:{}", shown(file), case.line), shown(&case.title));
    let word = if case.holds() { "ok    " } else { "FAILED" };
    let _ = writeln!(text, "{word} {place}: {title}");
    for Failure { line, step, expected, got } in &case.failures {
        let [step, expected, got] = [step, expected, got].map(shown);
        let _ = write!(text, "    line {line}: {step}\n      - {expected}\n      + {got}\n");
    }
}

fn counts(files: &[FileOutcome]) -> (usize, usize) {
    let cases = || files.iter().flat_map(FileOutcome::cases);
    (cases().count(), cases().filter(|case| !case.holds()).count())
}

fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// The fields of `--json`.
#[derive(Debug, Serialize)]
struct Report<'f> {
    ok: bool,
    /// The number of cases that ran.
    cases_total: usize,
    failed_total: usize,
    cases: Vec<Row<'f>>,
    errors: Vec<Finding>,
    errors_total: usize,
    warnings: Vec<Finding>,
}

#[derive(Debug, Serialize)]
struct Row<'f> {
    file: &'f str,
    ok: bool,
    #[serde(flatten)]
    case: &'f CaseOutcome,
}

#[derive(Debug, Serialize)]
struct Finding {
    file: String,
    line: Option<usize>,
    column: Option<usize>,
    text: String,
}

/// The same for programs, with every case.
pub fn json(files: &[FileOutcome]) -> String {
    let (cases_total, failed_total) = counts(files);
    let mut report = Report {
        ok: files.iter().all(FileOutcome::holds),
        cases_total,
        failed_total,
        cases: Vec::new(),
        errors: Vec::new(),
        errors_total: 0,
        warnings: Vec::new(),
    };
    for FileOutcome { file, result } in files {
        match result {
            Ok(Outcome { cases, unused }) => {
                report.cases.extend(cases.iter().map(|case| Row { file, ok: case.holds(), case }));
                report.warnings.extend(unused.iter().map(|unused| Finding {
                    file: file.clone(),
                    line: Some(unused.line),
                    column: None,
                    text: doubt(unused),
                }));
            }
            Err(Mistakes { listed, count }) => {
                report.errors_total += count;
                report.errors.extend(listed.iter().map(|Mistake { place, fault }| Finding {
                    file: file.clone(),
                    line: place.map(|place| place.line),
                    column: place.map(|place| place.column),
                    text: fault.to_string(),
                }));
            }
        }
    }
    serde_json::to_string_pretty(&report).expect("plain values are JSON") + "\n"
}
