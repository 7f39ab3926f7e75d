//! The decision log, and the log of the daemon.

use std::fs;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::Value;

use crate::cli::ran;
use crate::support::client::Client;
use crate::support::process::Process;
use crate::support::slowlane::{BINARY, Slowlane};
use crate::support::spop::{Line, message};
use crate::support::{eventually, own_address};
use spop::Data;

/// One SLO per website: `slow` passes one at once and the next after half a second; one denies all; one is a dry run.
const POLICY: [(&str, &str); 2] = [
    (
        "slo.map",
        "0 burst=1000 rate=1000/s\n2001 burst=1 rate=2/s\n2002 burst=0 rate=0/s\n2003 burst=0 rate=0/s dry_run=yes\n",
    ),
    ("website.map", "slow.example 2001\nclosed.example 2002\ntried.example 2003\n"),
];

/// Waits until a file has `count` lines, and reads each as JSON.
fn lines(path: &Path, count: usize) -> Vec<Value> {
    let text = eventually("the decision log is written", || {
        let text = fs::read_to_string(path).ok()?;
        (text.lines().count() >= count).then_some(text)
    });
    assert_eq!(text.lines().count(), count, "{text}");
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line:?}"))).collect()
}

#[test]
fn a_decision_is_a_line_that_says_who_was_delayed_and_why() {
    let slowlane = Slowlane::with_config(&POLICY, "[decision_log]\npath = 'decisions.json'\n");
    let path = slowlane.folder().join("decisions.json");
    let mut line = Line::greeted(slowlane.spop);
    let keys: Vec<i64> = (1..=2)
        .map(|id| line.ask(id, "192.0.2.7", "slow.example").variable("key").unwrap().parse().unwrap())
        .collect();
    let outcome = &lines(&path, 1)[0];
    assert_eq!(outcome["verdict"], "delay");
    assert!((1..=500).contains(&outcome["delay_ms"].as_u64().unwrap()), "{outcome}");
    assert_eq!(
        (&outcome["slo"], &outcome["rate"], &outcome["remaining"], &outcome["cost"]),
        (&2001.into(), &2.into(), &0.into(), &1.into())
    );
    assert_eq!(outcome["key"], format!("{:016X}", keys[1] as u64));
    assert_eq!(outcome["fields"], serde_json::json!({"source": "192.0.2.7", "website": "slow.example"}));
    let time = outcome["time"].as_str().unwrap();
    assert!(time.starts_with("20") && time.ends_with('Z') && time.len() == 24, "{time}");

    // A denial over HTTP, then one of a dry run.
    let headers = [("X-Slowlane-Source", "192.0.2.8"), ("X-Slowlane-Website", "closed.example")];
    assert_eq!(slowlane.check("", &headers).status, 403);
    let tried = [("X-Slowlane-Website", "tried.example"), ("X-Slowlane-Api-Key", "k")];
    assert_eq!(slowlane.check("", &tried).status, 204);
    let outcome = lines(&path, 3);
    assert_eq!((&outcome[1]["verdict"], &outcome[1]["retry_after_s"]), (&"deny".into(), &86_400.into()));
    assert_eq!(outcome[1]["fields"], serde_json::json!({"source": "192.0.2.8", "website": "closed.example"}));
    assert_eq!(
        (&outcome[2]["verdict"], &outcome[2]["dry_run"]),
        (&"pass".into(), &serde_json::json!({"2003": "deny"}))
    );
    assert_eq!(outcome[2]["fields"], serde_json::json!({"website": "tried.example", "api_key": "k"}));
    eventually("the lines are counted", || {
        (slowlane.metric("slowlane_decision_log_lines_total", "") == 3.0).then_some(())
    });
}

#[test]
fn whatever_a_client_calls_itself_a_line_is_a_plain_line() {
    let config = "[decision_log]\npath = 'decisions.json'\nverdicts = ['pass']\n";
    let slowlane = Slowlane::with_config(&POLICY, config);
    let mut line = Line::greeted(slowlane.spop);
    let long = vec![b'x'; 5_000];
    let names: [&[u8]; 5] = [
        b"<script>\"}\n{\"a\":\"",
        b"\x1b[2J\x07\x00\x7f",
        "\u{9b}31m\u{202e}ü𝄞".as_bytes(),
        b"\xff\xfe",
        &long,
    ];
    for (id, name) in (1..).zip(names) {
        line.say(&message(id, b"request", &[(b"owner", Data::Str(name)), (b"unknown", Data::Str(name))]));
        line.hear();
    }
    let outcome = lines(&slowlane.folder().join("decisions.json"), names.len());
    let text = fs::read(slowlane.folder().join("decisions.json")).unwrap();
    assert!(text.iter().all(|byte| matches!(byte, b' '..=b'~' | b'\n')));
    for (outcome, name) in outcome.iter().zip(names) {
        let owner = outcome["fields"]["owner"].as_str().unwrap();
        let whole = String::from_utf8_lossy(name);
        assert!(owner == whole || owner.len() == 203, "{owner}");
        assert_eq!(outcome["fields"].as_object().unwrap().len(), 1, "only what the policy knows: {outcome}");
    }
}

#[test]
fn a_second_has_no_more_lines_than_it_may() {
    let config = "[decision_log]\npath = 'decisions.json'\nper_second = 1\nverdicts = ['pass']\n";
    let slowlane = Slowlane::with_config(&POLICY, config);
    let mut line = Line::greeted(slowlane.spop);
    let (count, started) = (50, Instant::now());
    for id in 1..=count {
        line.ask(id, "192.0.2.7", "other.example");
    }
    let metric = |name, labels| slowlane.metric(name, labels);
    let written = eventually("all are accounted for", || {
        let written = metric("slowlane_decision_log_lines_total", "");
        let dropped = metric("slowlane_decision_log_dropped_total", "reason=\"rate\"");
        (dropped + written == count as f64).then_some(written)
    });
    // Seconds of the clock: the first may begin before the test, and the last may end after it.
    let seconds_max = started.elapsed().as_secs() + 2;
    assert!(written <= seconds_max as f64, "{written} lines in {seconds_max} s");
}

/// Standard output is a socket without a reader: it accepts some lines, and then no more.
#[test]
fn a_place_that_takes_no_lines_makes_nobody_wait() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("slowlane.toml");
    let text = "[decision_log]\npath = '-'\nper_second = 1000000\nverdicts = ['pass']\n";
    fs::write(&config, text).unwrap();
    let (mut unread, output) = UnixStream::pair().unwrap();
    let [spop, http, admin] = [own_address(), own_address(), own_address()];
    let mut command = Command::new(BINARY);
    command.arg("run").arg("--config").arg(&config);
    for (flag, address) in [("--spop", spop), ("--http", http), ("--admin", admin)] {
        command.arg(flag).arg(address.to_string());
    }
    let mut process = Process::start_with(&mut command, Stdio::null(), Stdio::from(OwnedFd::from(output)));
    drop(command);
    process.logged("admin on ");
    let mut line = Line::greeted(spop);
    let dropped = || {
        let metrics = crate::support::client::get(admin, "/metrics", &[]).body;
        let prefix = "slowlane_decision_log_dropped_total{reason=\"queue\"} ";
        metrics.lines().find_map(|line| line.strip_prefix(prefix)?.parse::<u64>().ok()).unwrap()
    };
    let mut id = 0;
    while dropped() == 0 {
        for _ in 0..1000 {
            id += 1;
            assert_eq!(line.ask(id, "192.0.2.7", "other.example").variable("verdict"), Some("pass"));
        }
        assert!(id < 100_000, "the queue has no bound");
    }
    // The daemon ends anyway, and all written lines are complete.
    process.signal("TERM");
    assert!(process.wait().success());
    let mut taken = String::new();
    unread.read_to_string(&mut taken).unwrap();
    let last = taken.rfind('\n').unwrap();
    assert!(taken[..last].lines().all(|line| serde_json::from_str::<Value>(line).is_ok()));
}

#[test]
fn a_log_that_cannot_be_written_is_told_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let problem = |text: &str| {
        let config = folder.path().join("slowlane.toml");
        fs::write(&config, text).unwrap();
        let listen = own_address().to_string();
        let ran = ran(&["run", "--config", config.to_str().unwrap(), "--spop", &listen]);
        assert_eq!(ran.code, 1);
        ran.problems.join("\n").replace(&folder.path().display().to_string(), "")
    };
    let nowhere = problem("[decision_log]\npath = 'nowhere/log'\n");
    assert!(nowhere.starts_with("cannot write the decision log /nowhere/log: No such file"), "{nowhere}");
    assert_eq!(
        problem("[decision_log]\nsample = 0.0\n"),
        "/slowlane.toml:2: 0: expected a fraction greater than 0 and at most 1"
    );
    assert_eq!(
        problem("[decision_log]\nverdicts = []\n"),
        "/slowlane.toml:2: expected one or more of \"pass\", \"delay\", \"deny\""
    );
    assert!(
        problem("[decision_log]\nverdicts = ['drop']\n")
            .starts_with("/slowlane.toml:2: unknown variant `drop`")
    );
    assert!(problem("[log]\nformat = 'xml'\n").starts_with("/slowlane.toml:2: unknown variant `xml`"));
}

#[test]
fn the_log_is_silent_about_requests_and_sigusr1_changes_nothing() {
    let mut slowlane = Slowlane::with_policy(&POLICY);
    let ask = |slowlane: &Slowlane| {
        let mut line = Line::greeted(slowlane.spop);
        for id in 1..=20 {
            line.ask(id, "192.0.2.7", "slow.example");
        }
        let mut client = Client::connect(slowlane.http);
        for _ in 0..20 {
            client.request("GET", "/check?hold=off", &[("X-Slowlane-Website", "closed.example")], "");
        }
    };
    let before = slowlane.process.log();
    ask(&slowlane);
    slowlane.process.signal("USR1");
    ask(&slowlane);
    slowlane.process.signal("HUP");
    slowlane.process.logged("policy reloaded");
    let log = slowlane.process.log();
    let new = &log[before.len()..];
    // A reload repeats the warning about the policy.
    let is_of_reload = |line: &String| line.contains("policy reloaded") || line.contains("slo.map:1: SLO 0");
    assert!(new[0].contains("policy reloaded") && new.iter().all(is_of_reload), "{new:?}");
}

#[test]
fn the_level_debug_logs_connections() {
    let mut slowlane = Slowlane::with_config(&POLICY, "[log]\nlevel = 'debug'\n");
    Client::connect(slowlane.http).request("GET", "/check?hold=off", &[], "");
    slowlane.process.logged("DEBUG a connection");
}

#[test]
fn a_log_of_json_is_an_object_for_each_line() {
    let mut slowlane = Slowlane::with_config(&POLICY, "[log]\nformat = 'json'\nlevel = 'info'\n");
    slowlane.replace("slo.map", "0 burst=1 rate=5x/s\n");
    slowlane.process.logged("5x/s");
    let log = slowlane.process.log();
    for line in &log {
        let read: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
        assert!(
            read["timestamp"].is_string() && read["level"].is_string() && read["message"].is_string(),
            "{line}"
        );
    }
}
