//! `slowlane completions`: the completions of commands and flags for a shell.

use crate::cli::say;

use clap::{Args, Command};
use clap_complete::{Shell, generate};

#[derive(Debug, Args)]
pub(super) struct CompletionsArguments {
    /// The shell to complete for
    shell: Shell,
}

pub(super) fn completions(mut command: Command, typed: &CompletionsArguments) -> anyhow::Result<()> {
    // The generator panics if it cannot write, so it writes into memory first.
    let mut script = Vec::new();
    generate(typed.shell, &mut command, env!("CARGO_PKG_NAME"), &mut script);
    say(&script)
}
