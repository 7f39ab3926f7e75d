//! The clock of the process. The daemon creates the only one.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "this is the clock")]

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::base::time::Timestamp;

/// A monotonic clock that starts with the time of the wall clock.
///
/// Later steps of the wall clock do not affect it. Its zero is 1970, so moments in the past, like a full burst ago, can
/// be represented. Moments remain comparable after a restart.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started: Instant,
    started_at: Timestamp,
}

impl Clock {
    pub fn start() -> Clock {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Clock { started: Instant::now(), started_at: Timestamp::default() + wall }
    }

    pub fn now(&self) -> Timestamp {
        self.started_at + self.started.elapsed()
    }

    /// Time since the start.
    pub fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// A moment as an `Instant`, for timers of the runtime.
    pub fn instant(&self, moment: Timestamp) -> Instant {
        self.started + moment.since(self.started_at)
    }
}
