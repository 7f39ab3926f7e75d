//! The file of the decision log. After log rotation has renamed the file, a new one is created.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::observe::Clock;
use slowlane_core::base::Timestamp;

/// The shortest time between two checks for rotation.
const LOOK: Duration = Duration::from_secs(1);

/// A file that is opened again if its path no longer exists or leads to another file.
pub(super) struct RotatedFile {
    file: File,
    path: PathBuf,
    looked_at: Timestamp,
    clock: Clock,
}

impl RotatedFile {
    pub(super) fn open(path: &Path, clock: Clock) -> io::Result<RotatedFile> {
        Ok(RotatedFile { file: open(path)?, path: path.to_owned(), looked_at: clock.now(), clock })
    }

    fn follow(&mut self) -> io::Result<()> {
        let now = self.clock.now();
        if now.since(self.looked_at) < LOOK {
            return Ok(());
        }
        self.looked_at = now;
        let open_one = self.file.metadata()?;
        let is_same = |found: fs::Metadata| (found.dev(), found.ino()) == (open_one.dev(), open_one.ino());
        if !fs::metadata(&self.path).is_ok_and(is_same) {
            self.file = open(&self.path)?;
        }
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

impl Write for RotatedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.follow()?;
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_moved_away_is_begun_anew() {
        let folder = tempfile::tempdir().unwrap();
        let [path, moved] = ["log", "log.1"].map(|name| folder.path().join(name));
        let mut file = RotatedFile::open(&path, Clock::start()).unwrap();
        file.write_all(b"one\n").unwrap();
        fs::rename(&path, &moved).unwrap();
        file.write_all(b"two\n").unwrap();
        file.looked_at = Timestamp::default();
        file.write_all(b"three\n").unwrap();
        assert_eq!(fs::read_to_string(moved).unwrap(), "one\ntwo\n");
        assert_eq!(fs::read_to_string(path).unwrap(), "three\n");
    }
}
