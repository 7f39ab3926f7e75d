//! The files that a writer has open, as far as the system tells.

use std::collections::BTreeSet;
use std::path::PathBuf;

use notify::event::{AccessKind, AccessMode, Event, EventKind, ModifyKind, RenameMode};

use crate::watch::fingerprint::{Fingerprint, Seen};

/// An event in a watched directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Noticed {
    Written(PathBuf),
    /// Closed by its writer, removed, or replaced.
    Closed(PathBuf),
    Renamed(PathBuf, PathBuf),
    /// Events were lost.
    Lost,
    Other,
}

impl Noticed {
    /// `None` for an event without an effect on the files, like a reader that opens one.
    pub(super) fn of(event: &Event) -> Option<Noticed> {
        let path = |number: usize| event.paths.get(number).cloned();
        if event.need_rescan() {
            return Some(Noticed::Lost);
        }
        let noticed = match event.kind {
            EventKind::Access(AccessKind::Close(AccessMode::Write)) => path(0).map(Noticed::Closed),
            EventKind::Access(_) => return None,
            EventKind::Modify(ModifyKind::Data(_)) => path(0).map(Noticed::Written),
            EventKind::Modify(ModifyKind::Name(RenameMode::To)) | EventKind::Remove(_) => {
                path(0).map(Noticed::Closed)
            }
            EventKind::Modify(ModifyKind::Name(RenameMode::Both)) => {
                path(0).zip(path(1)).map(|(from, to)| Noticed::Renamed(from, to))
            }
            _ => None,
        };
        Some(noticed.unwrap_or(Noticed::Other))
    }
}

/// The paths that were written and not closed since.
#[derive(Debug, Default)]
pub(super) struct Writers {
    open: BTreeSet<PathBuf>,
}

impl Writers {
    pub(super) fn notice(&mut self, noticed: Noticed) {
        match noticed {
            Noticed::Written(path) => drop(self.open.insert(path)),
            Noticed::Closed(path) => drop(self.open.remove(&path)),
            Noticed::Renamed(from, to) => {
                if self.open.remove(&from) {
                    self.open.insert(to);
                }
            }
            Noticed::Lost => self.open.clear(),
            Noticed::Other => {}
        }
    }

    /// Whether one of these files is open. Paths that are gone are forgotten.
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

    use super::*;

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
        writers.notice(Noticed::Written(new.clone()));
        assert!(!writers.have_open(&fingerprint(&map)), "no map yet");
        // It is renamed over the map before it is closed.
        fs::rename(&new, &map).unwrap();
        writers.notice(Noticed::Closed(map.clone()));
        writers.notice(Noticed::Renamed(new.clone(), map.clone()));
        assert!(writers.have_open(&fingerprint(&map)));
        writers.notice(Noticed::Closed(map.clone()));
        assert!(!writers.have_open(&fingerprint(&map)));
        // The close of a file that is gone has no path.
        writers.notice(Noticed::Written(map.clone()));
        let before = fingerprint(&map);
        fs::remove_file(&map).unwrap();
        assert!(!writers.have_open(&before) && writers.open.is_empty());
    }

    #[test]
    fn lost_events_leave_nothing_open() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut writers = Writers::default();
        writers.notice(Noticed::Written(file.path().to_owned()));
        assert!(writers.have_open(&fingerprint(file.path())));
        writers.notice(Noticed::Lost);
        assert!(!writers.have_open(&fingerprint(file.path())));
    }
}
