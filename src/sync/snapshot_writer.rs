//! The state file, which is read at startup, and written every few seconds and at shutdown.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tempfile::Builder;

use crate::observe::groups::StateMetrics;
use crate::observe::{Clock, Status, revived};
use crate::server::Agent;
use slowlane_core::snapshot::{Parts, Restored, Saved, SnapshotError, SnapshotHead, restore, resumed, save};
use slowlane_core::throttle::Throttle;

/// The number of bytes written or read at once.
const BUFFER_BYTES: usize = 256 << 10;

/// The maximum size of a row: three numbers of the law's state, eight columns, the key and the lifetime.
const ROW_BYTES_MAX: u64 = 100;

/// The factor by which auxiliary states may grow in the file: an eight-byte number takes up to ten bytes, and a
/// four-byte number up to five.
const AUX_GROWTH_MAX: u64 = 2;

/// Room for the blocks, the list of SLOs, and the checksums of small parts.
const REST_BYTES_MAX: u64 = 64 << 20;

/// The state file of a slowlane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StateFile {
    pub path: PathBuf,
    /// The time between two snapshots.
    pub every: Duration,
}

/// A complete snapshot from an earlier process.
#[derive(Debug)]
pub(crate) struct EarlierSnapshot {
    path: PathBuf,
    pub(crate) head: SnapshotHead,
    pub clock: Clock,
}

impl StateFile {
    /// Finds the snapshot of an earlier process. A snapshot that cannot be used is renamed, and does not prevent
    /// startup. `entries_max` and `annex_bytes_max` bound its size.
    pub(crate) fn find(&self, entries_max: u32, annex_bytes_max: usize) -> Option<EarlierSnapshot> {
        self.sweep();
        let bytes_max =
            u64::from(entries_max) * ROW_BYTES_MAX + annex_bytes_max as u64 * AUX_GROWTH_MAX + REST_BYTES_MAX;
        let found = self.look(bytes_max);
        let unusable = match found {
            Ok(found) => return found,
            Err(error) => error,
        };
        let (path, aside) = (self.path.display(), beside(&self.path, ".aside"));
        match fs::rename(&self.path, &aside) {
            Ok(()) => {
                tracing::warn!("{path}: {unusable}; the file was renamed to {} and ignored", aside.display())
            }
            Err(error) => {
                tracing::warn!("{path}: {unusable}; the file is ignored, but cannot be renamed: {error}")
            }
        }
        None
    }

    fn look(&self, bytes_max: u64) -> Result<Option<EarlierSnapshot>, SnapshotError> {
        // The file is checked before it is opened, because opening a pipe would block startup.
        let metadata = match fs::metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            metadata => metadata?,
        };
        if !metadata.is_file() {
            return Err(SnapshotError::Foreign);
        }
        if metadata.len() > bytes_max {
            return Err(SnapshotError::Huge(bytes_max));
        }
        if metadata.permissions().mode() & 0o077 != 0 {
            tracing::warn!(
                "{}: other users can read this file, which contains the key secret: run `chmod 600` on it",
                self.path.display()
            );
        }
        let parts = Parts::new(BufReader::with_capacity(BUFFER_BYTES, File::open(&self.path)?))?;
        let head = parts.head.clone();
        let moment = resumed(Clock::wall(), head.saved_at, head.wall)
            .map_err(|ahead| SnapshotError::Future(format!("{} s", ahead.as_secs())))?;
        // The clock starts before the check, so that the time that the check takes is counted.
        let clock = Clock::going_on_at(moment);
        parts.check()?;
        Ok(Some(EarlierSnapshot { path: self.path.clone(), head, clock }))
    }

    /// Removes the unfinished files of processes that died while writing.
    fn sweep(&self) {
        let (Some(folder), Some(prefix)) = (self.path.parent(), self.prefix()) else { return };
        let Ok(entries) = fs::read_dir(folder) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name();
            if name.to_str().is_some_and(|name| name.starts_with(&prefix) && name.ends_with(NEW)) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    fn prefix(&self) -> Option<String> {
        Some(format!(".{}.", self.path.file_name()?.to_str()?))
    }

    /// Starts the thread that writes the file.
    ///
    /// # Errors
    /// The system cannot start another thread.
    pub(crate) fn keep(self, metrics: StateMetrics, agent: Arc<Agent>) -> io::Result<SnapshotWriter> {
        let (end, ended) = mpsc::channel();
        let mut is_reported = false;
        let mut keep = move || {
            let begun = Instant::now();
            match self.write(&agent) {
                Ok(Saved { rows, bytes }) => {
                    if is_reported {
                        tracing::info!("{}: the state can be written again", self.path.display());
                    }
                    metrics.saved(rows, bytes, Clock::wall(), begun.elapsed());
                    is_reported = false;
                }
                Err(error) => {
                    metrics.failures.inc();
                    if !is_reported {
                        tracing::error!(
                            "{}: the state cannot be written: {error}; requests are still answered, but a restart \
                             loses all changes newer than the file",
                            self.path.display()
                        );
                    }
                    is_reported = true;
                }
            }
            match ended.recv_timeout(self.every.saturating_sub(begun.elapsed())) {
                Err(RecvTimeoutError::Timeout) => true,
                Ok(Last::Leave) => false,
                Ok(Last::Write) | Err(RecvTimeoutError::Disconnected) => {
                    if let Err(error) = self.write(&agent) {
                        tracing::error!(
                            "{}: the final state cannot be written: {error}",
                            self.path.display()
                        );
                    }
                    false
                }
            }
        };
        let work = move || revived("the state file", || while keep() {});
        let thread = thread::Builder::new().name("state".into()).spawn(work)?;
        Ok(SnapshotWriter { end, thread })
    }

    /// Writes a snapshot next to the old snapshot, then replaces the old one.
    fn write(&self, agent: &Agent) -> io::Result<Saved> {
        let Agent { throttle, status, clock, .. } = agent;
        let policy = throttle.policy();
        let slos = policy.slos().map(|slo| (slo.id.number(), slo.describe())).collect();
        let head = SnapshotHead::new(clock.now(), Clock::wall(), policy.key_secret(), slos);
        drop(policy);
        let folder = self.path.parent().unwrap_or(Path::new("."));
        let prefix = self.prefix().ok_or(io::ErrorKind::InvalidFilename)?;
        // Only its owner can read the new file, and its name did not exist before, so no planted link is followed.
        let mut new = Builder::new().prefix(&prefix).suffix(NEW).tempfile_in(folder)?;
        let mut to = BufWriter::with_capacity(BUFFER_BYTES, new.as_file_mut());
        let saved = save(throttle, head, None, Some(&status.notes()), &mut to)?;
        to.flush()?;
        drop(to);
        new.as_file().sync_all()?;
        new.persist(&self.path).map_err(|error| error.error)?;
        Ok(saved)
    }
}

const NEW: &str = ".new";

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

impl EarlierSnapshot {
    /// Restores the state. Logs how much was restored, and how many SLOs have changed since the snapshot.
    pub(crate) fn restore(self, throttle: &Throttle, status: &Status) {
        let EarlierSnapshot { path, head, clock } = self;
        let keys = head.key_secret() == Some(throttle.policy().key_secret());
        let read = File::open(&path).map_err(SnapshotError::from);
        let path = path.display();
        let read = read.and_then(|file| Parts::new(BufReader::with_capacity(BUFFER_BYTES, file)));
        let restored = read.and_then(|parts| restore(parts, keys, throttle, clock.now()));
        let age = clock.now().since(head.saved_at).as_secs_f64();
        match restored {
            Ok(Restored { rows, blocks, over, left_out, notes }) => {
                status.put_back(&notes, clock.now());
                tracing::info!(
                    "{path}: the state was restored; entries: {rows}, blocks: {blocks}, age: {age:.0} s, expired: {}",
                    over + left_out
                );
            }
            Err(error) => tracing::warn!("{path}: {error}; only part of the state was restored"),
        }
        if !keys {
            tracing::warn!("{path}: its key secret differs from this slowlane's, so no entry was restored");
        }
        let changed = changed(&head, throttle);
        if changed > 0 {
            tracing::info!(
                "{path}: SLOs changed since the file was written: {changed}; the keys of those SLOs keep their counters"
            );
        }
    }
}

/// The number of SLOs whose rate, burst or law differs from the snapshot's, or that no longer exist.
fn changed(head: &SnapshotHead, throttle: &Throttle) -> usize {
    let policy = throttle.policy();
    let is_same = |(id, describe): &&(u32, String)| {
        policy.slos().any(|slo| slo.id.number() == *id && slo.describe() == *describe)
    };
    head.slos.len() - head.slos.iter().filter(is_same).count()
}

/// The last action of the snapshot writer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Last {
    Write,
    /// Another process writes the file from now on.
    Leave,
}

/// Writes the state file, in a thread of its own.
#[derive(Debug)]
pub(crate) struct SnapshotWriter {
    end: Sender<Last>,
    thread: JoinHandle<()>,
}

impl SnapshotWriter {
    /// Ends the thread with this last action, and waits until it has ended.
    pub(crate) fn end(self, last: Last) {
        let _ = self.end.send(last);
        let _ = self.thread.join();
    }
}
