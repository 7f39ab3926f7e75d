//! The log on standard error: a reader that stops reading, and systemd's journal.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

use socket2::SockRef;
use tempfile::TempDir;

use crate::support::client::{self, Client};
use crate::support::slowlane::BINARY;
use crate::support::{PATIENCE, eventually, own_address};

/// A daemon whose standard error is read by the test alone.
struct Daemon {
    child: Child,
    folder: TempDir,
    spop: SocketAddr,
    http: SocketAddr,
    admin: SocketAddr,
}

impl Daemon {
    fn start(config: &str, prepare: impl FnOnce(&mut Command)) -> Daemon {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("policy")).unwrap();
        fs::write(folder.path().join("policy/slo.map"), "0 rate=unlimited\n").unwrap();
        fs::write(folder.path().join("slowlane.toml"), config).unwrap();
        let mut command = Command::new(BINARY);
        command.arg("run").arg("--config").arg(folder.path().join("slowlane.toml"));
        command.arg("--policy").arg(folder.path().join("policy"));
        let [spop, http, admin] = [own_address(), own_address(), own_address()];
        for (flag, address) in [("--spop", spop), ("--http", http), ("--admin", admin)] {
            command.arg(flag).arg(address.to_string());
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).env_remove("JOURNAL_STREAM");
        prepare(&mut command);
        Daemon { child: command.spawn().unwrap(), folder, spop, http, admin }
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").arg(format!("-{signal}")).arg(self.child.id().to_string()).status();
        assert!(sent.unwrap().success());
    }

    fn dropped(&self) -> u64 {
        let metrics = client::get(self.admin, "/metrics", &[]).body;
        let line = metrics.lines().find_map(|line| line.strip_prefix("slowlane_log_dropped_total "));
        line.expect("the metric is there").parse().unwrap()
    }

    fn ends(&mut self) {
        self.signal("TERM");
        assert!(eventually("it ends", || self.child.try_wait().unwrap()).success());
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A standard error with little room, like a journal that is busy.
fn narrow() -> (BufReader<UnixStream>, Stdio) {
    let (ours, its) = UnixStream::pair().unwrap();
    SockRef::from(&its).set_send_buffer_size(1).unwrap();
    ours.set_read_timeout(Some(PATIENCE)).unwrap();
    (BufReader::new(ours), Stdio::from(OwnedFd::from(its)))
}

/// Reads up to the line with this text.
fn read_to(log: &mut impl BufRead, text: &str) -> String {
    let mut line = String::new();
    while !line.contains(text) {
        line.clear();
        assert_ne!(log.read_line(&mut line).unwrap(), 0, "the log has a line with {text:?}");
    }
    line
}

/// Sends more than the queue of the log takes. Each connection is a line of the level `debug`.
fn flood(daemon: &Daemon) {
    for _ in 0..3_000 {
        assert_eq!(client::get(daemon.http, "/check", &[]).status, 204);
    }
}

#[test]
fn a_log_that_nobody_reads_delays_no_verdict_and_loses_lines_that_are_counted() {
    let (mut log, its) = narrow();
    let mut daemon = Daemon::start("log.level = \"debug\"\n", |command| {
        command.stderr(its);
    });
    read_to(&mut log, "admin on ");
    // Broken frames, and connections of which each has a line.
    let mut broken = Vec::new();
    for _ in 0..40 {
        let mut stream = TcpStream::connect(daemon.spop).unwrap();
        stream.write_all(b"\xff\xff\xff\xff").unwrap();
        broken.push(stream);
    }
    let mut steady = Client::connect(daemon.http);
    flood(&daemon);
    assert_eq!(steady.request("GET", "/check", &[], "").status, 204);
    let dropped = daemon.dropped();
    assert!(dropped > 0);

    // Once there is room again, a line has the number of the others.
    let line = read_to(&mut log, "log lines dropped");
    assert!(line.contains(" WARN "), "{line}");
    let outcome: u64 = line.split_whitespace().find_map(|word| word.parse().ok()).unwrap();
    assert!(outcome >= dropped, "{outcome} of {dropped}");

    // A log that is stuck at the end does not keep the process.
    flood(&daemon);
    daemon.ends();
}

#[test]
fn at_the_end_every_line_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let its = File::create(&path).unwrap();
    let mut daemon = Daemon::start("", |command| {
        command.stderr(its);
    });
    let log = || fs::read_to_string(&path).unwrap();
    eventually("it serves", || log().contains("admin on ").then_some(()));
    daemon.ends();
    assert!(log().lines().last().unwrap().contains("shutting down: "), "{}", log());
    assert!(log().lines().all(|line| line.starts_with("20")), "each line begins with the time: {}", log());
}

/// Both formats, with the first bytes of a line without an own time and priority.
const FORMATS: [(&str, &str); 2] = [("human", " INFO "), ("json", "{\"level\":\"INFO\"")];

#[test]
fn under_systemd_lines_have_a_priority_and_no_time() {
    for (format, info) in FORMATS {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let its = File::create(&path).unwrap();
        let found = its.metadata().unwrap();
        let stream = format!("{}:{}", found.dev(), found.ino());
        let mut daemon = Daemon::start(&format!("log.format = \"{format}\"\n"), |command| {
            command.stderr(its).env("JOURNAL_STREAM", stream);
        });
        let log = || fs::read_to_string(&path).unwrap();
        eventually("it serves", || log().contains("admin on ").then_some(()));
        fs::write(daemon.folder.path().join("policy/slo.map"), "0 burst=1 rate=1\n1 burst=1\n").unwrap();
        eventually("the edit is refused", || log().contains("rate is missing").then_some(()));
        daemon.ends();
        let log = log();
        assert!(log.lines().next().unwrap().starts_with(&format!("<6>{info}")), "{log}");
        // Of a refusal, each line is an error.
        for text in ["policy not reloaded", "slo.map:1: ", "slo.map:2: "] {
            let line = log.lines().find(|line| line.contains(text)).unwrap();
            assert!(line.starts_with("<3>"), "{line}");
        }
        assert!(log.lines().all(|line| line.starts_with('<') && !line.contains("timestamp")), "{log}");
    }
}

#[test]
fn a_stream_that_is_not_the_journal_has_the_time() {
    let (log, its) = narrow();
    // systemd sets the variable for a service; a shell in it may send standard error elsewhere.
    let mut daemon = Daemon::start("", |command| {
        command.stderr(its).env("JOURNAL_STREAM", "1:2");
    });
    let lines = std::thread::spawn(move || {
        let mut text = String::new();
        let mut log = log;
        log.read_to_string(&mut text).unwrap();
        text
    });
    eventually("it serves", || TcpStream::connect(daemon.admin).ok());
    daemon.ends();
    let lines = lines.join().unwrap();
    assert!(lines.lines().all(|line| line.starts_with("20")), "{lines}");
}
