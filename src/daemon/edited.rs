//! The look at the config file while the process serves: an edit waits for an upgrade.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "it looks at the config file")]

use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::config::ConfigFile;

/// Looks at the config file while the process serves.
#[derive(Debug)]
pub(super) struct Look {
    file: ConfigFile,
    /// The file as it was last reported, and as it was seen last. An editor may not be done with what is new.
    reported: Option<Stamp>,
    seen: Option<Stamp>,
    news: Option<String>,
}

/// Device, inode, size and the time of the last change: any edit changes them.
type Stamp = (u64, u64, u64, i64, i64);

impl Look {
    pub(super) fn at(file: &ConfigFile) -> Look {
        Look { file: file.clone(), reported: None, seen: None, news: None }
    }

    /// The news since the last look. The inner None: an edit was taken back.
    pub(super) fn again(&mut self) -> Option<Option<String>> {
        let stamp = fs::metadata(self.file.path())
            .ok()
            .map(|found| (found.dev(), found.ino(), found.size(), found.ctime(), found.ctime_nsec()));
        let is_settled = self.seen == stamp;
        self.seen = stamp;
        if !is_settled || self.reported == stamp {
            return None;
        }
        self.reported = stamp;
        let before = std::mem::replace(&mut self.news, self.file.news());
        (self.news != before).then(|| self.news.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Flags};

    #[test]
    fn an_edit_is_told_once_the_file_rests() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "").unwrap();
        let config = Config::load(Some(file.path()), Flags::default()).unwrap();
        let mut look = Look::at(config.file.as_ref().unwrap());
        assert_eq!([look.again(), look.again(), look.again()], [None, None, None], "nothing is new");
        fs::write(file.path(), "[hold]\n").unwrap();
        assert_eq!(look.again(), None, "its writer may not be done");
        let reported = look.again().unwrap().unwrap();
        assert!(reported.ends_with("has changed: `slowlane upgrade` puts it in force"), "{reported}");
        assert_eq!(look.again(), None, "once");
        fs::write(file.path(), "").unwrap();
        assert_eq!([look.again(), look.again()], [None, Some(None)], "it is taken back");
    }
}
