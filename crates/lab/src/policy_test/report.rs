//! The report on files of cases, as text and as JSON.

use std::fmt::Write;

use serde::Serialize;

use crate::policy_test::cases::{CaseError, CaseErrors};
use crate::policy_test::run::{CaseOutcome, Failure, Outcome};
use slowlane_core::base::{plural, shown};

/// A file and its outcome, or the errors that prevented the file from running.
#[derive(Clone, Debug)]
pub struct FileOutcome {
    /// The path of the file, as it was typed.
    pub file: String,
    pub result: Result<Outcome, CaseErrors>,
}

impl CaseOutcome {
    fn holds(&self) -> bool {
        self.failures.is_empty()
    }
}

impl FileOutcome {
    /// Whether every case ran and passed.
    pub fn holds(&self) -> bool {
        self.cases().iter().all(CaseOutcome::holds) && self.result.is_ok()
    }

    /// The errors, one per line, each with the name of its file.
    pub fn errors(&self) -> Vec<String> {
        let Err(CaseErrors { listed, count }) = &self.result else { return Vec::new() };
        let mut lines: Vec<String> = listed.iter().map(|error| self.named(error)).collect();
        if let more @ 1.. = count - listed.len() {
            lines.push(format!("{}: and {more} more", shown(&self.file)));
        }
        lines
    }

    /// The possibly misspelt fields, one per line, each with the name of its file.
    pub fn warnings(&self) -> Vec<String> {
        let warnings = self.result.iter().flat_map(|outcome| &outcome.warnings);
        warnings.map(|warning| self.named(warning)).collect()
    }

    fn named(&self, error: &CaseError) -> String {
        let blank = if error.line.is_some() { "" } else { " " };
        format!("{}:{blank}{error}", shown(&self.file))
    }

    fn cases(&self) -> &[CaseOutcome] {
        self.result.as_ref().map(|outcome| outcome.cases.as_slice()).unwrap_or_default()
    }
}

/// The failed cases and, if `verbose`, all other cases, with a summary as the last line.
pub fn report(files: &[FileOutcome], verbose: bool) -> String {
    let mut text = String::new();
    for (file, case) in cases(files).filter(|(_, case)| verbose || !case.holds()) {
        write_case(&mut text, file, case);
    }
    let faulty = files.iter().filter(|file| file.result.is_err()).count();
    let (cases, failed) = counts(files);
    let _ = write!(text, "{}: {} ok, {failed} failed", plural(cases, "case"), cases - failed);
    if faulty > 0 {
        let _ = write!(text, "; {} not run", plural(faulty, "file"));
    }
    text + "\n"
}

/// One case: `ok`, or the failed lines with the expected verdict above the actual verdict.
fn write_case(text: &mut String, file: &str, case: &CaseOutcome) {
    let word = if case.holds() { "ok    " } else { "FAILED" };
    let _ = writeln!(text, "{word} {}:{}: {}", shown(file), case.line, shown(&case.title));
    for Failure { line, step, expected, got } in &case.failures {
        let [step, expected, got] = [step, expected, got].map(shown);
        let _ = write!(text, "    line {line}: {step}\n      - {expected}\n      + {got}\n");
    }
}

fn cases(files: &[FileOutcome]) -> impl Iterator<Item = (&str, &CaseOutcome)> {
    files.iter().flat_map(|file| file.cases().iter().map(|case| (file.file.as_str(), case)))
}

/// The number of cases, and the number of failed cases.
fn counts(files: &[FileOutcome]) -> (usize, usize) {
    (cases(files).count(), cases(files).filter(|(_, case)| !case.holds()).count())
}

/// The fields of `--json`.
#[derive(Debug, Serialize)]
struct Report<'f> {
    ok: bool,
    /// The number of cases that ran.
    cases_total: usize,
    failed_total: usize,
    cases: Vec<InFile<'f, CaseOutcome>>,
    errors: Vec<InFile<'f, CaseError>>,
    errors_total: usize,
    warnings: Vec<InFile<'f, CaseError>>,
}

/// A case or an error, with its file.
#[derive(Debug, Serialize)]
struct InFile<'f, T> {
    file: &'f str,
    #[serde(skip_serializing_if = "Option::is_none")]
    ok: Option<bool>,
    #[serde(flatten)]
    of: &'f T,
}

/// The report for programs, as JSON, with every case.
pub fn json(files: &[FileOutcome]) -> String {
    let (cases_total, failed_total) = counts(files);
    let (mut errors, mut errors_total, mut warnings) = (Vec::new(), 0, Vec::new());
    for FileOutcome { file, result } in files {
        let place = |of| InFile { file, ok: None, of };
        match result {
            Ok(outcome) => warnings.extend(outcome.warnings.iter().map(place)),
            Err(CaseErrors { listed, count }) => {
                errors_total += count;
                errors.extend(listed.iter().map(place));
            }
        }
    }
    let report = Report {
        ok: files.iter().all(FileOutcome::holds),
        cases_total,
        failed_total,
        cases: cases(files).map(|(file, of)| InFile { file, ok: Some(of.holds()), of }).collect(),
        errors,
        errors_total,
        warnings,
    };
    serde_json::to_string_pretty(&report).expect("plain values can always be written as JSON") + "\n"
}
