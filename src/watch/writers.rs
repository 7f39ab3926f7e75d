//! The files that a writer has open, as far as the system reports.

use std::collections::BTreeSet;
use std::path::PathBuf;

use notify::event::{AccessKind, AccessMode, Event, EventKind, ModifyKind, RenameMode};

use crate::watch::fingerprint::{Fingerprint, Seen};

/// Whether an event may affect files. Opening a file for reading does not.
pub(super) fn matters(event: &Event) -> bool {
    let is_close = event.kind == EventKind::Access(AccessKind::Close(AccessMode::Write));
    is_close || !event.kind.is_access() || event.need_rescan()
}

/// The paths that were written and not closed since.
#[derive(Debug, Default)]
pub(super) struct Writers {
    open: BTreeSet<PathBuf>,
}

impl Writers {
    pub(super) fn notice(&mut self, event: &Event) {
        match (event.kind, event.paths.as_slice()) {
            // Events were lost.
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
