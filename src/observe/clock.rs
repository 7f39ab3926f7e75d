//! The clock of the process, made once by the daemon and handed down.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "this is the clock")]

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::base::time::Timestamp;

/// A clock that reads the wall once, at its start, and is monotonic from then on.
///
/// It never sees a step of the wall clock. Its zero lies decades back, so "a full burst ago" always exists.
/// Its moments stay comparable across a restart.
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

    /// A moment on the scale of the runtime's timers.
    pub fn instant(&self, moment: Timestamp) -> Instant {
        self.started + moment.since(self.started_at)
    }
}
