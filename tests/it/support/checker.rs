//! The program `slowlane-check`, which is no part of the package whose tests these are.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use super::project;
use super::slowlane::BINARY;

/// Its path. Cargo builds it before the first test that needs it: it builds only the binaries of the tested package.
pub fn checker() -> &'static Path {
    static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| {
        let target = Path::new(BINARY).ancestors().nth(2).unwrap();
        let mut cargo = Command::new(env!("CARGO"));
        cargo
            .args(["build", "--quiet", "--locked", "--package", "slowlane-check", "--target-dir"])
            .arg(target);
        assert!(cargo.current_dir(project("")).status().unwrap().success(), "slowlane-check is not built");
        target.join("debug/slowlane-check")
    });
    &PROGRAM
}
