//! The metadata of single files, to notice that they have changed and are whole.

use std::path::PathBuf;

use crate::watch::fingerprint::Seen;

/// The most looks at files that change all the time: then they are read all the same.
const LOOKS_MAX: u32 = 15;

/// Files, as they were when they were last read.
///
/// Files that belong together, like a certificate and its key, are written one after the other. They are read once two
/// looks find the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct FileState {
    files: Vec<PathBuf>,
    taken: Vec<Option<Seen>>,
    last: Vec<Option<Seen>>,
    /// Looks since the files were whole.
    looks: u32,
}

impl FileState {
    /// Files that nobody has read.
    pub(crate) fn new(files: Vec<PathBuf>) -> FileState {
        FileState { files, ..FileState::default() }
    }

    /// Files that will be read now.
    pub(crate) fn taken(files: Vec<PathBuf>) -> FileState {
        let mut state = FileState::new(files);
        state.taken = state.look();
        state
    }

    /// Takes a look. True: the files have changed and are to be read now.
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
