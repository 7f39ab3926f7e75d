//! The hot reload: an edited policy replaces the old one, unless it has an error.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "it reads files, in its own thread")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher};

use crate::base::key::KeySecret;
use crate::observe::clock::Clock;
use crate::observe::metrics::Metrics;
use crate::observe::status::Status;
use crate::observe::systemd;
use crate::policy::{Layout, Policy, Problems, Strays};
use crate::throttle::Throttle;

/// The time without changes before an edit is read: editors and `cp` write several files, and each in several steps.
const SETTLE: Duration = Duration::from_millis(100);

/// The most such waits: a directory that changes all the time is read after them.
const SETTLES_MAX: u32 = 20;

/// The most attempts to read a policy that is edited meanwhile. The last one counts.
const READINGS_MAX: u32 = 5;

/// The interval of checks without an event: network file systems send none.
const LOOK: Duration = Duration::from_secs(5);

/// The longest chain of symbolic links that is followed.
const LINKS_MAX: usize = 8;

/// A policy directory and its layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    dir: PathBuf,
    layout: Layout,
    /// Longer delays are cut to this, so they cause a warning.
    hold_max: Duration,
    /// Every generation has the same keys.
    key_secret: KeySecret,
}

impl Source {
    /// Its keys have the secret [`KeySecret::KNOWN`], until [`with_key_secret`](Source::with_key_secret).
    pub(crate) fn new(dir: PathBuf, layout: Layout, hold_max: Duration) -> Source {
        Source { dir, layout, hold_max, key_secret: KeySecret::KNOWN }
    }

    pub(crate) fn with_key_secret(self, key_secret: KeySecret) -> Source {
        Source { key_secret, ..self }
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(crate) fn read(&self) -> Result<Policy, Problems> {
        let mut policy = Policy::read(&self.dir, &self.layout)?.with_key_secret(self.key_secret);
        policy.warn_of_delays_over(self.hold_max);
        Ok(policy)
    }

    /// The metadata of the files: any edit changes it.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        let look = |path: PathBuf| {
            let found = fs::metadata(path).ok()?;
            // ctime, because a change of permissions does not change mtime.
            Some([found.dev(), found.ino(), found.size(), found.ctime() as u64, found.ctime_nsec() as u64])
        };
        let files = self.layout.files(&self.dir).into_iter().map(look).collect();
        Fingerprint { files, strays: Strays::look(&self.dir, &self.layout) }
    }

    /// The directories to watch for edits of the files.
    ///
    /// A rename replaces a file, or a symbolic link to it, without an event for the file itself. The event comes from
    /// the directory that holds the name.
    fn watched(&self) -> BTreeSet<PathBuf> {
        let mut dirs = BTreeSet::from([self.dir.clone()]);
        for path in self.layout.files(&self.dir).into_iter().chain([self.dir.clone()]) {
            follow(path, &mut dirs);
        }
        dirs
    }
}

/// Adds the directory of `path` and, if it is a symbolic link, of each target in turn.
fn follow(mut path: PathBuf, dirs: &mut BTreeSet<PathBuf>) {
    for _ in 0..LINKS_MAX {
        let dir = match path.parent() {
            Some(dir) if dir.as_os_str().is_empty() => PathBuf::from("."),
            Some(dir) => dir.to_owned(),
            None => return,
        };
        let target = fs::read_link(&path).map(|target| dir.join(target));
        dirs.insert(dir);
        match target {
            Ok(target) => path = target,
            Err(_) => return,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint {
    /// Device, inode, size and ctime (seconds, nanoseconds) of every file; `None` for a missing file.
    files: Vec<Option<[u64; 5]>>,
    /// Map files that no lookup reads. They cause a warning as soon as they appear.
    strays: Strays,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wake {
    /// A watched directory has changed, or it is time to check.
    Edit,
    /// SIGHUP: read the policy even if nothing has changed.
    Ask,
}

/// Asks for a reload.
#[derive(Clone, Debug)]
pub(crate) struct Reload(Sender<Wake>);

impl Reload {
    pub(crate) fn ask(&self) {
        // The reloader runs until the process ends.
        let _ = self.0.send(Wake::Ask);
    }
}

/// Starts the thread that reads the source again after each edit.
///
/// It is a separate thread so that no request waits for a map of a million lines. `seen` is the fingerprint of the
/// source, taken before it was last read.
pub(crate) fn start(
    source: Source,
    seen: Fingerprint,
    throttle: Arc<Throttle>,
    metrics: Arc<Metrics>,
    status: Arc<Status>,
    clock: Clock,
) -> Reload {
    let (wake, wakes) = mpsc::channel();
    let watch = Watch::new(wake.clone());
    let reloader = Reloader { source, throttle, metrics, status, clock };
    thread::Builder::new()
        .name("reload".into())
        .spawn(move || reloader.run(seen, &wakes, watch))
        .expect("the system can start a thread");
    Reload(wake)
}

struct Reloader {
    source: Source,
    throttle: Arc<Throttle>,
    metrics: Arc<Metrics>,
    status: Arc<Status>,
    clock: Clock,
}

impl Reloader {
    fn run(self, mut seen: Fingerprint, wakes: &Receiver<Wake>, mut watch: Watch) {
        // The check below also finds an edit between the first reading and this watch.
        watch.look_at(self.source.watched());
        let mut wake = settle(Wake::Edit, wakes);
        loop {
            watch.look_at(self.source.watched());
            if wake == Wake::Ask || self.source.fingerprint() != seen {
                if wake == Wake::Ask {
                    systemd::reloading();
                }
                let read;
                (seen, read) = self.read_whole(wakes);
                self.metrics.policy_refused.set(i64::from(read.is_err()));
                systemd::status(&status(&read));
                self.put_in_force(read);
                if wake == Wake::Ask {
                    systemd::ready();
                }
            } else {
                tracing::debug!("policy files unchanged");
            }
            wake = match wakes.recv_timeout(LOOK) {
                Ok(next) => settle(next, wakes),
                Err(RecvTimeoutError::Timeout) => Wake::Edit,
                Err(RecvTimeoutError::Disconnected) => return,
            };
        }
    }

    /// Reads the policy, again if it was edited meanwhile: old and new files may be mixed. After [`READINGS_MAX`]
    /// readings, the last one counts.
    fn read_whole(&self, wakes: &Receiver<Wake>) -> (Fingerprint, Result<Policy, Problems>) {
        let mut found = self.source.fingerprint();
        let mut read = self.source.read();
        for _ in 1..READINGS_MAX {
            let after = self.source.fingerprint();
            if after == found {
                break;
            }
            settle(Wake::Edit, wakes);
            found = self.source.fingerprint();
            read = self.source.read();
        }
        (found, read)
    }

    fn put_in_force(&self, read: Result<Policy, Problems>) {
        let dir = self.source.dir.display();
        match read {
            Ok(policy) => {
                let summary = policy.summary_after(&self.throttle.policy());
                tracing::info!("policy reloaded from {dir}: {summary}");
                let warnings = policy.warnings().to_string();
                warn(&warnings);
                self.status.reloads.done(self.clock.now(), summary, &warnings);
                let old = self.throttle.replace(policy);
                self.metrics.reloads_done.inc();
                free(old);
            }
            Err(problems) => {
                self.metrics.reloads_refused.inc();
                tracing::error!("policy not reloaded from {dir}, the previous one stays in force");
                let problems = problems.to_string();
                self.status.reloads.refused(self.clock.now(), &problems);
                for problem in problems.lines() {
                    tracing::error!("{problem}");
                }
            }
        }
    }
}

/// Logs the warnings of a policy, one per line.
pub(crate) fn warn(warnings: &str) {
    for warning in warnings.lines() {
        tracing::warn!("{warning}");
    }
}

/// The text that `systemctl status` shows.
fn status(read: &Result<Policy, Problems>) -> String {
    match read {
        Ok(policy) => format!("serving {}", policy.summary()),
        Err(problems) => format!("serving the previous policy: {problems}"),
    }
}

/// Waits until the directory has been unchanged for [`SETTLE`].
fn settle(first: Wake, wakes: &Receiver<Wake>) -> Wake {
    let mut wake = first;
    for _ in 0..SETTLES_MAX {
        match wakes.recv_timeout(SETTLE) {
            Ok(Wake::Ask) => wake = Wake::Ask,
            Ok(Wake::Edit) => {}
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
        }
        while let Ok(more) = wakes.try_recv() {
            if more == Wake::Ask {
                wake = Wake::Ask;
            }
        }
    }
    wake
}

/// Waits until no request uses the old policy, so that this thread frees it and no request has to.
fn free(old: Arc<Policy>) {
    while Arc::strong_count(&old) > 1 {
        thread::sleep(Duration::from_millis(10));
    }
}

/// The watched directories by path, each with its device and inode.
struct Watch {
    watcher: Option<RecommendedWatcher>,
    dirs: BTreeMap<PathBuf, [u64; 2]>,
}

impl Watch {
    /// The system limits the number of watchers. Without one, edits are found at the next check ([`LOOK`]).
    fn new(wake: Sender<Wake>) -> Watch {
        let edited = move |event: notify::Result<notify::Event>| {
            if event.is_ok_and(|event| !event.kind.is_access()) {
                let _ = wake.send(Wake::Edit);
            }
        };
        let watcher = notify::recommended_watcher(edited).inspect_err(|error| {
            tracing::warn!("cannot watch the policy, edits take effect up to 5 s late: {error}");
        });
        Watch { watcher: watcher.ok(), dirs: BTreeMap::new() }
    }

    /// Watches these directories and no others. One that was replaced under the same name is watched anew.
    fn look_at(&mut self, paths: BTreeSet<PathBuf>) {
        let Some(watcher) = &mut self.watcher else { return };
        let identify = |path: PathBuf| {
            let found = fs::metadata(&path).ok()?;
            Some((path, [found.dev(), found.ino()]))
        };
        let dirs: BTreeMap<_, _> = paths.into_iter().filter_map(identify).collect();
        for (path, _) in self.dirs.iter().filter(|(path, dir)| dirs.get(*path) != Some(dir)) {
            let _ = watcher.unwatch(path);
        }
        // All directories, each time: the watcher drops paths that seem renamed or removed.
        for path in dirs.keys() {
            if let Err(error) = watcher.watch(path, RecursiveMode::NonRecursive) {
                tracing::debug!("cannot watch {}, edits take effect up to 5 s late: {error}", path.display());
            }
        }
        self.dirs = dirs;
    }
}
