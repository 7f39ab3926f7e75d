//! The log: lines on standard error, which journald, Docker and terminals all collect.
//!
//! No caller waits for standard error, because a thread writes the lines from a bounded queue. When the queue is full,
//! lines are dropped and counted.

mod journal;
mod panics;

use std::cell::RefCell;
use std::env;
use std::fs::File;
use std::io::{self, IsTerminal, Write, stderr};
use std::os::fd::AsFd;
use std::sync::{LazyLock, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use serde::{Deserialize, Serialize};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::{Layered, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt};

use crate::observe::line_writer::{LineOutput, LineQueue};
use journal::{Prioritised, is_journal};
use slowlane_core::base::{Timestamp, plural};

/// The level of the log. `info` logs each change of state, but no requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(expecting = "the section [log]", deny_unknown_fields)]
pub(crate) struct LogSettings {
    pub level: Level,
    pub format: Format,
}

/// The queue of this process, set when its log is started.
static STARTED: OnceLock<LineQueue> = OnceLock::new();

/// The maximum number of queued lines, about 150 bytes each.
const LINES_MAX: usize = 1024;

/// The number of lines that were dropped because the queue was full or writing to standard error failed.
pub(crate) static DROPPED: LazyLock<Counter> = LazyLock::new(Counter::default);

/// Dropping this value waits up to two seconds for the queued lines to be written, so keep it until the process ends.
#[must_use]
pub(crate) struct Goodbye;

impl Drop for Goodbye {
    fn drop(&mut self) {
        if let Some(queue) = STARTED.get() {
            queue.flush();
        }
    }
}

/// Starts logging. Panics are logged, too. A second call in one process changes nothing.
pub(crate) fn start(settings: LogSettings) -> Goodbye {
    let LogSettings { level, format } = settings;
    let queue = queue(standard_error(), DROPPED.clone()).expect("the system can start a thread");
    let registry = tracing_subscriber::registry().with(LevelFilter::from(level));
    if registry.with(lines(format, queue.clone())).try_init().is_ok() {
        let _ = STARTED.set(queue);
        panics::log();
    }
    Goodbye
}

/// The layer that formats log lines. For the journal, lines have a priority but no time.
fn lines(format: Format, queue: LineQueue) -> Box<dyn Layer<Layered<LevelFilter, Registry>> + Send + Sync> {
    let lines = fmt::layer()
        .with_target(false)
        .log_internal_errors(false)
        .with_writer(move || LineSender(queue.clone()));
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

/// Standard error without the lock of the standard library, which a blocked write would hold.
fn standard_error() -> Box<dyn Write + Send> {
    match stderr().as_fd().try_clone_to_owned() {
        Ok(fd) => Box::new(File::from(fd)),
        Err(_) => Box::new(stderr()),
    }
}

/// Starts the thread that writes the log to `out`, and logs the number of dropped lines once `out` accepts lines again.
fn queue(out: impl Write + Send + 'static, dropped: Counter) -> io::Result<LineQueue> {
    let mut output = LineOutput::new(out, Counter::default(), dropped.clone());
    let (mut reported, all) = (0, dropped.clone());
    LineQueue::start("log", LINES_MAX, dropped, move |lines| {
        let is_written = output.write(lines).is_ok();
        let dropped = all.get();
        // If this line is also lost, the number is logged again after a later write.
        if is_written && dropped > reported && output.write(&line_about(dropped - reported)).is_ok() {
            reported = dropped;
        }
    })
}

thread_local! {
    /// Collects the line that the writer thread itself logs, bypassing the queue.
    static OWN: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
}

fn line_about(dropped: u64) -> Vec<u8> {
    OWN.set(Some(Vec::new()));
    tracing::warn!("{} dropped: standard error was not read fast enough", plural(dropped, "log line"));
    OWN.take().unwrap_or_default()
}

/// A writer that queues one line per call.
struct LineSender(LineQueue);

impl Write for LineSender {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match OWN.with_borrow_mut(|own| own.as_mut().map(|own| own.extend_from_slice(line))) {
            Some(()) => {}
            None => self.0.push(line.to_vec()),
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Limits a log line to one per second, and counts the suppressed lines.
#[derive(Debug, Default)]
pub(crate) struct OncePerSecond {
    state: Mutex<(Timestamp, u64)>,
}

impl OncePerSecond {
    /// `Some` if a line may be logged now, with the number of lines suppressed since the last logged line, if any.
    pub(crate) fn allow(&self, now: Timestamp) -> Option<Option<u64>> {
        let mut state = self.state.lock();
        let (logged_at, suppressed) = *state;
        if logged_at != Timestamp::default() && now.since(logged_at) < Duration::from_secs(1) {
            state.1 += 1;
            return None;
        }
        *state = (now, 0);
        Some((suppressed > 0).then_some(suppressed))
    }

    /// Logs a warning, unless the previous warning was logged less than a second ago.
    pub(crate) fn warn(&self, now: Timestamp, text: impl FnOnce() -> String) {
        if let Some(suppressed) = self.allow(now) {
            tracing::warn!(suppressed, "{}", text());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, PipeReader, Read, pipe};
    use std::sync::Arc;

    use super::*;

    fn piped() -> (LineQueue, Counter, PipeReader) {
        let ((reader, writer), dropped) = (pipe().unwrap(), Counter::default());
        (queue(writer, dropped.clone()).unwrap(), dropped, reader)
    }

    #[test]
    fn a_flush_writes_the_queued_lines_in_their_order() {
        let (queue, dropped, mut reader) = piped();
        let lines: Vec<String> = (0..100).map(|number| format!("line {number}\n")).collect();
        lines.iter().for_each(|line| queue.push(line.clone().into_bytes()));
        queue.flush();
        assert_eq!(dropped.get(), 0);
        drop(queue);
        let mut written = String::new();
        reader.read_to_string(&mut written).unwrap();
        assert_eq!(written, lines.concat());
    }

    #[test]
    fn a_reader_that_sleeps_makes_no_caller_wait_and_neither_does_one_that_leaves() {
        let (queue, dropped, reader) = piped();
        let mut line = vec![b'a'; 1_000];
        line.push(b'\n');
        for _ in 0..10 * LINES_MAX {
            queue.push(line.clone());
        }
        let before = dropped.get();
        assert!(before > 7 * LINES_MAX as u64, "{before}");
        // A pipe that nobody reads does not keep the process.
        queue.flush();
        drop(reader);
        queue.flush();
        assert!(dropped.get() > before, "lines that cannot be written are dropped, too");
    }

    /// Takes `room` bytes, then nothing until somebody makes room.
    #[derive(Clone, Default)]
    struct Disk(Arc<Mutex<(Vec<u8>, usize)>>);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let (taken, room) = &mut *self.0.lock();
            let count = bytes.len().min(*room);
            *room -= count;
            taken.extend_from_slice(&bytes[..count]);
            if count == 0 { Err(ErrorKind::StorageFull.into()) } else { Ok(count) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_loses_lines_that_are_counted_and_spoils_no_other() {
        let (disk, dropped) = (Disk::default(), Counter::default());
        disk.0.lock().1 = "one\ntw".len();
        let queue = queue(disk.clone(), dropped.clone()).unwrap();
        for line in ["one\n", "two\n", "three\n", "four\n"] {
            queue.push(line.into());
            queue.flush();
        }
        assert_eq!(dropped.get(), 3);
        disk.0.lock().1 = usize::MAX;
        queue.push(b"five\n".to_vec());
        queue.flush();
        assert_eq!(String::from_utf8_lossy(&disk.0.lock().0), "one\ntw\nfive\n");
    }

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
