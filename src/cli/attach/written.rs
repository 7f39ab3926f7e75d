//! Adds slowlane's lines to the operator's files, keeps copies of the originals, and removes the lines again.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use similar::TextDiff;
use tempfile::NamedTempFile;

use crate::cli::{say, tell};
use crate::proxy::attach::{Block, Refused, detached, with_blocks};
use crate::proxy::shipped::File;

/// A change to an operator's file. The path is the real path of the file, so that a symbolic link to it stays a link.
pub(super) struct FileChange {
    pub(super) path: PathBuf,
    pub(super) before: String,
    pub(super) after: String,
}

impl FileChange {
    /// A change that adds a block of lines to a file.
    pub(super) fn of(path: PathBuf, before: String, block: Block) -> FileChange {
        let after = with_blocks(&before, vec![block]);
        FileChange { path, before, after }
    }

    /// Prints the difference.
    pub(super) fn show(&self, what: &str) -> anyhow::Result<()> {
        let old = self.path.display().to_string();
        let diff = TextDiff::from_lines(&self.before, &self.after);
        say(&diff.unified_diff().header(&old, &format!("{old} {what}")).to_string())
    }

    fn write(&self) -> anyhow::Result<()> {
        ensure!(
            read(&self.path)? == self.before,
            "{}: this file was just edited: try again",
            self.path.display()
        );
        write_over(&self.path, &self.after, &self.path)
    }
}

pub(super) fn read(path: &Path) -> Result<String, Refused> {
    String::from_utf8(bytes(path)?)
        .map_err(|_| Refused::Unread(format!("{}: this file is not UTF-8 text", path.display())))
}

/// The text of a file, with invalid UTF-8 replaced. This text is never written back.
pub(in crate::cli) fn lossy(path: &Path) -> Result<String, Refused> {
    Ok(String::from_utf8_lossy(&bytes(path)?).into_owned())
}

fn bytes(path: &Path) -> Result<Vec<u8>, Refused> {
    fs::read(path).map_err(|error| Refused::Unread(format!("{}: {error}", path.display())))
}

/// The folder of slowlane's own files, beside the operator's main file.
pub(super) struct Folder(pub(super) PathBuf);

impl Folder {
    /// The path of a file's backup, which the operator's includes do not match.
    pub(super) fn backup(&self, path: &Path) -> PathBuf {
        self.0.join("before").join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Writes slowlane's own files, backups of the files that change, and finally either all changes or none.
    pub(super) fn write(&self, files: &[File], changes: &[FileChange]) -> anyhow::Result<()> {
        for File { name, text } in files {
            let path = self.0.join(name);
            // If the operator has edited the file, a backup of the edited version is kept, too.
            if fs::read_to_string(&path).is_ok_and(|there| there != *text) {
                self.back_up(&path)?;
            }
            write_over(&path, text, &path)?;
        }
        changes.iter().try_for_each(|change| self.back_up(&change.path))?;
        write_all(changes)
    }

    fn back_up(&self, path: &Path) -> anyhow::Result<()> {
        write_over(&self.backup(path), bytes(path)?, path)
    }

    /// The files that were changed earlier, found by their backups.
    pub(super) fn changed(&self) -> anyhow::Result<Vec<PathBuf>> {
        let kept = self.0.join("before");
        let pattern = format!("{}/**/*", glob::Pattern::escape(&kept.display().to_string()));
        let paths = glob::glob(&pattern)?.flatten().filter(|path| path.is_file());
        Ok(paths.filter_map(|path| Some(Path::new("/").join(path.strip_prefix(&kept).ok()?))).collect())
    }

    /// Removes slowlane's lines from these files, and removes each backup that equals the restored file.
    pub(super) fn undo(&self, main: &Path, paths: BTreeSet<PathBuf>) -> anyhow::Result<()> {
        let mut changes = Vec::new();
        for path in paths {
            if !path.try_exists()? {
                continue;
            }
            let before = read(&path)?;
            let after = detached(&before).with_context(|| path.display().to_string())?;
            changes.extend(after.map(|after| FileChange { path, before, after }));
        }
        ensure!(!changes.is_empty(), "{}: slowlane is not attached", main.display());
        changes.iter().try_for_each(|change| change.show("without slowlane"))?;
        write_all(&changes)?;
        for change in changes {
            let backup = self.backup(&change.path);
            if fs::read_to_string(&backup).is_ok_and(|kept| kept == change.after) {
                fs::remove_file(&backup)?;
                let empty = |folder: &&Path| *folder != self.0 && fs::remove_dir(folder).is_ok();
                backup.ancestors().skip(1).take_while(empty).for_each(drop);
            }
        }
        tell(format_args!(
            "reload the proxy so that it stops querying slowlane; slowlane's own files stay in {}",
            self.0.display()
        ));
        Ok(())
    }
}

/// Writes all of the files or none.
fn write_all(changes: &[FileChange]) -> anyhow::Result<()> {
    for (number, change) in changes.iter().enumerate() {
        let Err(error) = change.write() else { continue };
        let stays =
            changes[..number].iter().filter(|done| write_over(&done.path, &done.before, &done.path).is_err());
        let stays: Vec<String> = stays.map(|done| done.path.display().to_string()).collect();
        return match stays.is_empty() {
            true => Err(error),
            false => {
                Err(error.context(format!("the changes could not be removed from {}", stays.join(", "))))
            }
        };
    }
    Ok(())
}

/// Replaces a file in one step: after a power cut, the file has either the old text or the new text. The file's owner
/// and permissions are those of `like`, or the defaults if `like` does not exist.
fn write_over(path: &Path, text: impl AsRef<[u8]>, like: &Path) -> anyhow::Result<()> {
    let place = || path.display().to_string();
    let folder = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder).with_context(place)?;
    let mut file = NamedTempFile::new_in(folder).with_context(place)?;
    file.write_all(text.as_ref()).with_context(place)?;
    let permissions = match fs::metadata(like) {
        Ok(of) => {
            fchown(file.as_file(), Some(of.uid()), Some(of.gid())).with_context(place)?;
            of.permissions()
        }
        Err(_) => Permissions::from_mode(0o644),
    };
    file.as_file().set_permissions(permissions)?;
    file.as_file().sync_all()?;
    file.persist(path).with_context(place)?;
    Ok(fs::File::open(folder)?.sync_all()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_files_all_are_written_or_none() {
        let folder = tempfile::tempdir().unwrap();
        let change = |name: &str| FileChange {
            path: folder.path().join(name),
            before: "before".to_owned(),
            after: "after".to_owned(),
        };
        let changes = [change("one"), change("other")];
        fs::write(&changes[0].path, "before").unwrap();
        fs::write(&changes[1].path, "edited").unwrap();
        let error = write_all(&changes).unwrap_err();
        assert!(error.to_string().ends_with("other: this file was just edited: try again"), "{error:#}");
        assert_eq!(read(&changes[0].path).unwrap(), "before");

        fs::write(&changes[1].path, "before").unwrap();
        write_all(&changes).unwrap();
        assert_eq!(changes.each_ref().map(|change| read(&change.path).unwrap()), ["after", "after"]);
    }
}
