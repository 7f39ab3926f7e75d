//! What the tests stand on: real programs, each on its own ports and in its own folder, ended by its handle.

// Each test uses a part of it.
#![allow(dead_code)]

pub mod backend;
pub mod client;
pub mod haproxy;
pub mod nginx;
pub mod process;
pub mod slowlane;
pub mod spop;

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// No program takes longer than this to do what it is asked, on the slowest machine that runs the tests.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A file of the project.
pub fn project(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// A port that nobody listens on at this moment, for programs that cannot choose one themselves.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Looks again and again until `look` finds something. Bounds patience, never speed.
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
