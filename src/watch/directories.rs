//! The directories that hold watched files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher};

/// The interval of checks without an event: network file systems send none.
pub(super) const LOOK: Duration = Duration::from_secs(5);

/// The longest chain of symbolic links that is followed.
const LINKS_MAX: usize = 8;

/// Adds the directory of `path` and, if it is a symbolic link, of each target in turn.
pub(super) fn follow(mut path: PathBuf, dirs: &mut BTreeSet<PathBuf>) {
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

/// The watched directories by path, each with its device and inode.
pub(super) struct Watch {
    watcher: Option<RecommendedWatcher>,
    dirs: BTreeMap<PathBuf, [u64; 2]>,
}

impl Watch {
    /// The system limits the number of watchers. Without one, edits are found at the next check ([`LOOK`]).
    ///
    /// `noticed` gets each event.
    pub(super) fn new(noticed: impl Fn(Event) + Send + 'static) -> Watch {
        let edited = move |event: notify::Result<Event>| {
            if let Ok(event) = event {
                noticed(event);
            }
        };
        let watcher = notify::recommended_watcher(edited).inspect_err(|error| {
            tracing::warn!("cannot watch the policy, edits take effect up to 5 s late: {error}");
        });
        Watch { watcher: watcher.ok(), dirs: BTreeMap::new() }
    }

    /// Watches exactly these directories. One that was replaced under the same name is watched again.
    pub(super) fn look_at(&mut self, paths: BTreeSet<PathBuf>) {
        let Some(watcher) = &mut self.watcher else { return };
        let identify = |path: PathBuf| {
            let found = fs::metadata(&path).ok()?;
            Some((path, [found.dev(), found.ino()]))
        };
        let dirs: BTreeMap<_, _> = paths.into_iter().filter_map(identify).collect();
        for (path, _) in self.dirs.iter().filter(|(path, dir)| dirs.get(*path) != Some(dir)) {
            let _ = watcher.unwatch(path);
        }
        // Renews all watches each time, because the watcher drops paths that seem to be renamed or removed.
        for path in dirs.keys() {
            if let Err(error) = watcher.watch(path, RecursiveMode::NonRecursive) {
                tracing::debug!("cannot watch {}, edits take effect up to 5 s late: {error}", path.display());
            }
        }
        self.dirs = dirs;
    }
}
