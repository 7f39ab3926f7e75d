//! Finds where the clock of a log was put back by an hour.

use std::ops::Range;

/// Finds the line from which on the clock is an hour behind.
#[derive(Debug, Default)]
pub(super) struct PutBack {
    /// Consecutive lines that are an hour behind, and the number of the first.
    lines: u64,
    first: u64,
    found: Option<u64>,
}

/// A connection that lasted an hour makes one such line; a clock that was put back makes many in a row.
const PUT_BACK_LINES: u64 = 20;

const AN_HOUR_NS: Range<u64> = 50 * 60_000_000_000..61 * 60_000_000_000;

impl PutBack {
    /// Notes how far this line is behind the ones before it.
    pub(super) fn see(&mut self, number: u64, behind_ns: u64) {
        if !AN_HOUR_NS.contains(&behind_ns) {
            self.lines = 0;
            return;
        }
        if self.lines == 0 {
            self.first = number;
        }
        self.lines += 1;
        if self.lines == PUT_BACK_LINES {
            self.found.get_or_insert(self.first);
        }
    }

    /// The first line after the clock was put back.
    pub(super) fn found(&self) -> Option<u64> {
        self.found
    }
}
