//! The metadata of single files, to detect that they have changed and are complete.

use std::path::PathBuf;

use crate::watch::fingerprint::Seen;

/// The maximum number of checks of files that change all the time: then they are read anyway.
const LOOKS_MAX: u32 = 15;

/// The metadata of files when they were last read.
///
/// Files that belong together, like a certificate and its key, are written one after the other, so they are read
/// only when two checks have found the same metadata.
#[derive(Clone, Debug, Default)]
pub(crate) struct FileState {
    files: Vec<PathBuf>,
    taken: Vec<Option<Seen>>,
    last: Vec<Option<Seen>>,
    /// Checks since the files were complete.
    looks: u32,
}

impl FileState {
    /// Files that have not been read.
    pub(crate) fn new(files: Vec<PathBuf>) -> FileState {
        FileState { files, ..FileState::default() }
    }

    /// Files that will be read now.
    pub(crate) fn taken(files: Vec<PathBuf>) -> FileState {
        let mut state = FileState::new(files);
        state.taken = state.look();
        state
    }

    /// Checks the files. True: they have changed and must be read now.
    pub(crate) fn has_settled(&mut self) -> bool {
        let found = self.look();
        let is_whole = found == self.last || self.looks == LOOKS_MAX;
        self.looks = if is_whole { 0 } else { self.looks + 1 };
        self.last = found;
        let has_settled = is_whole && self.last != self.taken;
        if has_settled {
            self.taken.clone_from(&self.last);
        }
        has_settled
    }

    fn look(&self) -> Vec<Option<Seen>> {
        self.files.iter().map(|path| Seen::look(path)).collect()
    }
}
