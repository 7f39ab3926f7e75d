//! The events of the directories that hold watched files, and the files that a writer has open.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

use notify::event::{AccessKind, AccessMode, EventKind, ModifyKind, RenameMode};
use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher};

use crate::watch::fingerprint::{Fingerprint, Seen};

/// How often files are checked without an event, because network file systems send no events.
pub(super) const LOOK: Duration = Duration::from_secs(5);

/// The longest chain of symbolic links that is followed.
const LINKS_MAX: usize = 8;

/// Adds to `dirs` the directory of `path` and, if `path` is a symbolic link, the directory of each target in turn.
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
    /// Starts a watcher, if the system's limit allows one more. Without a watcher, edits are found at the next check
    /// ([`LOOK`]).
    ///
    /// `noticed` gets each event.
    pub(super) fn new(noticed: impl Fn(Event) + Send + 'static) -> Watch {
        let edited = move |event: notify::Result<Event>| {
            if let Ok(event) = event {
                noticed(event);
            }
        };
        let watcher = notify::recommended_watcher(edited).inspect_err(|error| {
            tracing::warn!("cannot watch the policy; edits take effect up to 5 s late: {error}");
        });
        Watch { watcher: watcher.ok(), dirs: BTreeMap::new() }
    }

    /// Watches exactly these directories. A directory that was replaced under the same name is watched again.
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
                tracing::debug!("cannot watch {}; edits take effect up to 5 s late: {error}", path.display());
            }
        }
        self.dirs = dirs;
    }
}

/// Whether an event may be part of an edit. Events of opening and reading are not.
pub(super) fn matters(event: &Event) -> bool {
    let is_close = event.kind == EventKind::Access(AccessKind::Close(AccessMode::Write));
    is_close || !event.kind.is_access() || event.need_rescan()
}

/// The paths that were written, and have not been closed since.
#[derive(Debug, Default)]
pub(super) struct Writers {
    open: BTreeSet<PathBuf>,
}

impl Writers {
    pub(super) fn notice(&mut self, event: &Event) {
        match (event.kind, event.paths.as_slice()) {
            // Events were lost, so it is unknown which files are open.
            _ if event.need_rescan() => self.open.clear(),
            (EventKind::Modify(ModifyKind::Data(_)), [path, ..]) => drop(self.open.insert(path.clone())),
            // Closed by its writer, replaced, or removed.
            (
                EventKind::Access(AccessKind::Close(AccessMode::Write))
                | EventKind::Modify(ModifyKind::Name(RenameMode::To))
                | EventKind::Remove(_),
                [path, ..],
            ) => drop(self.open.remove(path)),
            (EventKind::Modify(ModifyKind::Name(RenameMode::Both)), [from, to, ..]) => {
                let was_open = self.open.remove(from);
                if was_open {
                    self.open.insert(to.clone());
                }
            }
            _ => {}
        }
    }

    /// Whether a writer has one of these files open. Paths that no longer exist are forgotten.
    pub(super) fn have_open(&mut self, files: &Fingerprint) -> bool {
        let mut is_open = false;
        self.open.retain(|path| {
            let seen = Seen::look(path);
            is_open |= seen.is_some_and(|seen| files.has(seen.id));
            seen.is_some()
        });
        is_open
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use notify::event::{DataChange, Flag};

    use super::*;

    const CLOSED: EventKind = EventKind::Access(AccessKind::Close(AccessMode::Write));
    const RENAMED: EventKind = EventKind::Modify(ModifyKind::Name(RenameMode::Both));
    const WRITTEN: EventKind = EventKind::Modify(ModifyKind::Data(DataChange::Any));

    fn event(kind: EventKind, path: &Path) -> Event {
        Event::new(kind).add_path(path.to_owned())
    }

    fn fingerprint(path: &Path) -> Fingerprint {
        Fingerprint { files: vec![Seen::look(path)], ..Fingerprint::default() }
    }

    #[test]
    fn a_file_is_open_from_its_first_write_to_its_close_under_whatever_name() {
        let folder = tempfile::tempdir().unwrap();
        let [map, new] = ["website.map", "website.map.new"].map(|name| folder.path().join(name));
        fs::write(&map, "a 1\n").unwrap();
        fs::write(&new, "b 1\n").unwrap();
        let mut writers = Writers::default();
        assert!(!writers.have_open(&fingerprint(&map)));
        writers.notice(&event(WRITTEN, &new));
        assert!(!writers.have_open(&fingerprint(&map)), "no map yet");
        // It is renamed over the map before it is closed.
        fs::rename(&new, &map).unwrap();
        writers.notice(&event(CLOSED, &map));
        writers.notice(&event(RENAMED, &new).add_path(map.clone()));
        assert!(writers.have_open(&fingerprint(&map)));
        writers.notice(&event(CLOSED, &map));
        assert!(!writers.have_open(&fingerprint(&map)));
        // The close of a file that is gone has no path.
        writers.notice(&event(WRITTEN, &map));
        let before = fingerprint(&map);
        fs::remove_file(&map).unwrap();
        assert!(!writers.have_open(&before) && writers.open.is_empty());
    }

    #[test]
    fn lost_events_leave_nothing_open() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut writers = Writers::default();
        writers.notice(&event(WRITTEN, file.path()));
        assert!(writers.have_open(&fingerprint(file.path())));
        writers.notice(&Event::new(EventKind::Other).set_flag(Flag::Rescan));
        assert!(!writers.have_open(&fingerprint(file.path())));
    }
}
