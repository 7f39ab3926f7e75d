//! The decision log: one line of JSON per logged decision, to show the reason for a delay or denial.
//!
//! ```text
//! {"time":"2026-11-21T09:55:09.123Z","verdict":"delay","delay_ms":400,"slo":3001,"key":"0A7C…","rate":52,
//!  "remaining":0,"cost":1,"fields":{"source":"192.0.2.66","website":"shop.example"}}
//! ```
//! The log does not slow requests down. A decision gets a line only if its verdict, or the verdict of a dry run, is of
//! a wanted kind, if the sample includes the decision, and if the limit per second allows another line. A separate
//! thread writes the lines from a bounded queue. When the queue is full, lines are dropped and counted.

mod file;
mod line;

use std::io::{self, Write};
use std::mem;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::observe::line_writer::{LineOutput, LineQueue};
use crate::observe::metrics::DecisionLogMetrics;
use crate::observe::{Clock, OncePerSecond};
use file::RotatedFile;
use line::write_line;
use slowlane_core::base::{Decision, Kind, Timestamp, Value, Verdict};

/// The path that means standard output.
pub(crate) const STDOUT: &str = "-";

/// The maximum number of queued lines, about 300 bytes each.
const LINES_MAX: usize = 4096;

/// The handle that request threads use.
#[derive(Debug)]
pub(crate) struct DecisionLog {
    queue: LineQueue,
    /// The fraction of the wanted decisions that is logged, as a random sample.
    sample: f64,
    quota: PerSecond,
    wants: [bool; 3],
    metrics: DecisionLogMetrics,
}

impl DecisionLog {
    /// Opens the log, [`STDOUT`] or a file, and starts the thread that writes to it.
    ///
    /// # Errors
    /// The file cannot be opened, or the system cannot start a thread.
    pub(crate) fn start(
        path: &Path,
        sample: f64,
        per_second: u32,
        kinds: &[Kind],
        metrics: DecisionLogMetrics,
        clock: Clock,
    ) -> io::Result<DecisionLog> {
        let queue = if path.as_os_str() == STDOUT {
            queue(io::stdout(), &metrics, clock)
        } else {
            queue(RotatedFile::open(path, clock)?, &metrics, clock)
        }?;
        let wants = Kind::ALL.map(|kind| kinds.contains(&kind));
        Ok(DecisionLog { queue, sample, quota: PerSecond::new(per_second), wants, metrics })
    }

    /// Whether to log a decision.
    ///
    /// The decision's verdict, or the verdict of a dry run, must be of a wanted kind. The sample must include the
    /// decision, and the limit per second must allow another line. `draw` gives a random number below 1.
    pub(crate) fn wants(&self, decision: &Decision, now: Timestamp, draw: impl FnOnce() -> f64) -> bool {
        let is_kind = |verdict: Verdict| self.wants[verdict.kind().index()];
        if !is_kind(decision.verdict) && !decision.dry_runs().map(|judged| judged.verdict).any(is_kind) {
            return false;
        }
        if draw() >= self.sample {
            return false;
        }
        let is_within = self.quota.take(now);
        if !is_within {
            self.metrics.dropped_rate.inc();
        }
        is_within
    }

    /// Queues the line of a decision, or counts the line as dropped.
    ///
    /// `rate` is the rate of the decision's key in requests per second; `fields` are the fields of the request.
    pub(crate) fn write<'a>(
        &self,
        decision: &Decision,
        rate: u32,
        fields: impl Iterator<Item = (&'a [u8], Value<'a>)>,
    ) {
        let mut line = String::with_capacity(320);
        write_line(&mut line, decision, rate, fields).expect("writing to a string cannot fail");
        self.queue.push(line.into_bytes());
    }

    /// Waits until the queued lines are written, two seconds at most.
    pub(crate) fn flush(&self) {
        self.queue.flush();
    }
}

/// Starts the thread that writes the lines to `out`. The daemon's own log reports when losses begin and end.
fn queue(
    out: impl Write + Send + 'static,
    metrics: &DecisionLogMetrics,
    clock: Clock,
) -> io::Result<LineQueue> {
    let mut output = LineOutput::new(out, metrics.lines.clone(), metrics.dropped_write.clone());
    let (failed_line, mut is_reported) = (OncePerSecond::default(), false);
    LineQueue::start("decision log", LINES_MAX, metrics.dropped_queue.clone(), move |lines| {
        match output.write(lines) {
            Ok(()) if mem::take(&mut is_reported) => tracing::info!("the decision log can be written again"),
            Ok(()) => {}
            // If a disk fills up from time to time, at most two log lines a second report it.
            Err(error) => {
                if !is_reported && let Some(suppressed) = failed_line.allow(clock.now()) {
                    is_reported = true;
                    tracing::error!(
                        suppressed,
                        "cannot write to the decision log: {error}; lines are dropped until writing succeeds"
                    );
                }
            }
        }
    })
}

/// A limit on the number of lines in each second of the clock.
#[derive(Debug)]
struct PerSecond {
    most: u32,
    /// The current second, in the upper half of the bits, and its number of lines, in the lower half.
    state: AtomicU64,
}

impl PerSecond {
    fn new(most: u32) -> PerSecond {
        PerSecond { most, state: AtomicU64::new(0) }
    }

    fn take(&self, now: Timestamp) -> bool {
        let second = (now.as_nanos() / 1_000_000_000) << 32;
        let next = |state: u64| {
            let count = if state & !u64::from(u32::MAX) == second { state & u64::from(u32::MAX) } else { 0 };
            (count < self.most.into()).then_some(second | (count + 1))
        };
        self.state.fetch_update(Relaxed, Relaxed, next).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::mpsc::sync_channel;
    use std::time::Duration;

    use super::line::tests::{DELAY, decision};
    use super::*;
    use crate::observe::metrics::Metrics;

    fn log(sample: f64, per_second: u32, kinds: &[Kind]) -> (DecisionLog, tempfile::NamedTempFile) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let (metrics, clock) = (Metrics::new().decision_log, Clock::start());
        (DecisionLog::start(file.path(), sample, per_second, kinds, metrics, clock).unwrap(), file)
    }

    const NOW: Timestamp = Timestamp::from_millis(60_000);

    #[test]
    fn only_wanted_kinds_are_written() {
        let (log, _file) = log(1.0, 1000, &[Kind::Deny]);
        let wants = |decision| log.wants(&decision, NOW, || 0.0);
        assert!(!wants(decision(Verdict::Pass, false)));
        assert!(!wants(decision(DELAY, false)));
        assert!(wants(decision(Verdict::Deny { retry_after_s: 1 }, false)));
        assert!(wants(decision(Verdict::Deny { retry_after_s: 1 }, true)), "it would have been denied");
        assert!(!wants(decision(DELAY, true)));
    }

    #[test]
    fn a_second_has_so_many_lines_and_no_more() {
        let (log, _file) = log(1.0, 3, &[Kind::Delay]);
        let wanted = |now| (0..10).filter(|_| log.wants(&decision(DELAY, false), now, || 0.0)).count();
        assert_eq!(wanted(NOW), 3);
        assert_eq!(wanted(NOW + Duration::from_millis(999)), 0);
        assert_eq!(wanted(NOW + Duration::from_millis(1000)), 3);
        assert_eq!(log.metrics.dropped_rate.get(), 24);
    }

    #[test]
    fn the_sample_is_applied_first_and_a_line_outside_it_is_not_counted_as_dropped() {
        let (log, _file) = log(0.5, 1, &[Kind::Delay]);
        let wants = |draw| log.wants(&decision(DELAY, false), NOW, || draw);
        assert_eq!([0.5, 0.999, 0.499, 0.0].map(wants), [false, false, true, false]);
        assert_eq!(log.metrics.dropped_rate.get(), 1);
    }

    /// While the writer hangs, the queue fills up. Further lines are counted, and no caller waits.
    #[test]
    fn a_hanging_writer_blocks_no_decision() {
        let (mut log, _file) = log(1.0, 1000, &[Kind::Delay]);
        let ((begun, has_begun), (go_on, may_go_on)) = (sync_channel(0), sync_channel::<()>(1));
        let hang = move |_: &[u8]| {
            let _ = (begun.send(()), may_go_on.recv());
        };
        log.queue = LineQueue::start("test", 4, log.metrics.dropped_queue.clone(), hang).unwrap();
        let write = || log.write(&decision(DELAY, false), 0, std::iter::empty());
        write();
        has_begun.recv().unwrap();
        (0..10).for_each(|_| write());
        assert_eq!(log.metrics.dropped_queue.get(), 6, "four wait");
        drop((go_on, has_begun));
        log.flush();
    }

    #[test]
    fn a_flush_writes_the_queued_lines() {
        let (log, file) = log(1.0, 1000, &[Kind::Delay]);
        for _ in 0..100 {
            log.write(&decision(DELAY, false), 0, std::iter::empty());
        }
        log.flush();
        assert_eq!(fs::read_to_string(file.path()).unwrap().lines().count(), 100);
        assert_eq!(log.metrics.lines.get(), 100);
    }
}
