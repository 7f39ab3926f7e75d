//! Shared code of the tests: real programs with their own ports and folders, ended when dropped.

// The benches use only a part of this module.
#![allow(dead_code)]

pub mod backend;
pub mod behind;
pub mod checker;
pub mod chromium;
pub mod client;
pub mod grpc;
pub mod haproxy;
pub mod lexicon;
pub mod listeners;
pub mod load;
pub mod nginx;
pub mod pages;
pub mod printed;
pub mod process;
pub mod redis;
pub mod slowlane;
pub mod spop;
pub mod terminal;
pub mod tls;
pub mod token_server;

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use ::slowlane_core::base::SloId;
use ::slowlane_core::base::{KeyHasher, KeySecret};
use ::slowlane_core::policy::Slo;

/// The longest wait for a program, on the slowest machine that runs the tests.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A file of the project.
pub fn project(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The files of the project by their path, sorted. Left out is what `.gitignore` names.
///
/// An unpacked source has no git, so the tree itself is walked.
pub fn project_files() -> Vec<String> {
    let ignored = std::fs::read_to_string(project(".gitignore")).unwrap();
    let ignored: Vec<&str> = ignored.lines().map(|line| line.trim_start_matches('/')).collect();
    let (mut files, mut folders) = (Vec::new(), vec![String::new()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(project(&folder)).unwrap().map(Result::unwrap) {
            let path = folder.clone() + entry.file_name().to_str().unwrap();
            if path == ".git" || ignored.contains(&path.as_str()) {
                continue;
            }
            if entry.file_type().unwrap().is_dir() {
                folders.push(path + "/");
            } else {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

/// A new loopback address, for a program that may have to listen there again after a restart.
///
/// Outgoing connections use ports of 127.0.0.1, but not of other addresses in 127.0.0.0/8.
pub fn own_address() -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    const HALF: u32 = u32::from_be_bytes([127, 128, 0, 0]);
    let (process, number) = (std::process::id() % 0x8000, NEXT.fetch_add(1, Relaxed));
    let address = Ipv4Addr::from_bits(HALF + process * 0x100 + number % 254 + 1);
    SocketAddr::from((address, 20_000 + (number / 254) as u16))
}

/// A program that `tests/support/unpack-debian` has unpacked. None: it cannot be had on this machine.
pub fn unpacked(program: &str, version: &str) -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let binary = target.join(program).join(version).join(program);
    let tells = |flag| {
        std::process::Command::new(&binary).arg(flag).output().is_ok_and(|output| output.status.success())
    };
    (tells("-v") || tells("-V") || tells("version")).then_some(binary)
}

/// The folder of the programs that `tests/support/unpack-wheels` has unpacked.
pub fn wheels() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("wheels")
}

/// The key of an SLO with these options, for a daemon that was started `with_policy`.
pub fn key_hasher(kind: u16, options: &str) -> KeyHasher {
    let slo = Slo::parse(SloId::DEFAULT, options).unwrap();
    KeyHasher::new(KeySecret::KNOWN, kind, slo.law.state_tag())
}

/// Reports what a test cannot do on this machine. With `SLOWLANE_TEST_ALL=1` the test fails instead.
///
/// The line bypasses the capture of the test's output; `tests/run` counts these lines.
pub fn skipped(what: &str) {
    assert!(std::env::var_os("SLOWLANE_TEST_ALL").is_none_or(|all| all != "1"), "SKIPPED: {what}");
    let _ = writeln!(std::io::stderr(), "SKIPPED: {what}");
}

/// A port that is free now, for programs that cannot choose one themselves.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Repeats `look` until it finds something, at most for [`PATIENCE`].
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Gives a program a wall clock of its own: the time of the machine and this offset, like `-1h`,
/// or what a file with this path says, also later.
pub fn set_clock(command: &mut std::process::Command, offset: &str) {
    let libraries = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"];
    let library = libraries.map(|folder| Path::new(folder).join("faketime/libfaketimeMT.so.1"));
    let library = library.iter().find(|path| path.exists()).expect("faketime is installed");
    command.env("LD_PRELOAD", library).env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    match offset.starts_with('/') {
        true => command.env("FAKETIME_TIMESTAMP_FILE", offset).env("FAKETIME_NO_CACHE", "1"),
        false => command.env("FAKETIME", offset),
    };
}
