//! The HAProxy installed on this machine, and its version.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "it starts a program and waits for it"
)]

use std::fs::File;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::proxy::shipped::haproxy::Version;

/// Candidates for the binary. Debian's folder is not in the PATH of ordinary users.
const PLACES: [&str; 3] = ["haproxy", "/usr/sbin/haproxy", "/usr/local/sbin/haproxy"];

/// Longest wait for `haproxy -v`, which takes some milliseconds. A slower program is something else.
const PATIENCE: Duration = Duration::from_secs(5);

/// Bytes of output to read. `haproxy -v` prints two lines, and `haproxy -vv` some hundred.
const SAID_BYTES_MAX: u64 = 64 << 10;

/// The first usable HAProxy, with its version.
pub(crate) fn haproxy() -> Option<(PathBuf, Version)> {
    PLACES.iter().find_map(|place| Some((place.into(), version(Path::new(place))?)))
}

/// The version of a binary. None if it is missing, not HAProxy, or too old.
pub(crate) fn version(binary: &Path) -> Option<Version> {
    version_within(binary, PATIENCE)
}

/// Whether a binary was built with Lua.
pub(crate) fn has_lua(binary: &Path) -> bool {
    said_within(binary, "-vv", PATIENCE).is_some_and(|said| said.contains("+LUA"))
}

fn version_within(binary: &Path, patience: Duration) -> Option<Version> {
    let said = said_within(binary, "-v", patience)?;
    let (_, number) = said.lines().next()?.split_once("version ")?;
    number.parse().ok()
}

fn said_within(binary: &Path, option: &str, patience: Duration) -> Option<String> {
    // A file, because a pipe would stay open as long as any child of the program.
    let mut said = tempfile::tempfile().ok()?;
    let mut command = Command::new(binary);
    command.arg(option).stdin(Stdio::null()).stdout(said.try_clone().ok()?).stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    let began = Instant::now();
    while child.try_wait().ok()?.is_none() {
        if began.elapsed() > patience {
            // The process may have ended by itself, so errors are ignored.
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        thread::sleep(Duration::from_millis(2));
    }
    read(&mut said)
}

fn read(said: &mut File) -> Option<String> {
    let mut text = Vec::new();
    said.rewind().ok()?;
    said.take(SAID_BYTES_MAX).read_to_end(&mut text).ok()?;
    Some(String::from_utf8_lossy(&text).into_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn script(text: &str, patience: Duration) -> Option<String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("haproxy");
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        version_within(&path, patience).map(|version| version.to_string())
    }

    #[test]
    fn a_program_with_haproxys_version_line_is_haproxy() {
        let says = |text: &str| script(&format!("echo '{text}'"), PATIENCE);
        assert_eq!(
            says("HAProxy version 2.6.12-1+deb12u4 2026/10/17 - https://haproxy.org/").unwrap(),
            "2.6"
        );
        assert_eq!(says("HA-Proxy version 2.2.9-2 2021/01/16"), None);
        assert_eq!(says("something else"), None);
        assert_eq!(version(Path::new("/nowhere/haproxy")), None);
    }

    #[test]
    fn a_silent_program_is_not_waited_for_forever() {
        assert_eq!(script("exec sleep 600", Duration::from_millis(50)), None);
        let leaves_one_behind = "sleep 3 &\necho HAProxy version 3.2.1";
        assert_eq!(script(leaves_one_behind, PATIENCE).unwrap(), "3.2");
    }
}
