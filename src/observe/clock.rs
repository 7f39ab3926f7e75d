//! The clock of the process: made once, by the daemon, and handed down.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "this is the clock")]

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::base::time::Timestamp;

/// A clock anchored to the wall once, at its start, and monotonic from then on.
///
/// A step of the wall clock is never seen. The anchor lies decades after zero, so "a full burst ago" is
/// always representable, and moments stay comparable across a restart.
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

    /// The time since its start.
    pub fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// The same moment as the runtime's timers count it.
    pub fn instant(&self, moment: Timestamp) -> Instant {
        self.started + moment.since(self.started_at)
    }
}
