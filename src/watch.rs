//! The hot reload: an edited policy replaces the old one as a whole, or is refused as a whole.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "it looks at files, in a thread of its own"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher};

use crate::observe::clock::Clock;
use crate::observe::metrics::Metrics;
use crate::observe::status::Status;
use crate::observe::systemd;
use crate::policy::{Layout, Policy, Problems, Strays};
use crate::throttle::Throttle;

/// An edit is read once the directory has been quiet for this long. Editors and `cp` write several files, and one
/// file in several steps.
const SETTLE: Duration = Duration::from_millis(100);

/// A directory that never gets quiet is read after this many waits.
const SETTLES_MAX: u32 = 20;

/// The most readings of a policy that is edited during each of them. The last one counts.
const READINGS_MAX: u32 = 5;

/// The interval of looks at the files without any event: network file systems send none.
const LOOK: Duration = Duration::from_secs(5);

/// The longest chain of symbolic links that is followed.
const LINKS_MAX: usize = 8;

/// A policy directory and its layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    dir: PathBuf,
    layout: Layout,
    /// The agent cuts longer delays, so the policy is warned of them.
    hold_max: Duration,
}

impl Source {
    pub(crate) fn new(dir: PathBuf, layout: Layout, hold_max: Duration) -> Source {
        Source { dir, layout, hold_max }
    }

    pub(crate) fn read(&self) -> Result<Policy, Problems> {
        let mut policy = Policy::read(&self.dir, &self.layout)?;
        policy.warn_of_delays_over(self.hold_max);
        Ok(policy)
    }

    /// The metadata of the files: any edit changes it.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        let look = |path: PathBuf| {
            let found = fs::metadata(path).ok()?;
            // Not the modification time: a change of permissions alone leaves it as it is.
            Some([found.dev(), found.ino(), found.size(), found.ctime() as u64, found.ctime_nsec() as u64])
        };
        let files = self.layout.files(&self.dir).into_iter().map(look).collect();
        Fingerprint { files, strays: Strays::look(&self.dir, &self.layout) }
    }

    /// The directories in which an edit of any of the files shows: a file that is replaced by a rename, or
    /// reached through a link that is, changes only in the directory that names it.
    fn watched(&self) -> BTreeSet<PathBuf> {
        let mut dirs = BTreeSet::from([self.dir.clone()]);
        for path in self.layout.files(&self.dir).into_iter().chain([self.dir.clone()]) {
            follow(path, &mut dirs);
        }
        dirs
    }
}

/// Adds the directory of `path`, and of each path that it is a symbolic link to.
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
    /// Device, inode, size and time of change of every file, or none where there is no file.
    files: Vec<Option<[u64; 5]>>,
    /// Map files that no lookup reads. They cause a warning as soon as they appear.
    strays: Strays,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wake {
    /// Something has changed in a watched directory.
    Edit,
    /// An operator asks (SIGHUP), whether anything has changed or not.
    Ask,
}

/// Asks for a reload.
#[derive(Clone, Debug)]
pub(crate) struct Reload(Sender<Wake>);

impl Reload {
    pub(crate) fn ask(&self) {
        // The reloader lives as long as the process.
        let _ = self.0.send(Wake::Ask);
    }
}

/// Reads the source again whenever it is edited, in a thread of its own: a map of a million lines must not
/// make a request wait. `seen` is its fingerprint from before it was last read.
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
        // An edit between the first reading and the first look is found like any other.
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

    /// Reads until no edit comes in between: such a reading may be half old, half new. If edits never stop, the last
    /// reading counts.
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
                tracing::error!("policy not reloaded from {dir}, the one before serves on");
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
        Err(problems) => format!("serving the policy from before an edit: {problems}"),
    }
}

/// Waits until no more edits come in.
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

/// Waits until no request uses a policy, and frees it here instead of on a request's path.
fn free(old: Arc<Policy>) {
    while Arc::strong_count(&old) > 1 {
        thread::sleep(Duration::from_millis(10));
    }
}

/// The directories that are watched, by path, each with its device and inode.
struct Watch {
    watcher: Option<RecommendedWatcher>,
    dirs: BTreeMap<PathBuf, [u64; 2]>,
}

impl Watch {
    /// Without a watcher, edits are noticed at the next look. The system has a limited number of them.
    fn new(wake: Sender<Wake>) -> Watch {
        let edited = move |event: notify::Result<notify::Event>| {
            if event.is_ok_and(|event| !event.kind.is_access()) {
                let _ = wake.send(Wake::Edit);
            }
        };
        let watcher = notify::recommended_watcher(edited).inspect_err(|error| {
            tracing::warn!("edits of the policy are noticed late: {error}");
        });
        Watch { watcher: watcher.ok(), dirs: BTreeMap::new() }
    }

    /// Follows the links as they are now. A directory replaced by another of its name is another one.
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
        // All of them, each time: the watcher drops paths that seem renamed or removed.
        for path in dirs.keys() {
            if let Err(error) = watcher.watch(path, RecursiveMode::NonRecursive) {
                tracing::debug!("edits in {} are noticed late: {error}", path.display());
            }
        }
        self.dirs = dirs;
    }
}
