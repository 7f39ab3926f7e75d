//! The output of each command has a reader that has left, as `| head` does.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::cli::{COMMANDS, ran};
use crate::support::PATIENCE;
use crate::support::slowlane::{BINARY, Slowlane};

const HAPROXY: &str = "global\n    log stderr local0\ndefaults\n    mode http\n    timeout connect 1s\n    timeout client 5s\n    \
    timeout server 5s\nfrontend www\n    bind 127.0.0.1:18080\n    default_backend app\nbackend app\n    server a 127.0.0.1:18081\n";

/// The exit code of a command whose output nobody reads. `ends`: standard output, standard error.
fn unread(folder: &Path, words: &[&str], ends: (bool, bool)) -> Option<i32> {
    let closed = |is_closed: bool| match is_closed {
        true => Stdio::from(io::pipe().unwrap().1),
        false => Stdio::null(),
    };
    let mut command = Command::new("timeout");
    command.arg(PATIENCE.as_secs().to_string()).arg(BINARY).args(words).current_dir(folder);
    let (out, err) = ends;
    command.stdin(Stdio::null()).stdout(closed(out)).stderr(closed(err)).status().unwrap().code()
}

/// The commands of `slowlane --help`.
fn commands() -> Vec<String> {
    let help = ran(&["--help"]).out;
    let listed =
        help.lines().skip_while(|line| !COMMANDS.contains(line)).take_while(|line| *line != "Options:");
    let names = listed.filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next());
    names.map(str::to_owned).collect()
}

#[test]
fn every_command_ends_as_if_its_output_were_read() {
    let daemon = Slowlane::with_policy(&[("slo.map", "0 burst=9 rate=9/s\n")]);
    let admin = daemon.admin.to_string();
    let folder = tempfile::tempdir().unwrap();
    let line = |number: u32| {
        let (minute, second) = (number / 60, number % 60);
        let time = format!("24/Nov/2026:16:{minute:02}:{second:02} +0000");
        format!("192.0.2.{} - - [{time}] \"GET / HTTP/1.1\" 200 5 \"-\" \"x\"\n", number % 9)
    };
    fs::write(folder.path().join("log"), (0..3_000).map(line).collect::<String>()).unwrap();
    fs::write(folder.path().join("haproxy.cfg"), HAPROXY).unwrap();
    fs::create_dir(folder.path().join("bad")).unwrap();
    fs::write(folder.path().join("bad/slo.map"), "0 rate=fast\n").unwrap();
    fs::create_dir(folder.path().join("policy")).unwrap();
    fs::write(folder.path().join("policy/slo.map"), "0 rate=unlimited\n").unwrap();
    fs::write(folder.path().join("limits.conf"), "limit_req_zone $binary_remote_addr zone=a:1m rate=1r/s;\n")
        .unwrap();
    let admin = ["--admin", &admin];
    let words = |name: &str| -> Vec<Vec<String>> {
        let listed: &[&[&str]] = match name {
            // These serve until they are ended.
            "run" => &[&["--config", "missing.toml"]],
            "demo" => &[&["--help"]],
            "upgrade" => &[&["--admin", "127.0.0.1:1"]],
            "attach" => &[
                &["haproxy", "--config", "haproxy.cfg", "--frontend", "www"],
                &["nginx", "--config", "none"],
            ],
            "advise" | "replay" => &[&["log"]],
            "import" => &[&["limits.conf"]],
            "check" => &[&["--policy", "policy"], &["--policy", "bad"], &["--policy", "bad", "--json"]],
            "config" => &[&["haproxy"], &["nginx"], &["show"]],
            "test" => &[&["log"]],
            "block" => &[&["list"]],
            "why" => &[&["source=192.0.2.1"]],
            "quota" => &[&["source=192.0.2.1"]],
            "table" => &[&["show table"]],
            "completions" => &[&["bash"]],
            "simulate" | "man" | "status" | "groups" | "top" | "doctor" => &[&[]],
            other => panic!("{other}: which words would show it?"),
        };
        let is_asking =
            ["status", "groups", "top", "block", "why", "quota", "table", "doctor"].contains(&name);
        let and_admin: &[&str] = if is_asking { &admin } else { &[] };
        let whole =
            |words: &&[&str]| [&[name], *words, and_admin].concat().into_iter().map(str::to_owned).collect();
        listed.iter().map(whole).collect()
    };
    let names = commands();
    assert!(names.len() > 15, "{names:?}");
    for words in names.iter().flat_map(|name| words(name)) {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let read = unread(folder.path(), &words, (false, false));
        assert!(matches!(read, Some(0..=2)), "{words:?}: {read:?}");
        for ends in [(true, false), (true, true)] {
            assert_eq!(unread(folder.path(), &words, ends), read, "{words:?} {ends:?}");
        }
    }
}

/// The files are written although the reader of the diff has left.
#[test]
fn what_is_to_be_written_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let main = folder.path().join("haproxy.cfg");
    fs::write(&main, HAPROXY).unwrap();
    let attach = ["attach", "haproxy", "--config", "haproxy.cfg"];
    let write = [&attach[..], &["--frontend", "www", "--write"]].concat();
    assert_eq!(unread(folder.path(), &write, (true, true)), Some(0));
    assert!(fs::read_to_string(&main).unwrap().contains("slowlane"));
    assert_eq!(unread(folder.path(), &[&attach[..], &["--undo"]].concat(), (true, true)), Some(0));
    assert_eq!(fs::read_to_string(&main).unwrap(), HAPROXY);
    assert_eq!(unread(folder.path(), &["config", "nginx", "--dir", "files"], (true, true)), Some(0));
    assert!(fs::read_dir(folder.path().join("files")).unwrap().count() >= 2);
}
