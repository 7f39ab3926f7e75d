//! The metadata of files, by which edits are noticed.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use slowlane_core::policy::Strays;

/// The metadata of all files of a policy, which any edit changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fingerprint {
    /// `None` for a missing file.
    pub(super) files: Vec<Option<Seen>>,
    /// Map files that no lookup reads. They cause a warning as soon as they appear.
    pub(super) strays: Strays,
}

/// The metadata of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// Device and inode.
    pub(super) id: [u64; 2],
    pub(super) size: u64,
    /// The ctime (seconds, nanoseconds), because a change of permissions does not change mtime.
    pub(super) changed: [u64; 2],
}

impl Seen {
    pub(super) fn look(path: &Path) -> Option<Seen> {
        let found = fs::metadata(path).ok()?;
        Some(Seen {
            id: [found.dev(), found.ino()],
            size: found.size(),
            changed: [found.ctime() as u64, found.ctime_nsec() as u64],
        })
    }
}

impl Fingerprint {
    /// The metadata of files that do not belong to a policy.
    pub(super) fn of(files: &[PathBuf]) -> Fingerprint {
        Fingerprint { files: files.iter().map(|path| Seen::look(path)).collect(), ..Fingerprint::default() }
    }

    /// Whether a file was created, or changed its size but not its inode. In both cases, its writer may still write.
    ///
    /// A file that was renamed over another file is complete.
    pub(super) fn is_written_in_place_since(&self, before: &Fingerprint) -> bool {
        let in_place = |(now, before): (&Option<Seen>, &Option<Seen>)| match (now, before) {
            (Some(now), Some(before)) => now.id == before.id && now.size != before.size,
            (Some(_), None) => true,
            (None, _) => false,
        };
        self.files.iter().zip(&before.files).any(in_place)
    }

    /// Whether one of the files has this device and inode.
    pub(super) fn has(&self, id: [u64; 2]) -> bool {
        self.files.iter().flatten().any(|seen| seen.id == id)
    }
}
