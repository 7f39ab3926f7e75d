//! Map files in a policy's directory that no lookup reads.

#![allow(clippy::disallowed_methods, reason = "it lists a directory, and opens nothing")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::policy::{Layout, WarningKind, Warnings};

/// The unused files, sorted by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Strays(BTreeSet<PathBuf>);

impl Strays {
    /// Finds `*.map` in the directory itself. Hidden files are skipped, because editors make them.
    pub fn look(dir: &Path, layout: &Layout) -> Strays {
        let read = layout.files(dir);
        // An unreadable directory has no readable slo.map either, and that is reported already.
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
