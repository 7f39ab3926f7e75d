//! The progress of a long test, in one line on a terminal.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// Shorter tests show no progress.
const REPORT_AFTER: Duration = Duration::from_secs(1);

/// Erases the rest of the line (ECMA-48, EL).
const ERASE_REST: &str = "\x1b[K";

pub(super) struct Progress {
    begun: Instant,
}

impl Progress {
    pub(super) fn begin() -> Progress {
        Progress { begun: Instant::now() }
    }

    /// Overwrites the line with the number of tested cases, and the number of all cases.
    pub(super) fn report(&self, over: usize, all: usize) {
        self.write(format_args!("tested {over} of {all}"));
    }

    /// Clears the line.
    pub(super) fn end(&self) {
        self.write(format_args!(""));
    }

    fn write(&self, line: std::fmt::Arguments<'_>) {
        let mut terminal = io::stderr();
        if self.begun.elapsed() >= REPORT_AFTER && terminal.is_terminal() {
            let _ = write!(terminal, "\r{line}{ERASE_REST}");
        }
    }
}
