//! A file of a policy, as it was read.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the one file of this room that reads files"
)]

use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::policy::bounds::FILE_BYTES_MAX;
use crate::policy::read::map::{self, Line};

/// Where it was looked for, and what was there.
#[derive(Debug)]
pub(in crate::policy) struct MapFile {
    pub(in crate::policy) path: PathBuf,
    pub(in crate::policy) text: io::Result<Vec<u8>>,
}

impl MapFile {
    pub(in crate::policy) fn read(path: PathBuf, read: impl Fn(&Path) -> io::Result<Vec<u8>>) -> MapFile {
        let text = read(&path).and_then(|text| check_size(text.len() as u64).map(|()| text));
        MapFile { path, text }
    }

    /// What was there, or nothing.
    pub(in crate::policy) fn text(&self) -> &[u8] {
        self.text.as_deref().unwrap_or_default()
    }

    /// The lines that hold a key and can be read.
    pub(in crate::policy) fn lines(&self) -> impl Iterator<Item = Line<'_>> {
        map::lines(self.text()).flatten()
    }
}

/// Reads a regular file that is not too large. A pipe would make a reload wait for ever.
pub(in crate::policy) fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let metadata = fs::metadata(path)?;
    if !metadata.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    check_size(metadata.len())?;
    fs::read(path)
}

fn check_size(bytes: u64) -> io::Result<()> {
    let error = || io::Error::other(format!("more than {FILE_BYTES_MAX} bytes"));
    if bytes > FILE_BYTES_MAX { Err(error()) } else { Ok(()) }
}
