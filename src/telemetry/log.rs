//! The log: lines on standard error, which journald, Docker and terminals all keep.

use std::io::{IsTerminal, stderr};
use std::sync::Mutex;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tracing::level_filters::LevelFilter;

use crate::time::Timestamp;

/// How much is logged. `info` is a line for each change of state, and none for a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    Error,
    Warn,
    #[default]
    Info,
    Debug,
}

impl From<Level> for LevelFilter {
    fn from(level: Level) -> LevelFilter {
        match level {
            Level::Error => LevelFilter::ERROR,
            Level::Warn => LevelFilter::WARN,
            Level::Info => LevelFilter::INFO,
            Level::Debug => LevelFilter::DEBUG,
        }
    }
}

/// Starts logging. A second call in one process changes nothing.
pub fn start(level: Level) {
    let lines = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::from(level))
        .with_writer(stderr)
        .with_ansi(stderr().is_terminal())
        .with_target(false);
    let _ = lines.try_init();
}

/// Lets one line a second through, so that a thousand failures a second are one line that counts them.
#[derive(Debug, Default)]
pub struct OncePerSecond {
    state: Mutex<(Timestamp, u64)>,
}

impl OncePerSecond {
    /// Some: say it now, for itself and for so many before it that were not said.
    pub fn allow(&self, now: Timestamp) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let (said_at, unsaid) = *state;
        if said_at != Timestamp::default() && now.since(said_at) < Duration::from_secs(1) {
            state.1 += 1;
            return None;
        }
        *state = (now, 0);
        Some(unsaid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_one_line_a_second_that_counts() {
        let line = OncePerSecond::default();
        let start = Timestamp::from_millis(1_000);
        assert_eq!(line.allow(start), Some(0));
        assert_eq!(line.allow(start + Duration::from_millis(1)), None);
        assert_eq!(line.allow(start + Duration::from_millis(999)), None);
        assert_eq!(line.allow(start + Duration::from_millis(1_000)), Some(2));
    }
}
