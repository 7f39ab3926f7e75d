//! The log: lines on standard error, which journald, Docker and terminals all collect.
//!
//! No caller waits for standard error: a thread writes the lines from a bounded queue. When the queue is full, lines
//! are dropped and counted.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "standard error is where the log goes, from a thread of its own"
)]

mod journal;
mod panics;
mod queue;

use std::env;
use std::fs::File;
use std::io::{IsTerminal, Write, stderr};
use std::os::fd::AsFd;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::{Layered, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt, reload};

use journal::{Prioritised, is_journal};
use queue::Queue;

use slowlane_core::base::time::Timestamp;

/// The level of the log. `info` logs each change of state, and no request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    Error,
    Warn,
    #[default]
    Info,
    Debug,
}

impl Level {
    pub const fn name(self) -> &'static str {
        match self {
            Level::Error => "error",
            Level::Warn => "warn",
            Level::Info => "info",
            Level::Debug => "debug",
        }
    }
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

/// The format of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Format {
    /// For people, in colour on a terminal.
    #[default]
    Human,
    /// For programs: one JSON object per line.
    Json,
}

/// Level and format of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    pub level: Level,
    pub format: Format,
}

/// The log of this process, once it is started.
static STARTED: OnceLock<Started> = OnceLock::new();

struct Started {
    configured: Level,
    now: Mutex<Level>,
    filter: reload::Handle<LevelFilter, Registry>,
    queue: Queue,
}

/// Writes the queued lines when it is dropped: hold it until the end of the process.
#[must_use]
pub(crate) struct Goodbye;

impl Drop for Goodbye {
    fn drop(&mut self) {
        if let Some(started) = STARTED.get() {
            started.queue.flush();
        }
    }
}

/// Starts logging. Panics are logged, too. A second call in one process changes nothing.
pub(crate) fn start(settings: Settings) -> Goodbye {
    let Settings { level, format } = settings;
    let queue = Queue::start(standard_error()).expect("the system can start a thread");
    let (filter, handle) = reload::Layer::new(LevelFilter::from(level));
    let registry = tracing_subscriber::registry().with(filter);
    if registry.with(lines(format, queue.clone())).try_init().is_ok() {
        let _ = STARTED.set(Started { configured: level, now: Mutex::new(level), filter: handle, queue });
        panics::log();
    }
    Goodbye
}

type Filtered = Layered<reload::Layer<LevelFilter, Registry>, Registry>;

/// The lines in a format. For the journal they have a priority, and no time.
fn lines(format: Format, queue: Queue) -> Box<dyn Layer<Filtered> + Send + Sync> {
    let lines = fmt::layer().with_target(false).log_internal_errors(false).with_writer(move || queue.clone());
    let is_journal = is_journal(&stderr(), env::var("JOURNAL_STREAM").ok().as_deref());
    match (format, is_journal) {
        (Format::Human, false) => lines.with_ansi(stderr().is_terminal()).boxed(),
        (Format::Human, true) => lines.with_ansi(false).without_time().map_event_format(Prioritised).boxed(),
        (Format::Json, false) => lines.json().flatten_event(true).boxed(),
        (Format::Json, true) => {
            lines.json().flatten_event(true).without_time().map_event_format(Prioritised).boxed()
        }
    }
}

/// Standard error without the lock of the standard library, which a write that hangs would hold.
fn standard_error() -> Box<dyn Write + Send> {
    match stderr().as_fd().try_clone_to_owned() {
        Ok(fd) => Box::new(File::from(fd)),
        Err(_) => Box::new(stderr()),
    }
}

/// The lines that were dropped because standard error did not take them in time.
pub(crate) fn dropped() -> u64 {
    STARTED.get().map_or(0, |started| started.queue.dropped())
}

/// Switches between the configured level and `debug`, and logs the change.
pub(crate) fn toggle_debug() {
    if let Some(started) = STARTED.get() {
        started.toggle_debug();
    }
}

impl Started {
    fn toggle_debug(&self) {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        let level = if *now == Level::Debug { self.configured } else { Level::Debug };
        let set = |level| self.filter.reload(LevelFilter::from(level));
        // The line about the change must appear, even if only errors are logged afterwards.
        let changed = set((*now).max(level).max(Level::Info)).and_then(|()| {
            tracing::info!("the log level is {}, it was {}", level.name(), now.name());
            set(level)
        });
        if changed.is_ok() {
            *now = level;
        }
    }
}

/// Limits a log line to one per second, with the number of suppressed ones.
#[derive(Debug, Default)]
pub(crate) struct OncePerSecond {
    state: Mutex<(Timestamp, u64)>,
}

impl OncePerSecond {
    /// `Some`: log now, with the number of lines suppressed since the last one, if any.
    pub(crate) fn allow(&self, now: Timestamp) -> Option<Option<u64>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (logged_at, suppressed) = *state;
        if logged_at != Timestamp::default() && now.since(logged_at) < Duration::from_secs(1) {
            state.1 += 1;
            return None;
        }
        *state = (now, 0);
        Some((suppressed > 0).then_some(suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_one_line_a_second_that_counts() {
        let line = OncePerSecond::default();
        let start = Timestamp::from_millis(1_000);
        assert_eq!(line.allow(start), Some(None));
        assert_eq!(line.allow(start + Duration::from_millis(1)), None);
        assert_eq!(line.allow(start + Duration::from_millis(999)), None);
        assert_eq!(line.allow(start + Duration::from_millis(1_000)), Some(Some(2)));
    }
}
