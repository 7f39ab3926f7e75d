//! Finds the HAProxy and the nginx installed on this machine.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::proxy::shipped::haproxy::Version;

/// Candidates for HAProxy's binary. Debian's folder, /usr/sbin, is not in the PATH of ordinary users.
const PLACES: [&str; 3] = ["haproxy", "/usr/sbin/haproxy", "/usr/local/sbin/haproxy"];

/// The first usable HAProxy, with its version.
pub(crate) fn haproxy() -> Option<(PathBuf, Version)> {
    PLACES.iter().find_map(|place| Some((place.into(), version(Path::new(place))?)))
}

/// The first nginx that can be run.
pub(crate) fn nginx() -> Option<&'static str> {
    let runs = |binary: &&str| output(Path::new(binary), "-v").is_some();
    ["nginx", "/usr/sbin/nginx", "/usr/local/sbin/nginx"].into_iter().find(runs)
}

/// The version of a binary. `None` if it is missing, not HAProxy, or too old.
pub(crate) fn version(binary: &Path) -> Option<Version> {
    let output = output(binary, "-v")?;
    let (_, number) = output.lines().next()?.split_once("version ")?;
    number.parse().ok()
}

/// Whether a binary was built with Lua.
pub(crate) fn has_lua(binary: &Path) -> bool {
    output(binary, "-vv").is_some_and(|output| output.contains("+LUA"))
}

fn output(binary: &Path, option: &str) -> Option<String> {
    let output = Command::new(binary).arg(option).stdin(Stdio::null()).output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn script(text: &str) -> Option<String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("haproxy");
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        version(&path).map(|version| version.to_string())
    }

    #[test]
    fn a_program_with_haproxys_version_line_is_haproxy() {
        let says = |text: &str| script(&format!("echo '{text}'"));
        assert_eq!(
            says("HAProxy version 2.6.12-1+deb12u4 2026/10/17 - https://haproxy.org/").unwrap(),
            "2.6"
        );
        assert_eq!(says("HA-Proxy version 2.2.9-2 2021/01/16"), None);
        assert_eq!(says("something else"), None);
        assert_eq!(version(Path::new("/nowhere/haproxy")), None);
    }
}
