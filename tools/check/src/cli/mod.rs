//! The command line: its commands, their help and their exit codes.

mod progress;
mod rls;
mod spoa;
mod target;

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Tests other people's SPOE agents and rate limit services, and prints a report.
#[derive(Debug, Parser)]
#[command(name = "slowlane-check", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Test any SPOE agent against the specification and HAProxy's behaviour, and print a report.
    ///
    /// The suite acts as HAProxy, and sends valid and invalid frames. ADDR is host:port or unix:/path.
    #[command(after_help = spoa::EXAMPLES)]
    Spoa(spoa::Arguments),
    /// Test any server of Envoy's rate limit service for the behaviour that Envoy relies on, and print a report.
    ///
    /// The suite acts as Envoy, and sends valid and invalid calls. ADDR is host:port or unix:/path.
    #[command(after_help = rls::EXAMPLES)]
    Rls(rls::Arguments),
}

/// Runs the command that was typed. Returns success if no required case fails.
pub fn main() -> ExitCode {
    let passed = match Cli::parse().command {
        Command::Spoa(typed) => spoa::check(typed),
        Command::Rls(typed) => rls::check(typed),
    };
    match passed {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(io::stderr(), "slowlane-check: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Prints text on standard output. If the reader has closed it, as `| head` does, the exit code is unchanged.
fn say(text: &str) -> io::Result<()> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}
