//! A file of a policy: its path and its text.

#![allow(clippy::disallowed_methods, reason = "it reads the files of a policy for callers at the edge")]

use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::policy::{FILE_BYTES_MAX, Line, map};

/// The path of a file, and the result of reading it.
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

    /// The text, empty if the file was not read.
    pub(in crate::policy) fn text(&self) -> &[u8] {
        self.text.as_deref().unwrap_or_default()
    }

    /// The valid lines that hold a key.
    pub(in crate::policy) fn lines(&self) -> impl Iterator<Item = Line<'_>> {
        map::lines(self.text()).flatten()
    }
}

/// Reads a regular file of bounded size. A pipe could block a reload forever.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_as_many_bytes_as_it_may_and_no_more() {
        assert!(check_size(FILE_BYTES_MAX).is_ok());
        assert!(check_size(FILE_BYTES_MAX + 1).is_err());
    }
}
