//! Checks whether the config file is edited while the process serves: an edit waits for an upgrade.

use crate::config::ConfigFile;
use crate::watch::FileState;

/// Checks the config file while the process serves.
#[derive(Debug)]
pub(super) struct Look {
    file: ConfigFile,
    state: FileState,
    news: Option<String>,
}

impl Look {
    pub(super) fn at(file: &ConfigFile) -> Look {
        let state = FileState::new(vec![file.path.clone()]);
        Look { file: file.clone(), state, news: None }
    }

    /// The change since the last check. The inner None: an edit was undone.
    pub(super) fn again(&mut self) -> Option<Option<String>> {
        if !self.state.has_settled() {
            return None;
        }
        let before = std::mem::replace(&mut self.news, self.file.news());
        (self.news != before).then(|| self.news.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

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
