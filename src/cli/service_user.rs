//! The user of the installed service, and the files that this user cannot read.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf, absolute};
use std::process::Command;

use crate::cli::arguments::OF_SERVICE;
use crate::config::{Config, ConfigError};

const NAME: &str = "slowlane";

/// A shell script that takes file names, and prints the names of the files that its user cannot read.
const SCRIPT: &str = r#"for file; do [ -r "$file" ] || printf '%s\0' "$file"; done"#;

/// The files of the service's config that the service's user cannot read.
///
/// Only root can check as another user. For all other users, and for other configs, the list is empty.
pub(super) fn unreadable(config: &Config) -> Vec<ConfigError> {
    let folder = Path::new(OF_SERVICE).parent().expect("the service's config is in a directory");
    let is_there = |path: &PathBuf| path.exists();
    let paths: BTreeSet<PathBuf> =
        config.files().iter().filter_map(|path| absolute(path).ok()).filter(is_there).collect();
    if !rustix::process::geteuid().is_root() || !paths.iter().any(|path| path.starts_with(folder)) {
        return Vec::new();
    }
    let mut asked = Command::new("setpriv");
    asked.args(["--reuid", NAME, "--regid", NAME, "--init-groups", "sh", "-c", SCRIPT, "sh"]).args(paths);
    // If there is no such user, the command fails.
    let output = asked.output().ok().filter(|output| output.status.success());
    let listed =
        output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    listed.split_terminator('\0').map(|path| ConfigError::NotForService(path.into())).collect()
}
