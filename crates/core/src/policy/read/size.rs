//! How much a map holds.

use std::path::PathBuf;

/// How much a map holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::policy) struct MapSize {
    /// As the layout names it.
    pub(in crate::policy) file: PathBuf,
    /// The lines that hold a key. None: there is no such file.
    pub(in crate::policy) lines: Option<usize>,
}
