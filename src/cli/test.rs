//! `slowlane test`: compares the verdicts of a policy with those in files of cases.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::Args;

use crate::cli::arguments::FileArguments;
use crate::cli::{say, tell};
use crate::config::{Config, Flags};
use slowlane_lab::policy_test::{self, CaseErrors, FILE_BYTES_MAX, FileOutcome, Suite, TestSettings};

#[derive(Debug, Args)]
pub(super) struct TestArguments {
    /// Files with test cases
    #[arg(value_name = "FILE", required = true)]
    cases: Vec<PathBuf>,
    #[command(flatten)]
    files: FileArguments,
    /// Also print the cases that pass
    #[arg(long, conflicts_with = "json")]
    verbose: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn test(typed: TestArguments) -> anyhow::Result<()> {
    let TestArguments { cases, files, verbose, json } = typed;
    let FileArguments { config, policy } = files.or_of_service();
    let config = Config::load(config.as_deref(), Flags { policy, ..Flags::default() })?;
    let mut policy = config.read_policy()?;
    let settings =
        TestSettings { expire: config.table.expire, annex_bytes_max: config.sections.table.annex_bytes_max };
    let mut outcomes = Vec::new();
    for path in &cases {
        let result = match text(path).and_then(|text| Suite::parse(&text)) {
            Ok(suite) => {
                let (outcome, same) = policy_test::run(&suite, policy, &settings);
                policy = same;
                Ok(outcome)
            }
            Err(errors) => Err(errors),
        };
        outcomes.push(FileOutcome { file: path.display().to_string(), result });
    }
    let holds = outcomes.iter().all(FileOutcome::holds);
    if json {
        say(&policy_test::json(&outcomes))?;
    } else {
        for warning in outcomes.iter().flat_map(FileOutcome::warnings) {
            tell(format_args!("warning: {warning}"));
        }
        for mistake in outcomes.iter().flat_map(FileOutcome::errors) {
            tell(mistake);
        }
        say(&policy_test::report(&outcomes, verbose))?;
    }
    // The report has been printed, so the error has no text.
    if holds { Ok(()) } else { Err(anyhow!("")) }
}

/// Reads at most one byte more than a file may have, so that an endless device cannot fill the memory.
fn text(path: &Path) -> Result<Vec<u8>, CaseErrors> {
    let mut text = Vec::new();
    let file = File::open(path).and_then(|file| file.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut text));
    file.map_err(|error| CaseErrors::of_file(format!("cannot be read: {error}")))?;
    Ok(text)
}
