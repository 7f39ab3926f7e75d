//! The binary: parse, run, exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    slowlane_check::cli::main()
}
