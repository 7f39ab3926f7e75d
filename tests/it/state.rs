//! The state file of a real slowlane: what a restart, a crash and a broken file leave.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use crate::cli::ran;
use crate::support::slowlane::{BINARY, Slowlane};
use crate::support::{client, eventually};

const POLICY: [(&str, &str); 2] = [
    (
        "slo.map",
        "0 rate=unlimited\n2001 burst=1 rate=3/d law=fixed-window\n2002 burst=2 rate=1/s law=concurrency lease=1h\n",
    ),
    ("website.map", "quota.example 2001\nlong.example 2002\n"),
];

/// The key secret is that of the state.
const CONFIG: &str = "[state]\nfile = \"state\"\nevery = \"1s\"\n";

const QUOTA: (&str, &str) = ("X-Slowlane-Website", "quota.example");
const LONG: (&str, &str) = ("X-Slowlane-Website", "long.example");

fn slowlane() -> Slowlane {
    Slowlane::with_config(&POLICY, CONFIG)
}

fn file(slowlane: &Slowlane) -> PathBuf {
    slowlane.folder().join("state")
}

/// How many of five requests are let through.
fn passed(slowlane: &Slowlane, website: (&str, &str)) -> usize {
    (0..5).filter(|_| slowlane.check("", &[website]).status == 204).count()
}

/// Ends it as systemd does.
fn stopped_and_restarted(mut slowlane: Slowlane) -> Slowlane {
    slowlane.process.signal("TERM");
    slowlane.process.wait();
    slowlane.restarted()
}

/// Waits until a snapshot has been written that began after this call.
fn written(slowlane: &Slowlane) {
    let at = || slowlane.metric("slowlane_state_written_timestamp_seconds", "");
    for _ in 0..2 {
        let before = at();
        eventually("the state is written", || (at() > before).then_some(()));
    }
}

#[test]
fn a_restart_forgets_nothing() {
    let slowlane = slowlane();
    assert_eq!(passed(&slowlane, QUOTA), 3);
    let opened = slowlane.check("", &[LONG]);
    let ticket = opened.header("x-slowlane-ticket").expect("a ticket").to_owned();
    let admin = slowlane.admin.to_string();
    let block = |fields: &str| ran(&["block", "add", fields, "--for", "1h", "--admin", &admin]).code;
    assert_eq!(block("source=192.0.2.66"), 0);
    let key = |slowlane: &Slowlane| {
        let outcome = ran(&["why", "website=quota.example", "--admin", &slowlane.admin.to_string()]).out;
        outcome.lines().find(|line| line.contains("key")).expect("a line with the key").to_owned()
    };
    let before = key(&slowlane);

    let mut slowlane = stopped_and_restarted(slowlane);
    slowlane.process.logged(", blocks: 1, age: ");
    assert_eq!(key(&slowlane), before, "the secret of the keys is the same");
    assert_eq!(passed(&slowlane, QUOTA), 0, "the quota of the day is used up");
    assert_eq!(slowlane.check("", &[("X-Slowlane-Source", "192.0.2.66")]).status, 403);
    assert_eq!(passed(&slowlane, LONG), 1, "one of two places is taken");
    let done = client::get(slowlane.http, "/done", &[("X-Slowlane-Ticket", &ticket)]);
    assert_eq!(done.status, 204, "{}", done.body);
    assert_eq!(
        slowlane.metric("slowlane_ends_total", "counted"),
        1.0,
        "the ticket of the first process ends it"
    );
    assert_eq!(passed(&slowlane, LONG), 1);
}

#[test]
fn a_crash_forgets_what_is_newer_than_the_file() {
    let slowlane = slowlane();
    assert_eq!(passed(&slowlane, QUOTA), 3);
    written(&slowlane);
    let slowlane = slowlane.killed_and_restarted();
    assert_eq!(passed(&slowlane, QUOTA), 0);
    // What a process left that died while it wrote is gone.
    let rest = slowlane.folder().join(".state.x.new");
    fs::write(&rest, "half").unwrap();
    let slowlane = slowlane.killed_and_restarted();
    assert!(!rest.exists());
    assert_eq!(passed(&slowlane, QUOTA), 0);
}

#[test]
fn a_file_that_cannot_be_used_is_set_aside() {
    let slowlane = stopped_and_restarted(slowlane());
    let mut whole = fs::read(file(&slowlane)).unwrap();
    let mut slowlane = slowlane;
    let mut version = whole.clone();
    version[14] = 99;
    let last = whole.len() - 1;
    whole[last] ^= 1;
    let broken: [(&[u8], &str); 6] = [
        (b"", "the file is truncated"),
        (b"an evening in the life of", "the file is not a slowlane snapshot"),
        (&version, "the file has layout 99, but this slowlane reads only layouts 3 to 6"),
        (&whole[..last], "the file is truncated"),
        (&whole, "the file is damaged: part "),
        (&whole[..16], "the file is truncated"),
    ];
    for (bytes, said) in broken {
        slowlane.kill();
        fs::write(file(&slowlane), bytes).unwrap();
        slowlane.restart();
        let log = slowlane.process.log();
        let outcome = log.iter().find(|line| line.contains("renamed to ")).expect("a warning");
        assert!(outcome.contains(said), "{outcome}");
        assert_eq!(fs::read(slowlane.folder().join("state.aside")).unwrap(), bytes);
        assert_eq!(slowlane.check("", &[("X-Slowlane-Source", "192.0.2.1")]).status, 204);
    }
}

#[test]
fn a_huge_file_is_not_even_read() {
    let mut slowlane = slowlane();
    slowlane.kill();
    // A hole: it takes no room on the disk.
    fs::File::create(file(&slowlane)).unwrap().set_len(1 << 40).unwrap();
    slowlane.restart();
    assert!(slowlane.process.log().iter().any(|line| line.contains("the file is larger than ")));
}

/// The system takes no more than 4 KiB of a file, as a disk does that is full halfway through.
#[test]
fn a_disk_that_is_full_costs_one_line_and_no_verdict() {
    let policy =
        [("slo.map", "0 rate=unlimited\n3001 burst=9 rate=9/s\n"), ("source.map", "0.0.0.0/0 3001\n")];
    let config = "[state]\nfile = \"state\"\nevery = \"1s\"\n[table]\nexpire = \"1h\"\n";
    let mut slowlane = Slowlane::with_own_program(&policy, config);
    let ask =
        |slowlane: &Slowlane, source: String| slowlane.check("", &[("X-Slowlane-Source", &source)]).status;
    assert_eq!(ask(&slowlane, "192.0.2.1".into()), 204);
    written(&slowlane);
    slowlane.kill();
    slowlane.replace_program_by(&format!("trap '' XFSZ\nulimit -f 8\nexec {BINARY} \"$@\""));
    slowlane.restart();
    for number in 0..300 {
        assert_eq!(ask(&slowlane, format!("198.51.{}.{}", number / 200, number % 200)), 204);
    }
    eventually("it fails more than once", || {
        (slowlane.metric("slowlane_state_failures_total", "") >= 2.0).then_some(())
    });
    assert_eq!(ask(&slowlane, "192.0.2.1".into()), 204);
    let outcome =
        slowlane.process.log().iter().filter(|line| line.contains("the state cannot be written")).count();
    assert_eq!(outcome, 1, "{:?}", slowlane.process.log());
    // The file is the last one that was whole, and nothing is left of the others.
    let rest = fs::read_dir(slowlane.folder()).unwrap().map(|file| file.unwrap().file_name());
    assert!(!rest.into_iter().any(|name| name.to_string_lossy().ends_with(".new")));
    slowlane.kill();
    fs::remove_file(slowlane.own_program()).unwrap();
    slowlane.restart();
    eventually("it has read the file", || {
        slowlane.process.log().iter().any(|line| line.contains(", blocks: 0, age: ")).then_some(())
    });
}

/// To open a pipe would take until somebody writes into it.
#[test]
fn a_pipe_does_not_keep_the_start_waiting() {
    let mut slowlane = slowlane();
    slowlane.kill();
    let _ = fs::remove_file(file(&slowlane));
    let made = Command::new("mkfifo").arg(file(&slowlane)).status().unwrap();
    assert!(made.success());
    slowlane.restart();
    assert!(slowlane.process.log().iter().any(|line| line.contains("the file is not a slowlane snapshot")));
}

#[test]
fn a_folder_that_is_not_there_costs_one_line() {
    let slowlane = Slowlane::with_config(&POLICY, "[state]\nfile = \"away/state\"\nevery = \"1s\"\n");
    let failures = || slowlane.metric("slowlane_state_failures_total", "");
    eventually("it has been tried several times", || (failures() >= 3.0).then_some(()));
    let outcome = || slowlane.process.log().iter().filter(|line| line.contains("cannot be written")).count();
    assert_eq!(outcome(), 1);
    assert_eq!(passed(&slowlane, QUOTA), 3, "verdicts are as ever");
    fs::create_dir(slowlane.folder().join("away")).unwrap();
    written(&slowlane);
    assert!(slowlane.process.log().iter().any(|line| line.contains("the state can be written again")));
}

#[test]
fn only_its_owner_can_read_it() {
    let slowlane = slowlane();
    written(&slowlane);
    let mode = |slowlane: &Slowlane| fs::metadata(file(slowlane)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&slowlane), 0o600);
    fs::set_permissions(file(&slowlane), fs::Permissions::from_mode(0o644)).unwrap();
    let slowlane = slowlane.killed_and_restarted();
    assert!(slowlane.process.log().iter().any(|line| line.contains("other users can read this file")));
}

/// The clock of the machine is set back by an hour, or forward, while slowlane is away.
#[test]
fn a_clock_that_is_set_makes_no_key_worse_than_fresh() {
    for offset in ["-1h", "+1h"] {
        let slowlane = slowlane();
        let pace = ("X-Slowlane-Website", "long.example");
        assert_eq!(passed(&slowlane, QUOTA), 3);
        assert_eq!(passed(&slowlane, pace), 2);
        let mut slowlane = slowlane;
        slowlane.process.signal("TERM");
        slowlane.process.wait();
        slowlane.set_clock(offset);
        let slowlane = slowlane.restarted();
        let quota = passed(&slowlane, QUOTA);
        assert!(
            quota == 0 || offset == "+1h" && quota == 3,
            "{offset}: {quota}; in an hour the day may be over"
        );
        let places = passed(&slowlane, pace);
        assert_eq!(places, if offset == "+1h" { 2 } else { 0 }, "{offset}: leases of an hour");
    }
}
