//! The files of a policy: their contents, and map files that no lookup reads.

#![allow(clippy::disallowed_methods, reason = "this module reads and lists files for callers at the edge")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::policy::{FILE_BYTES_MAX, Layout, Line, WarningKind, Warnings, map};

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

    /// The text. Empty if the file could not be read.
    pub(in crate::policy) fn text(&self) -> &[u8] {
        self.text.as_deref().unwrap_or_default()
    }

    /// The valid lines that hold a key.
    pub(in crate::policy) fn lines(&self) -> impl Iterator<Item = Line<'_>> {
        map::lines(self.text()).flatten()
    }
}

/// Reads a regular file of bounded size. Other kinds of file are refused, because a pipe could block a reload forever.
pub(in crate::policy) fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let metadata = fs::metadata(path)?;
    if !metadata.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    check_size(metadata.len())?;
    fs::read(path)
}

fn check_size(bytes: u64) -> io::Result<()> {
    let error = || io::Error::other(format!("the file is larger than {FILE_BYTES_MAX} bytes"));
    if bytes > FILE_BYTES_MAX { Err(error()) } else { Ok(()) }
}

/// Map files in a policy's directory that no lookup reads, sorted by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Strays(BTreeSet<PathBuf>);

impl Strays {
    /// Finds unused `*.map` files in the directory itself. Hidden files are skipped, because editors create them.
    pub fn look(dir: &Path, layout: &Layout) -> Strays {
        let read = layout.files(dir);
        // An unreadable directory is ignored, because its unreadable `slo.map` has already been reported.
        let paths = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
        Strays(paths.filter(|path| is_map(path) && !read.contains(path)).collect())
    }

    pub(in crate::policy) fn warn(self, layout: &Layout, warnings: &mut Warnings) {
        let names = || {
            let files = layout.files(Path::new(""));
            files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(", ")
        };
        for path in self.0 {
            warnings.add_with(&path, || (None, WarningKind::Unread(names())));
        }
    }
}

fn is_map(path: &Path) -> bool {
    let is_hidden = |name: &std::ffi::OsStr| name.as_encoded_bytes().starts_with(b".");
    path.extension().is_some_and(|extension| extension == "map")
        && !path.file_name().is_none_or(is_hidden)
        && path.is_file()
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
