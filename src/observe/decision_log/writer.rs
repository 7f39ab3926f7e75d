//! The thread that writes the decision log to standard output or to a file.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::Duration;

use crate::observe::clock::Clock;
use crate::observe::decision_log::settings::Place;
use crate::observe::log::OncePerSecond;
use crate::observe::metrics::DecisionLogMetrics;
use slowlane_core::base::time::Timestamp;

/// The interval of checks for rotation, which renames the file.
const LOOK: Duration = Duration::from_secs(1);

/// The most queued lines, about 300 bytes each.
pub(super) const QUEUE_MAX: usize = 4096;

/// A message to the writer thread.
#[derive(Debug)]
pub(super) enum Message {
    Line(String),
    /// Reply when all earlier lines are written.
    Flush(SyncSender<()>),
}

/// The state of the writer thread.
pub(super) struct Writer {
    out: Box<dyn Write + Send>,
    file: Option<Opened>,
    metrics: DecisionLogMetrics,
    failed_line: OncePerSecond,
    clock: Clock,
    /// The last write may have stopped in the middle of a line.
    is_torn: bool,
    /// The log has told that lines are lost.
    is_told: bool,
}

/// The open file, with its device and inode to detect rotation.
struct Opened {
    path: PathBuf,
    identity: (u64, u64),
    looked_at: Timestamp,
}

impl Writer {
    pub(super) fn open(place: &Place, metrics: DecisionLogMetrics, clock: Clock) -> io::Result<Writer> {
        let (out, file): (Box<dyn Write + Send>, _) = match place {
            Place::Stdout => (Box::new(io::stdout()), None),
            Place::File(path) => {
                let (file, opened) = open(path, clock.now())?;
                (Box::new(file), Some(opened))
            }
        };
        let failed_line = OncePerSecond::default();
        Ok(Writer { out, file, metrics, failed_line, clock, is_torn: false, is_told: false })
    }

    /// Runs until the last sender is dropped.
    pub(super) fn run(&mut self, messages: &Receiver<Message>) {
        let (mut lines, mut count) = (String::new(), 0);
        while let Ok(message) = messages.recv() {
            let mut waiting = Vec::new();
            // Lines that arrived in the meantime join this write.
            for message in std::iter::once(message).chain(messages.try_iter().take(QUEUE_MAX)) {
                match message {
                    Message::Line(line) => {
                        lines.push_str(&line);
                        count += 1;
                    }
                    Message::Flush(done) => waiting.push(done),
                }
            }
            self.write(&lines, count);
            lines.clear();
            count = 0;
            for done in waiting {
                // The waiting thread may have timed out.
                let _ = done.try_send(());
            }
        }
    }

    fn write(&mut self, lines: &str, count: u64) {
        // A full disk may hold the first part of a line. A line break separates it from the next one.
        let end: &[u8] = if self.is_torn { b"\n" } else { b"" };
        let written = self.follow().and_then(|()| self.out.write_all(end));
        let written = written.and_then(|()| self.out.write_all(lines.as_bytes()));
        match written.and_then(|()| self.out.flush()) {
            Ok(()) => {
                self.is_torn = false;
                self.metrics.lines.inc_by(count);
                if std::mem::take(&mut self.is_told) {
                    tracing::info!("the decision log is written again");
                }
            }
            Err(error) => {
                self.is_torn = true;
                self.metrics.dropped_write.inc_by(count);
                // A disk that is full and not by turns has two lines a second at most.
                if !self.is_told
                    && let Some(suppressed) = self.failed_line.allow(self.clock.now())
                {
                    self.is_told = true;
                    tracing::error!(
                        suppressed,
                        "cannot write to the decision log: {error}; its lines are dropped until it can be"
                    );
                }
            }
        }
    }

    /// Reopens the file if its path is gone or names another file.
    fn follow(&mut self) -> io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let now = self.clock.now();
        if now.since(file.looked_at) < LOOK {
            return Ok(());
        }
        file.looked_at = now;
        let found = fs::metadata(&file.path).map(|found| (found.dev(), found.ino()));
        if !found.is_ok_and(|identity| identity == file.identity) {
            let (out, opened) = open(&file.path, now)?;
            (self.out, self.file) = (Box::new(out), Some(opened));
        }
        Ok(())
    }
}

fn open(path: &Path, now: Timestamp) -> io::Result<(File, Opened)> {
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    let found = file.metadata()?;
    let opened = Opened { path: path.to_owned(), identity: (found.dev(), found.ino()), looked_at: now };
    Ok((file, opened))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::observe::metrics::Metrics;

    #[test]
    fn a_file_that_was_moved_away_is_begun_anew() {
        let folder = tempfile::tempdir().unwrap();
        let [path, moved] = ["log", "log.1"].map(|name| folder.path().join(name));
        let mut writer =
            Writer::open(&Place::File(path.clone()), Metrics::new().decision_log, Clock::start()).unwrap();
        writer.write("one\n", 1);
        fs::rename(&path, &moved).unwrap();
        writer.write("two\n", 1);
        writer.file.as_mut().unwrap().looked_at = Timestamp::default();
        writer.write("three\n", 1);
        assert_eq!(fs::read_to_string(moved).unwrap(), "one\ntwo\n");
        assert_eq!(fs::read_to_string(path).unwrap(), "three\n");
    }

    /// Accepts `room` bytes, fails once, and then accepts everything.
    struct Disk {
        room: usize,
        taken: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let count = bytes.len().min(self.room);
            if count == 0 && !bytes.is_empty() {
                self.room = usize::MAX;
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.room -= count;
            self.taken.lock().unwrap().extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_cut_off_by_a_full_disk_spoils_no_other_line() {
        let taken = Arc::<Mutex<Vec<u8>>>::default();
        let mut writer = Writer::open(&Place::Stdout, Metrics::new().decision_log, Clock::start()).unwrap();
        writer.out = Box::new(Disk { room: 6, taken: taken.clone() });
        for line in ["one\n", "two\n", "three\n", "four\n"] {
            writer.write(line, 1);
        }
        assert_eq!(String::from_utf8_lossy(&taken.lock().unwrap()), "one\ntw\nthree\nfour\n");
        assert_eq!((writer.metrics.lines.get(), writer.metrics.dropped_write.get()), (3, 1));
    }
}
