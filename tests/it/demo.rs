//! `slowlane demo`: its output, and that it cleans up in any case.

use std::fs;
use std::io::Read;
use std::net::TcpStream;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::cli::ran;
use crate::support::eventually;
use crate::support::haproxy::Version;
use crate::support::process::Process;
use crate::support::skipped;
use crate::support::slowlane::BINARY;

/// A running demo, with its temporary files in a separate folder.
struct Demo {
    process: Process,
    folder: TempDir,
}

impl Demo {
    fn start(args: &[&str]) -> Demo {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(BINARY);
        let process = Process::start(command.arg("demo").args(args).env("TMPDIR", folder.path()));
        Demo { process, folder }
    }

    /// Waits for the line of this second.
    fn wait_for_second(&mut self, number: u32) {
        self.process.logged(&format!("{number:>6}  "));
    }

    /// The addresses in its output, each checked to have a listener.
    fn addresses(&mut self) -> Vec<String> {
        let page = self.process.logged("the page        http://");
        let mut addresses = vec![page.trim_end_matches('/').to_owned()];
        let first = self.process.log()[0].clone();
        let spoken = first.split([' ', ',', ';']).filter(|word| word.starts_with("127.0.0.1:"));
        addresses.extend(spoken.map(str::to_owned));
        for address in &addresses {
            TcpStream::connect(address).unwrap();
        }
        addresses
    }

    /// The process ids of its children.
    fn children(&self) -> Vec<String> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.process.id())).unwrap().flatten();
        let children = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
        children.flat_map(|ids| ids.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect()
    }

    /// Checks that the demo and its children have ended, and returns its exit code and output.
    fn ended(mut self, addresses: &[String], children: &[String]) -> (Option<i32>, Vec<String>) {
        let code = self.process.wait().code();
        assert_eq!(fs::read_dir(self.folder.path()).unwrap().count(), 0, "a folder was left behind");
        for address in addresses {
            assert!(TcpStream::connect(address).is_err(), "somebody still listens on {address}");
        }
        for child in children {
            assert!(fs::metadata(format!("/proc/{child}")).is_err(), "process {child} was left behind");
        }
        // The output of a process may arrive after its end.
        (code, self.process.log())
    }
}

/// Runs a whole demo of eight seconds.
fn tells_its_story(args: &[&str], first_line: &str) {
    let mut demo = Demo::start(&[&["--seconds", "8"], args].concat());
    let addresses = demo.addresses();
    let children = demo.children();
    let last = demo.process.logged("got a 429.");
    assert_eq!(last, "");
    let (code, outcome) = demo.ended(&addresses, &children);
    assert_eq!(code, Some(0), "{outcome:#?}");
    assert!(outcome[0].starts_with(first_line), "{outcome:#?}");
    assert!(
        outcome.contains(&"        slo.map now says: 3001 burst=50 rate=50/s".to_owned()),
        "{outcome:#?}"
    );
    assert!(outcome.contains(&"No request got a 429.".to_owned()), "{outcome:#?}");
    let row = |number: usize| {
        let start = format!("{number:>6}  ");
        let row =
            outcome.iter().find(|line| line.starts_with(&start)).unwrap_or_else(|| panic!("{outcome:#?}"));
        row.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let rate = |number| row(number)[1].parse::<f64>().unwrap();
    for number in 1..=8 {
        // second, crawler's rate and time, customer's rate and time, refused, and a bar if any
        assert!(row(number).len() >= 8, "{:?}", row(number));
        assert_eq!(row(number)[7], "0", "a 429 in second {number}");
    }
    // The real factor is about 7, so a slow machine does not matter.
    let sum = |numbers: std::ops::RangeInclusive<usize>| numbers.map(rate).sum::<f64>();
    assert!(sum(1..=4) > sum(6..=8), "the crawler was slowed down: {outcome:#?}");
}

#[test]
fn a_crawler_settles_behind_haproxy() {
    tells_its_story(&[], "HAProxy ");
    for version in [Version::V3_2, Version::V3_4] {
        let name = format!("HAProxy {}", version.number());
        match version.binary() {
            Some(binary) => tells_its_story(&["--haproxy", binary.to_str().unwrap()], &format!("{name} on ")),
            None => skipped(&format!("{name} cannot be had on this machine (demo)")),
        }
    }
}

#[test]
fn where_there_is_no_haproxy_slowlane_plays_its_part_and_says_so() {
    let outcome = "without HAProxy: slowlane takes HAProxy's place, and queries itself over HTTP";
    tells_its_story(&["--haproxy", "none"], outcome);
}

/// The customer is three to six times as fast, so a slow machine does not matter.
fn protects_the_application(args: &[&str], first_line: &str) {
    let mut demo = Demo::start(&[&["--protect", "--seconds", "10"], args].concat());
    let (addresses, children) = (demo.addresses(), demo.children());
    demo.process.logged("With law=protect, they get ");
    let (code, outcome) = demo.ended(&addresses, &children);
    assert_eq!(code, Some(0), "{outcome:#?}");
    assert!(outcome[0].starts_with(first_line), "{outcome:#?}");
    assert!(outcome.contains(&"        slo.map now says: 2001 law=protect".to_owned()), "{outcome:#?}");
    let row =
        |number: usize| outcome.iter().find(|line| line.starts_with(&format!("{number:>6}  "))).unwrap();
    for number in 7..=10 {
        assert!(
            row(number).contains(" inside of ") && row(number).contains(" waiting, slow-down "),
            "{outcome:#?}"
        );
    }
    let customer_ms = |number| row(number).split_whitespace().nth(5).unwrap().parse::<f64>().unwrap();
    let (before, after) = (customer_ms(3), (customer_ms(8) + customer_ms(9) + customer_ms(10)) / 3.0);
    assert!(after < before / 1.5, "the customer waits for less: {outcome:#?}");
}

#[test]
fn an_application_is_protected_behind_haproxy() {
    protects_the_application(&[], "HAProxy ");
    for version in [Version::V3_2, Version::V3_4] {
        match version.binary() {
            Some(binary) => protects_the_application(&["--haproxy", binary.to_str().unwrap()], "HAProxy 3."),
            None => skipped(&format!("HAProxy {} cannot be had on this machine (demo)", version.number())),
        }
    }
}

#[test]
fn without_haproxy_the_clients_report_the_ends() {
    protects_the_application(&["--haproxy", "none"], "without HAProxy: ");
}

#[test]
fn it_can_be_ended_at_any_moment() {
    for signal in ["INT", "TERM", "HUP", "QUIT"] {
        let mut demo = Demo::start(&[]);
        let addresses = demo.addresses();
        let children = demo.children();
        assert_eq!(children.len(), 1, "a HAProxy");
        demo.wait_for_second(1);
        demo.process.signal(signal);
        let (code, outcome) = demo.ended(&addresses, &children);
        assert_eq!(code, Some(0), "{signal}: {outcome:#?}");
    }
    // Also by a socket file without a listener.
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(BINARY);
    command.args(["demo", "--haproxy", "none"]).env("TMPDIR", folder.path());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 1];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let ended = eventually("the demonstration ends", || child.try_wait().unwrap());
    let mut errors = String::new();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert_eq!((ended.code(), errors.as_str()), (Some(0), ""));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn if_haproxy_ends_so_does_the_demonstration() {
    let mut demo = Demo::start(&[]);
    let addresses = demo.addresses();
    let children = demo.children();
    let killed = Command::new("kill").arg("-KILL").args(&children).status().unwrap();
    assert!(killed.success());
    let why = demo.process.logged("slowlane: HAProxy has exited ");
    assert!(why.contains("signal: 9"), "{why}");
    assert_eq!(demo.ended(&addresses, &children).0, Some(1));
}

#[test]
fn what_cannot_be_demonstrated_is_told() {
    let problem = |args: &[&str]| {
        let ran = ran(&[&["demo"], args].concat());
        assert_eq!(ran.code, 1);
        ran.problems.join("\n")
    };
    assert_eq!(problem(&["--haproxy", "/bin/true"]), "/bin/true: this is not HAProxy 2.6 or later");
    assert_eq!(problem(&["--haproxy", "/nowhere"]), "/nowhere: this is not HAProxy 2.6 or later");
}
