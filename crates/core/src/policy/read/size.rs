//! The number of lines of a map.

use std::path::PathBuf;

/// The number of lines of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::policy) struct MapSize {
    /// The name of the file in the layout.
    pub(in crate::policy) file: PathBuf,
    /// The lines that hold a key. None: the file does not exist.
    pub(in crate::policy) lines: Option<usize>,
}
