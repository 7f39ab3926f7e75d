//! A file system without room, for real: the state file, the decision log and the log on a small one of their own.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use crate::support::client;
use crate::support::process::Process;
use crate::support::slowlane::{BINARY, Slowlane};
use crate::support::{eventually, own_address, skipped};

const POLICY: [(&str, &str); 2] =
    [("slo.map", "0 rate=unlimited\n3001 burst=9 rate=9/s\n"), ("source.map", "0.0.0.0/0 3001\n::/0 3001\n")];

/// A page of memory: the file system gives room in such pieces, so a file may grow to the end of its last one.
const PAGE: usize = 4_096;

/// A file system of 64 pages.
struct Disk {
    folder: TempDir,
    /// Opened before there is no room.
    filler: File,
}

impl Disk {
    /// None: nothing can be mounted here.
    fn mounted() -> Option<Disk> {
        let folder = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=256k,mode=755", "slowlane-test"]).arg(folder.path());
        if !mount.output().is_ok_and(|output| output.status.success()) {
            skipped("no file system can be mounted here: none is filled");
            return None;
        }
        let filler = File::create(folder.path().join("filler")).unwrap();
        Some(Disk { folder, filler })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Takes the room that there is.
    fn fill(&self) {
        write_until_full(&self.filler, &[0; PAGE]);
    }

    fn give_room(&self) {
        self.filler.set_len(0).unwrap();
    }
}

/// Nothing of it stays, also after a test that failed.
impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.folder.path()).status();
    }
}

fn write_until_full(mut file: &File, bytes: &[u8]) {
    loop {
        match file.write(bytes) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::StorageFull => return,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_full_disk_is_told_once_and_everything_is_written_again_once_there_is_room() {
    let Some(disk) = Disk::mounted() else { return };
    let [state, decisions] = ["state", "decisions.json"].map(|name| disk.path(name));
    let config = format!(
        "[state]\nfile = {state:?}\nevery = \"1s\"\n[table]\nexpire = \"1h\"\n\
         [decision_log]\npath = {decisions:?}\nverdicts = [\"pass\"]\nper_second = 1000000\n"
    );
    let mut slowlane = Slowlane::with_config(&POLICY, &config);
    let ask = |slowlane: &Slowlane, source: &str| {
        assert_eq!(slowlane.check("", &[("X-Slowlane-Source", source)]).status, 204, "it goes on deciding");
    };
    let outcome = |slowlane: &Slowlane, text: &str| {
        slowlane.process.log().iter().filter(|line| line.contains(text)).count()
    };
    let failures = |slowlane: &Slowlane| slowlane.metric("slowlane_state_failures_total", "");
    let lost = |slowlane: &Slowlane| slowlane.metric("slowlane_decision_log_dropped_total", "write");

    ask(&slowlane, "192.0.2.1");
    eventually("there is a state", || state.exists().then_some(()));
    // A state file that was being written makes room when it takes the place of the old one.
    let until = |slowlane: &Slowlane, failed: f64| {
        let mut host = 0;
        eventually("the state cannot be written, and neither can decisions", || {
            disk.fill();
            host = host % 250 + 1;
            ask(slowlane, &format!("198.51.100.{host}"));
            (failures(slowlane) >= failed && lost(slowlane) >= failed).then_some(())
        });
    };
    until(&slowlane, 1.0);
    let whole = fs::read(&state).unwrap();
    until(&slowlane, 4.0);
    assert_eq!(fs::read(&state).unwrap(), whole, "the old state is as it was");
    assert_eq!(outcome(&slowlane, "the state cannot be written: No space left on device"), 1);
    assert_eq!(outcome(&slowlane, "cannot write to the decision log: No space left on device"), 1);
    assert!(
        !fs::read_dir(disk.folder.path())
            .unwrap()
            .any(|file| { file.unwrap().file_name().to_string_lossy().ends_with(".new") })
    );

    disk.give_room();
    ask(&slowlane, "192.0.2.77");
    slowlane.process.logged("the state can be written again");
    slowlane.process.logged("the decision log can be written again");
    let lines = fs::read_to_string(&decisions).unwrap();
    let is_json = |line: &&str| serde_json::from_str::<serde_json::Value>(line).is_ok();
    let torn = lines.lines().filter(|line| !is_json(line)).count();
    assert!(torn <= 1, "a line that was cut off spoils no other one");
    assert!(lines.lines().next_back().is_some_and(|line| is_json(&line) && line.contains("192.0.2.77")));

    slowlane.killed_and_restarted().process.logged(", blocks: 0, age: ");
}

/// Standard error is a file there, so not even the log has room.
#[test]
fn a_log_on_a_full_disk_tells_how_many_lines_are_missing() {
    let Some(disk) = Disk::mounted() else { return };
    let [state, log] = ["state", "log"].map(|name| disk.path(name));
    let config = disk.path("slowlane.toml");
    fs::write(&config, format!("[state]\nfile = {state:?}\nevery = \"1s\"\n")).unwrap();
    let [spop, http, admin] = [own_address(), own_address(), own_address()];
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$@\" 2>>\"$LOG\"", "sh", BINARY, "run", "--config"]).arg(&config);
    for (flag, address) in [("--spop", spop), ("--http", http), ("--admin", admin)] {
        command.arg(flag).arg(address.to_string());
    }
    let process = Process::start(command.env("LOG", &log).env_remove("JOURNAL_STREAM"));
    let metric = |name: &str| {
        let metrics = client::get(admin, "/metrics", &[]).body;
        let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.expect("the metric is there").parse::<f64>().unwrap()
    };
    let written = || fs::read_to_string(&log).unwrap_or_default();
    eventually("it serves and has a state", || {
        (written().contains("admin on ") && state.exists()).then_some(())
    });

    // Some bytes of the next line have room.
    let room = PAGE - 10 - written().len() % PAGE;
    OpenOptions::new().append(true).open(&log).unwrap().write_all("\n".repeat(room).as_bytes()).unwrap();
    eventually("lines are lost", || {
        disk.fill();
        process.signal("HUP");
        assert_eq!(client::get(http, "/check", &[]).status, 204, "it goes on deciding");
        (metric("slowlane_log_dropped_total") >= 5.0 && metric("slowlane_state_failures_total") >= 2.0)
            .then_some(())
    });
    let torn = written();
    assert!(!torn.ends_with('\n'), "{torn}");

    disk.give_room();
    let outcome = eventually("the missing lines are told", || {
        let log = written();
        let line = log.lines().find(|line| line.contains(" log lines dropped: "))?;
        line.split_whitespace().find_map(|word| word.parse::<f64>().ok())
    });
    assert_eq!(outcome, metric("slowlane_log_dropped_total"));
    let log = eventually("the state is written", || {
        Some(written()).filter(|log| log.contains("the state can be written again\n"))
    });
    let after = &log[torn.len()..];
    assert!(after.starts_with('\n'), "the line that was cut off spoils the next one: {after}");
}
