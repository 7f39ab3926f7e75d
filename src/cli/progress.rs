//! The progress of a long command, shown in one line on a terminal.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// Shorter commands show no progress.
const REPORT_AFTER: Duration = Duration::from_secs(1);

const REPORT_EVERY: Duration = Duration::from_millis(200);

/// Erases the rest of the line (ECMA-48, EL).
const ERASE_REST: &str = "\x1b[K";

pub(super) struct Progress {
    begun: Instant,
    reported: Option<Instant>,
    is_watched: bool,
}

impl Progress {
    pub(super) fn begin() -> Progress {
        Progress { begun: Instant::now(), reported: None, is_watched: io::stderr().is_terminal() }
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Overwrites the progress line on a terminal, if the next report is due.
    pub(super) fn report(&mut self, line: impl FnOnce() -> String) {
        let is_due = || match self.reported {
            Some(reported) => reported.elapsed() >= REPORT_EVERY,
            None => self.begun.elapsed() >= REPORT_AFTER,
        };
        if self.is_watched && is_due() {
            let _ = write!(io::stderr(), "\r{}{ERASE_REST}", line());
            self.reported = Some(Instant::now());
            let _ = io::stderr().flush();
        }
    }

    /// Clears the progress line.
    pub(super) fn end(&self) {
        if self.reported.is_some() {
            let _ = write!(io::stderr(), "\r{ERASE_REST}");
        }
    }
}
