//! Single files that are read again when they change, all of them together.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "it looks at files, in its own thread"
)]

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::Duration;

use crate::observe::revive::revived;
use crate::watch::directories::{LOOK, Watch, follow};
use crate::watch::fingerprint::Seen;
use crate::watch::writers::Noticed;

/// Files that belong together, like a certificate and its key, are written one after the other. They are read once
/// nothing has changed for so long.
const QUIET: Duration = Duration::from_millis(300);

/// The most waits for quiet: files that change all the time are read all the same.
const WAITS_MAX: u32 = 10;

/// Events that arrive within this time cause one look.
const GATHER: Duration = Duration::from_millis(10);

/// Files, and their metadata before they were read.
#[derive(Debug)]
pub(crate) struct FileState {
    files: Vec<PathBuf>,
    seen: Vec<Option<Seen>>,
}

/// Asks for another reading.
#[derive(Clone, Debug)]
pub(crate) struct ReloadHandle {
    wake: SyncSender<()>,
    is_asked: Arc<AtomicBool>,
}

impl ReloadHandle {
    /// The files are read again, changed or not.
    pub(crate) fn ask(&self) {
        self.is_asked.store(true, Relaxed);
        // Without room, a wake is on its way. The thread runs until the process ends.
        let _ = self.wake.try_send(());
    }
}

impl FileState {
    /// Looks at files that will be read now.
    pub(crate) fn of(files: Vec<PathBuf>) -> FileState {
        let seen = look(&files);
        FileState { files, seen }
    }

    /// Starts the thread that calls `read` after each change of a file since the state. `what` the files are is said in
    /// the log.
    pub(crate) fn watch(self, what: &'static str, read: impl Fn() + Send + 'static) -> ReloadHandle {
        let (wake, wakes) = mpsc::sync_channel(1);
        let noticed = wake.clone();
        let directories = Watch::new(what, move |event| {
            if Noticed::of(event).is_some() {
                let _ = noticed.try_send(());
            }
        });
        let is_asked = Arc::new(AtomicBool::new(false));
        let mut watched = Watched { state: self, is_asked: is_asked.clone(), directories };
        thread::Builder::new()
            .name("files".into())
            .spawn(move || revived(what, || watched.run(&wakes, &read)))
            .expect("the system can start a thread");
        ReloadHandle { wake, is_asked }
    }
}

struct Watched {
    state: FileState,
    is_asked: Arc<AtomicBool>,
    directories: Watch,
}

impl Watched {
    fn run(&mut self, wakes: &Receiver<()>, read: &impl Fn()) {
        loop {
            self.directories.look_at(self.folders());
            let is_asked = self.is_asked.swap(false, Relaxed);
            let has_changed = look(&self.state.files) != self.state.seen;
            if has_changed {
                self.wait_for_quiet();
            }
            if has_changed || is_asked {
                read();
            }
            match wakes.recv_timeout(LOOK) {
                Ok(()) => thread::sleep(GATHER),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Waits until the files no longer change. A change after that is noticed in the next round.
    fn wait_for_quiet(&mut self) {
        for _ in 0..WAITS_MAX {
            let found = look(&self.state.files);
            thread::sleep(QUIET);
            self.state.seen = look(&self.state.files);
            if self.state.seen == found {
                return;
            }
        }
    }

    fn folders(&self) -> BTreeSet<PathBuf> {
        let mut folders = BTreeSet::new();
        self.state.files.iter().for_each(|path| follow(path.clone(), &mut folders));
        folders
    }
}

fn look(files: &[PathBuf]) -> Vec<Option<Seen>> {
    files.iter().map(|path| Seen::look(path)).collect()
}
