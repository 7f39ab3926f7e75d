//! The progress of a long command, in one line on a terminal.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// Shorter commands show no progress.
const TELL_AFTER: Duration = Duration::from_secs(1);

const TELL_EVERY: Duration = Duration::from_millis(200);

/// Erases the rest of the line (ECMA-48, EL).
const ERASE_REST: &str = "\x1b[K";

pub(super) struct Progress {
    begun: Instant,
    told: Option<Instant>,
    is_watched: bool,
}

impl Progress {
    pub(super) fn begin() -> Progress {
        Progress { begun: Instant::now(), told: None, is_watched: io::stderr().is_terminal() }
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Overwrites the progress line on a terminal, if it is time.
    pub(super) fn tell(&mut self, line: impl FnOnce() -> String) {
        let is_due = || match self.told {
            Some(told) => told.elapsed() >= TELL_EVERY,
            None => self.begun.elapsed() >= TELL_AFTER,
        };
        if self.is_watched && is_due() {
            eprint!("\r{}{ERASE_REST}", line());
            self.told = Some(Instant::now());
            let _ = io::stderr().flush();
        }
    }

    /// Clears the progress line.
    pub(super) fn end(&self) {
        if self.told.is_some() {
            eprint!("\r{ERASE_REST}");
        }
    }
}
