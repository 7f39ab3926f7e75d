//! The command line, as it is typed.

use std::env;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};

use slowlane_core::law::Law;
use spop::{Frame, Kind};

use crate::support::process::Process;
use crate::support::slowlane::BINARY;
use crate::support::spop::{Line, goodbye, hello};
use crate::support::{PATIENCE, client, project, skipped};

/// The headings above lists of commands in the help.
pub const COMMANDS: [&str; 5] = ["Commands:", "Serve:", "Set up:", "Operate:", "More:"];

/// A command that has ended.
pub struct Ran {
    pub code: i32,
    pub out: String,
    /// The lines of standard error, without the name of the program.
    pub problems: Vec<String>,
}

/// Runs a command to its end.
pub fn ran(args: &[&str]) -> Ran {
    ran_in(Path::new("."), args)
}

pub fn ran_in(folder: &Path, args: &[&str]) -> Ran {
    ran_by(Path::new(BINARY), folder, args)
}

pub fn ran_by(program: &Path, folder: &Path, args: &[&str]) -> Ran {
    let (code, out, err) = typed_to(program, folder, args);
    let name = format!("{}: ", program.file_name().unwrap().display());
    let mut problems = Vec::new();
    for line in err.lines() {
        match line.strip_prefix(&name) {
            // A recognised log is no problem; `formats` looks at these lines.
            Some(told) if told.contains(": read as ") => {}
            Some(problem) => problems.push(problem.to_owned()),
            // A start that fails late has logged its earlier steps.
            None => assert!(line.contains(" INFO ") || line.contains(" WARN "), "{line}"),
        }
    }
    Ran { code, out, problems }
}

/// Exit code, standard output, standard error.
fn typed(folder: &Path, args: &[&str]) -> (i32, String, String) {
    typed_to(Path::new(BINARY), folder, args)
}

fn typed_to(program: &Path, folder: &Path, args: &[&str]) -> (i32, String, String) {
    let mut command = Command::new("timeout");
    command
        .arg(PATIENCE.as_secs().to_string())
        .arg(program)
        .args(args)
        .current_dir(folder)
        .stdin(Stdio::null());
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

const HERE: &str = ".";

#[test]
fn help_teaches_with_examples_that_can_be_typed() {
    for (args, words) in [
        (
            &["--help"][..],
            &[
                "run",
                "check",
                "simulate",
                "replay",
                "test",
                "Examples:",
                "127.0.0.1:9000",
                "127.0.0.1:9001",
                "127.0.0.1:9002",
            ][..],
        ),
        (
            &["run", "--help"],
            &[
                "Examples:",
                "--config <FILE>",
                "--policy <DIR>",
                "--spop <ADDR>",
                "--http <ADDR>",
                "--admin <ADDR>",
                "slo.map",
                "source+website.map",
                "host:port or unix:/path",
                "SIGHUP",
            ],
        ),
        (&["check", "--help"], &["--config <FILE>", "--policy <DIR>", "Exit code 0"]),
        (
            &["why", "--help"],
            &[
                "Examples:",
                "--policy <DIR>",
                "--config <FILE>",
                "--admin <ADDR>",
                "--token-file <FILE>",
                "--json",
            ],
        ),
        (&["table", "--help"], &["Examples:", "show", "get", "set", "clear", "--admin <ADDR>", "gpc1_rate"]),
        (
            &["simulate", "--help"],
            &[
                "Examples:",
                "--clients 5-50-5",
                "--attack <RATE>",
                "--greedy <N>",
                "--option <[LAW:]NAME=VALUE>",
                "--seed <N>",
                "--nodes <N>",
                "--skew <PERCENT>",
                "--store-dead <FROM..TO>",
                "worst s",
                "[default: pace]",
                "[default: 50/s]",
                "measured s",
                "settled s",
                "Jain",
            ],
        ),
        (
            &["test", "--help"],
            &[
                "Examples:",
                "--policy <DIR>",
                "--config <FILE>",
                "--verbose",
                "--json",
                "<FILE>...",
                "at once",
                "Exit code 0",
            ],
        ),
        (
            &["advise", "--help"],
            &[
                "Examples:",
                "--by <FIELD>",
                "--spare <PERCENT>",
                "--except-bots",
                "--format <FORMAT>",
                "--field <NAME=ITEM>",
                "--top <N>",
                "--reorder <TIME>",
                "--json",
                "131072 clients",
                "Exit code 0",
            ],
        ),
        (
            &["replay", "--help"],
            &[
                "Examples:",
                "--policy <DIR>",
                "--against <DIR>",
                "--format <FORMAT>",
                "--field <NAME=ITEM>",
                "--reorder <TIME>",
                "--top <N>",
                "--seed <N>",
                "--json",
                "%[capture.req.hdr(N)]",
                "Exit code 0",
            ],
        ),
    ] {
        let (code, out, err) = typed(Path::new(HERE), args);
        assert_eq!((code, err.as_str()), (0, ""), "{args:?}");
        for word in words {
            assert!(out.contains(word), "{args:?} does not say {word:?}:\n{out}");
        }
        for example in out.lines().filter_map(|line| line.strip_prefix("  slowlane ")) {
            let words = example.split(' ').map(|word| word.trim_matches('\''));
            let typed_on: Vec<&str> = words.chain(["--help"]).collect();
            assert_eq!(typed(Path::new(HERE), &typed_on).0, 0, "{example}");
        }
    }
    let (_, run, _) = typed(Path::new(HERE), &["run", "--help"]);
    for law in Law::NAMES {
        assert!(run.contains(law), "the help does not name {law}");
    }
    let (_, short, _) = typed(Path::new(HERE), &["-h"]);
    assert!(short.contains("Examples:"));
}

#[test]
fn version_is_the_one_of_the_package() {
    let version = concat!("slowlane ", env!("CARGO_PKG_VERSION"), "\n");
    for flag in ["--version", "-V"] {
        assert_eq!(typed(Path::new(HERE), &[flag]), (0, version.to_owned(), String::new()));
    }
}

/// A page of the manual, for a terminal.
#[test]
fn help_prints_a_page_of_the_manual_or_names_the_pages() {
    let (code, page, err) = typed(Path::new(HERE), &["help", "protect"]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(page.starts_with("# Protect an application\n") && page.contains("law=protect"), "{page}");
    let (code, out, err) = typed(Path::new(HERE), &["help", "nothing"]);
    assert_eq!((code, out.as_str()), (2, ""));
    let topics = err.lines().next().unwrap().split_once("topics are ").expect(&err).1;
    for topic in topics.split(", ") {
        let (code, page, _) = typed(Path::new(HERE), &["help", topic]);
        assert!(code == 0 && page.lines().count() > 20, "{topic}: {page}");
    }
    // The help of commands is clap's own.
    for words in [&["help", "attach"][..], &["help", "config", "nginx"], &["help", "help"], &["help"]] {
        assert!(typed(Path::new(HERE), words).1.contains("\nUsage: slowlane "), "{words:?}");
    }
}

/// A closed pipe, as by `head`, is not an error. A full disk is one.
#[test]
fn output_that_nobody_reads_is_no_error_and_output_that_is_lost_is_one() {
    let (log, policy) = (tempfile::NamedTempFile::new().unwrap(), project("haproxy/maps"));
    let cases = policy.join("policy.test");
    fs::write(log.path(), "::1 - - [06/Feb/2009:12:14:14 +0000] \"GET / HTTP/1.1\" 200 3 \"-\" \"x\"\n")
        .unwrap();
    for args in [
        // The defaults: without a config file, a service that is installed here would have its own.
        &["check", "--config", "/dev/null"][..],
        &["config", "show", "--config", "/dev/null"],
        &["config", "nginx", "--config", "/dev/null"],
        &["config", "haproxy", "--version", "2.6", "--config", "/dev/null"],
        &["simulate", "--seconds", "1"],
        &["replay", log.path().to_str().unwrap()],
        &["advise", "--spare", "100", log.path().to_str().unwrap()],
        &["test", "--policy", policy.to_str().unwrap(), cases.to_str().unwrap()],
        &["why", "--policy", policy.to_str().unwrap(), "source=192.0.2.1"],
        &["completions", "bash"],
        &["man"],
        &["help", "protect"],
    ] {
        stands_although_nobody_reads(Path::new(BINARY), args);
    }
}

pub fn stands_although_nobody_reads(program: &Path, args: &[&str]) {
    let said = |stdout: Stdio| {
        let mut command = Command::new(program);
        let output = command.args(args).stdout(stdout).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        let mut problems = text.lines().filter(|line| !line.contains(": read as "));
        (output.status.code(), problems.next_back().unwrap_or_default().to_owned())
    };
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let (code, problem) = said(writer.into());
    assert_eq!((code, problem.as_str()), (Some(0), ""), "{args:?}");
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let (code, problem) = said(full.into());
    let want = format!("{}: No space left on device (os error 28)", program.file_name().unwrap().display());
    assert_eq!((code, problem), (Some(1), want), "{args:?}");
}

#[test]
fn what_cannot_be_typed_is_told_with_the_usage() {
    for (args, word) in [
        (&[][..], "Usage: slowlane <COMMAND>"),
        (&["serve"], "'serve'"),
        (&["run", "--port", "1"], "'--port'"),
        (&["run", "--spop"], "'--spop <ADDR>'"),
        (
            &["run", "--spop", "nowhere"],
            "\"nowhere\": expected host:port, like 127.0.0.1:9000, or unix:/path",
        ),
        (&["run", "--http", "127.0.0.1:65536"], "'127.0.0.1:65536' for '--http <ADDR>'"),
        (&["run", "--admin", "unix:here.sock"], "'unix:here.sock' for '--admin <ADDR>'"),
        (&["run", "--config", "a", "--config", "b"], "'--config <FILE>' cannot be used multiple times"),
        (&["run", "policy"], "'policy'"),
        (&["check", "--spop", "127.0.0.1:1"], "'--spop'"),
        (&["advise", "--spare", "101", "x"], "expected a percentage from 0 to 100, like 99.9"),
        (&["replay", "--measure", "tokens=$x", "x"], "expected seconds, bytes or cost, and an item"),
        (&["advise", "--by", "website+owner", "x"], "expected a field, or source and a field"),
        (
            &["simulate", "--attack", "5x/s"],
            "'5x/s' for '--attack <RATE>': expected a whole number per period (s, m, h, d or month), like \
             50/s; for 1.5/s, write 90/m",
        ),
        (&["simulate", "--protect", "--rate", "50/s"], "'--protect [<LOAD>]' cannot be used with"),
        (&["simulate", "--runs", "4"], "--protect [<LOAD>]"),
        (&["simulate", "--protect", "flood"], "possible values: alone, crawlers, networks,"),
        (&["test"], "<FILE>..."),
        (&["test", "--json", "--verbose", "a"], "cannot be used with"),
        (&["why"], "<FIELD=VALUE>"),
        (&["why", "192.0.2.1"], "expected a field and its value, like website=shop.example"),
        (&["why", "--policy", "a", "--admin", "127.0.0.1:1", "a=b"], "cannot be used with"),
        (&["block", "add", "--for", "1m"], "<FIELD=VALUE>"),
        (&["block", "add", "source=192.0.2.66"], "--for <DURATION>"),
        (
            &["block", "add", "a=b", "--for", "10"],
            "expected a whole number and a unit (us, ms, s, m, h or d), like 5s",
        ),
        (&["block", "add", "a=b", "--for", "367d"], "expected a duration of at most 366 days"),
        (
            &["block", "add", "a=b", "--for", "0s"],
            "expected a duration longer than 0, like 10m; to end a block, use `slowlane block rm`",
        ),
        (&["block"], "Usage: slowlane block"),
        (&["block", "source=192.0.2.66", "--for", "10m"], "`slowlane block` is now `slowlane block add`"),
        (&["unblock", "source=192.0.2.66"], "`slowlane unblock` is now `slowlane block rm`"),
        (&["blocks", "--json"], "`slowlane blocks` is now `slowlane block list`"),
        (&["cluster"], "`slowlane cluster` is now `slowlane status cluster`"),
        (&["peers", "--help"], "`slowlane peers` is now `slowlane status peers`"),
        (&["spoa-check", "--list"], "`slowlane spoa-check` is now `slowlane-check spoa`"),
        (&["rls-check", "127.0.0.1:9005"], "run `cargo install --path tools/check`"),
        (&["block", "rm"], "<FIELD=VALUE>"),
        (&["table"], "Usage: slowlane table"),
        (&["table", "get", "26C7"], "expected a key of sixteen hex digits, like 26C7827D889F6DA3"),
        (&["table", "set", "26C7827D889F6DA3"], "<COLUMN VALUE>"),
        (&["simulate", "--law", "best"], "[possible values: adaptive, pace, fair,"),
        (&["simulate", "--clients", "5-"], "expected a number of clients from 0 to 10000, like 50"),
        (&["simulate", "--think", "1"], "expected a whole number and a unit (us, ms, s, m, h or d), like 5s"),
        (&["simulate", "--option", "max_delay"], "expected an option, like max_delay=10s"),
        (&["simulate", "--option", "best:max_delay=1s"], "or an option for one law, like pace:max_delay=10s"),
        (&["simulate", "--seconds", "86401"], "86401 is not in 1..=86400"),
        (&["simulate", "--nodes", "1001"], "1001 is not in 1..=1000"),
        (&["simulate", "--skew", "0.8"], "expected a part of the load from 0% to 100%, like 80% or 12.5%"),
        (
            &["simulate", "--store-dead", "80s"],
            "expected two times after the start of the run, the earlier time first, like 20s..80s",
        ),
        (&["simulate", "--attack", "1000001/s"], "expected a rate of at most 1000000/s"),
    ] {
        let (code, out, err) = typed(Path::new(HERE), args);
        assert_eq!((code, out.as_str()), (2, ""), "{args:?}");
        assert!(err.contains(word), "{args:?}:\n{err}");
    }
}

/// Runs the daemon on free addresses, except for those in `given`.
fn run_with(given: &[&str]) -> Ran {
    let mut args = vec!["run"];
    for flag in ["--spop", "--http", "--admin"] {
        if !given.contains(&flag) {
            args.extend([flag, "127.0.0.1:0"]);
        }
    }
    ran(&[&args, given].concat())
}

#[test]
fn an_address_that_cannot_be_had_is_told_with_a_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().to_string();
    let path = |name: &str| format!("unix:{}", folder.path().join(name).display());
    let _listening = UnixListener::bind(folder.path().join("taken.sock")).unwrap();
    fs::write(folder.path().join("file"), "precious").unwrap();
    let in_use = "Address already in use (os error 98); stop the program that listens there, or choose another address";
    for (address, reason) in [
        (port.as_str(), in_use),
        (
            &path("taken.sock"),
            "address in use; stop the program that listens there, or choose another address",
        ),
        (&path("file"), in_use),
        (
            &path("nowhere/a.sock"),
            "No such file or directory (os error 2); create the socket's directory first, or choose another address",
        ),
        (
            "192.0.2.1:9000",
            "Cannot assign requested address (os error 99); choose an address that this machine has",
        ),
    ] {
        for flag in ["--spop", "--http", "--admin"] {
            if (flag, address) == ("--admin", "192.0.2.1:9000") {
                // Other machines could reach that listener, so the first error is the missing token.
                continue;
            }
            let Ran { code, out, problems } = run_with(&[flag, address]);
            assert_eq!((code, out.as_str()), (1, ""), "{flag} {address}");
            assert_eq!(problems, [format!("cannot listen on {address}: {reason}")]);
        }
    }
    assert_eq!(fs::read_to_string(folder.path().join("file")).unwrap(), "precious");
    assert!(
        UnixStream::connect(folder.path().join("taken.sock")).is_ok(),
        "the other program still listens there"
    );
}

#[test]
fn a_socket_file_that_nobody_listens_on_is_replaced_and_taken_away_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("spop.sock");
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists() && UnixStream::connect(&path).is_err(), "left behind, as after kill -9");

    let spop = format!("unix:{}", path.display());
    let args =
        ["run", "--spop", &spop, "--spop", "127.0.0.1:0", "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    let mut process = Process::start(Command::new(BINARY).args(args));
    assert!(process.logged("SPOP on unix:").ends_with("/spop.sock"));
    let tcp = process.logged("SPOP on 127.0.0.1:");
    process.logged("admin on ");
    Line::greeted(format!("127.0.0.1:{}", tcp.trim()).parse().unwrap());

    let mut stream = UnixStream::connect(&path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&[hello(), goodbye()].concat()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let (hello, bytes) = Frame::cut(&answer, u32::MAX).unwrap().unwrap();
    let (goodbye, _) = Frame::cut(&answer[bytes..], u32::MAX).unwrap().unwrap();
    assert_eq!((hello.head.kind, goodbye.head.kind), (Kind::AGENT_HELLO, Kind::AGENT_DISCONNECT));

    process.signal("TERM");
    assert!(process.wait().success());
    assert!(!path.exists());
}

/// A policy of these files.
fn policy(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

const SLO_MAP: (&str, &str) = ("slo.map", "0 rate=unlimited\n2001 burst=1 rate=1/s\n");

/// The problems of a policy without its path, equal for both commands.
fn problems_of(dir: &Path) -> Vec<String> {
    let args = ["--policy", dir.to_str().unwrap()];
    let checked = ran(&[&["check"], &args[..]].concat());
    let served = run_with(&args);
    assert_eq!((checked.code, checked.out.as_str()), (1, ""));
    assert_eq!((served.code, &served.problems), (1, &checked.problems), "what check refuses is not served");
    let prefix = format!("{}/", dir.display());
    let place = |problem: &String| problem.strip_prefix(&prefix).expect("the path comes first").to_owned();
    checked.problems.iter().map(place).collect()
}

const NO_SLO_MAP: &str =
    "slo.map: no such file: create it with one SLO per line, at least `0 rate=unlimited`";

#[test]
fn a_policy_without_slo_map_is_one_problem() {
    let folder = policy(&[("website.map", "shop.example 2001\n")]);
    assert_eq!(problems_of(folder.path()), [NO_SLO_MAP]);
    assert_eq!(problems_of(&folder.path().join("nowhere")), [NO_SLO_MAP]);
    symlink("nowhere", folder.path().join("slo.map")).unwrap();
    assert_eq!(problems_of(folder.path()), [NO_SLO_MAP], "a link to nowhere");
}

#[test]
fn a_map_that_cannot_be_read_is_told() {
    let folder = policy(&[]);
    fs::create_dir(folder.path().join("slo.map")).unwrap();
    assert_eq!(problems_of(folder.path()), ["slo.map: cannot be read: not a regular file"]);

    let folder = policy(&[SLO_MAP]);
    fs::create_dir(folder.path().join("owner.map")).unwrap();
    symlink("website.map", folder.path().join("website.map")).unwrap();
    let made = Command::new("mkfifo").arg(folder.path().join("source.map")).status().unwrap();
    assert!(made.success());
    assert_eq!(
        problems_of(folder.path()),
        [
            "source.map: cannot be read: not a regular file",
            "website.map: cannot be read: Too many levels of symbolic links (os error 40)",
            "owner.map: cannot be read: not a regular file",
        ]
    );
}

#[test]
fn every_problem_of_a_policy_is_told_with_its_line() {
    let folder = policy(&[
        ("slo.map", "# ours\n0 burst=10000 rate=5000/s\n2001 burst=1 rate=5x/s\n6001 burst=1 rate=1/s\n"),
        ("website.map", "shop.example 2001\nblog.example 2002\n"),
        ("source.map", "\n\nlocalhost 0\n"),
    ]);
    assert_eq!(
        problems_of(folder.path()),
        [
            "slo.map:3: rate \"5x/s\": expected a whole number per period (s, m, h, d or month), like 50/s; \
             for 1.5/s, write 90/m",
            "slo.map:4: SLO 6001: type 6 is not declared: use one of the types 0, 1, 2, 3, 4, 5, or declare \
             this type in [policy.types]",
            "source.map:3: \"localhost\": expected an address or a network, like 192.0.2.0/24 or 2001:db8::/32",
            "website.map:2: SLO 2002 is not in slo.map: add it there, or name a different SLO",
        ]
    );
}

#[test]
fn a_thousand_problems_are_a_hundred_lines_and_a_count() {
    let folder = policy(&[SLO_MAP, ("website.map", &"a 1\n".repeat(1_000))]);
    let checked = ran(&["check", "--policy", folder.path().to_str().unwrap()]);
    assert_eq!((checked.code, checked.problems.len()), (1, 101));
    assert_eq!(checked.problems[100], "and 900 more");
}

#[test]
fn what_is_hardly_meant_is_served_with_a_warning() {
    let websites = "Shop.Example 2001\nshop.example:8080 2001\nhttps://shop.example/ 2001\nblog.example 2001\nblog.example 0\n";
    let folder =
        policy(&[SLO_MAP, ("website.map", websites), ("sources.map", "192.0.2.1 0\n"), ("source.map", "")]);
    let dir = folder.path().to_str().unwrap();
    let checked = ran(&["check", "--policy", dir]);
    assert_eq!(
        (checked.code, checked.out.as_str()),
        (0, &*format!("ok: policy {dir}: 2 SLOs; source.map 0 lines, website.map 5 lines\n"))
    );
    let alone = "a website must be a bare host, like \"shop.example\"";
    let again =
        |name: &str, first| format!("\"{name}\" is already on line {first}, which wins: keep one of the two");
    let read = "slo.map, source+website.map, source+owner.map, source.map, website.map, owner.map";
    let expected = [
        format!("warning: {dir}/website.map:2: {}", again("shop.example", 1)),
        format!("warning: {dir}/website.map:3: \"https://shop.example/\" has a scheme: {alone}"),
        format!("warning: {dir}/website.map:5: {}", again("blog.example", 4)),
        format!("warning: {dir}/sources.map: no lookup reads this file: the maps in use are {read}"),
    ];
    assert_eq!(checked.problems, expected);
    let folder = policy(&[SLO_MAP, ("website.map", &"a 2001\n".repeat(1_000))]);
    let checked = ran(&["check", "--policy", folder.path().to_str().unwrap()]);
    assert_eq!((checked.code, checked.problems.len()), (0, 11));
    assert_eq!(checked.problems[10], "warning: and 989 more");
}

#[test]
fn a_line_that_has_no_effect_is_a_warning() {
    let folder = policy(&[
        ("slo.map", "0 rate=unlimited\n2001 burst=1 rate=1/s also=website\n1001 burst=1 rate=1/s\n"),
        (
            "website.map",
            "\"shop.example\" 2001\n*.shop.example 2001\n192.0.2.0/24 2001\na.example#ours 2001\n",
        ),
        ("owner.map", "acme=1001\nann\n"),
    ]);
    let checked = ran(&["check", "--policy", folder.path().to_str().unwrap()]);
    let prefix = format!("warning: {}/", folder.path().display());
    let outcome: Vec<&str> =
        checked.problems.iter().map(|outcome| outcome.strip_prefix(&prefix).unwrap()).collect();
    let expected = [
        "website.map:1: \"\\\"shop.example\\\"\" has quotes, ",
        "website.map:2: \"*.shop.example\": str treats * as an ordinary character: ",
        "website.map:3: \"192.0.2.0/24\" is a network, ",
        "website.map:4: \"a.example#ours\": the # is part of the key: ",
        "owner.map:1: \"acme=1001\" has no value, so it selects SLO 0: put a space before the SLO instead of =",
        "owner.map:2: \"ann\" has no value, so it selects SLO 0: ",
        "slo.map:2: also=website leads from SLO 2001 to SLO 2001, which has no effect there, ",
        "slo.map:3: no map names SLO 1001: an SLO has no effect until a line in owner.map names it",
    ];
    assert_eq!((checked.code, outcome.len()), (0, expected.len()), "{outcome:#?}");
    for (outcome, expected) in outcome.iter().zip(expected) {
        assert!(outcome.starts_with(expected), "{outcome}");
    }
    fs::write(folder.path().join("slo.map"), "0 burst=1 rate=1/s # ours\n").unwrap();
    let checked = ran(&["check", "--policy", folder.path().to_str().unwrap()]);
    assert!(
        checked.problems[0].ends_with("slo.map:1: \"#\": a comment needs a line of its own"),
        "{:?}",
        checked.problems
    );
}

#[test]
fn who_mistypes_a_command_or_a_flag_is_told_the_one_that_is_like_it() {
    for (args, like) in [(&["chekc"][..], "'check'"), (&["run", "--polcy", "maps"], "'--policy'")] {
        let (code, out, err) = typed(Path::new(HERE), args);
        assert_eq!((code, out.as_str()), (2, ""), "{args:?}");
        assert!(err.contains("similar") && err.contains(like), "{args:?}: {err}");
    }
}

/// What one writes first, and what it does instead.
#[test]
fn with_strict_a_policy_that_does_something_else_is_refused() {
    const SLOS: &str = "0 rate=unlimited\n1001 burst=20 rate=10/s\n3001 burst=20 rate=10/s\n";
    for (files, expected) in [
        (
            &[("slo.map", "0 burst=20 rate=10/s\n")][..],
            "slo.map:1: SLO 0 is one bucket for all clients together",
        ),
        (
            &[
                ("slo.map", SLOS),
                ("source.map", "0.0.0.0/0 3001\n"),
                ("source+owner.map", "192.0.2.1+acme 1001\n"),
            ],
            "source.map:1: this line covers only IPv4, so clients with IPv6 addresses escape it: add a line for \"::/0\"",
        ),
        (
            &[("slo.map", SLOS), ("source.map", "0.0.0.0/0 3001\n::/0 3001\n"), ("owner.map", "acme 1001\n")],
            "owner.map: source.map:2 matches every client first, so no client reaches this map",
        ),
        (&[("slo.map", "0 rate=unlimited\n3001 burst=20 rate=10/s\n")], "slo.map:2: no map names SLO 3001"),
        (
            &[
                ("slo.map", "0 rate=unlimited\n2001 burst=20 rate=10/s block=1h\n"),
                ("website.map", "a.example 2001\n"),
            ],
            "slo.map:2: block= refuses all clients that share a key of website",
        ),
    ] {
        let folder = policy(files);
        let check =
            |flags: &[&str]| ran(&[&["check", "--policy", folder.path().to_str().unwrap()], flags].concat());
        let lenient = check(&[]);
        assert_eq!((lenient.code, lenient.problems.len()), (0, 1), "{:?}", lenient.problems);
        assert!(lenient.problems[0].contains(expected), "{:?}", lenient.problems);
        assert_eq!(check(&["--strict"]).code, 1, "{expected}");
    }
    let folder = policy(&[("slo.map", "0 rate=unlimited\n")]);
    let config = folder.path().join("slowlane.toml");
    fs::write(&config, "policy.dir = \".\"\n[policy.types]\n6 = [\"ip\"]\n").unwrap();
    let strict = ran(&["check", "--strict", "--config", config.to_str().unwrap()]);
    assert_eq!(strict.code, 1);
    assert!(
        strict.problems[0].contains("[policy.types]: type 6 has the ip field, which no lookup"),
        "{:?}",
        strict.problems
    );
}

#[test]
fn a_delay_that_would_be_cut_is_a_warning() {
    let folder = policy(&[
        ("slo.map", "0 rate=unlimited\n3001 burst=1 rate=1/s max_delay=20s\n"),
        ("source.map", "192.0.2.1 3001\n"),
    ]);
    let config = folder.path().join("slowlane.toml");
    for (longest, warned) in [("20s", false), ("19s", true)] {
        fs::write(&config, format!("hold.longest = \"{longest}\"\npolicy.dir = \".\"\n")).unwrap();
        let checked = ran(&["check", "--config", config.to_str().unwrap()]);
        assert_eq!((checked.code, checked.problems.len()), (0, usize::from(warned)));
        if let [warning] = checked.problems.as_slice() {
            let expected = "slo.map:2: max_delay 20s is longer than [hold] longest, 19s, so holds end early";
            assert!(warning.contains(expected), "{warning}");
        }
    }
}

#[test]
fn a_policy_that_can_be_served_is_ok() {
    let folder = policy(&[SLO_MAP, ("website.map", "shop.example 2001\n"), ("notes.txt", "not ours\n")]);
    let dir = folder.path().to_str().unwrap();
    let out = format!("ok: policy {dir}: 2 SLOs; website.map 1 line\n");
    assert_eq!(typed(Path::new(HERE), &["check", "--policy", dir]), (0, out, String::new()));
}

#[test]
fn check_names_what_it_checked() {
    let folder = policy(&[SLO_MAP, ("website.map", "shop.example 2001\n")]);
    let (dir, config) = (folder.path().to_str().unwrap(), folder.path().join("slowlane.toml"));
    fs::write(&config, "policy.dir = \".\"\n").unwrap();
    let config = config.to_str().unwrap();
    let ok = |args: &[&str]| {
        let Ran { code, out, problems } = ran(&[&["check"], args].concat());
        assert_eq!((code, problems.len()), (0, 0), "{args:?}: {problems:?}");
        out
    };
    assert_eq!(ok(&["--policy", dir]), format!("ok: policy {dir}: 2 SLOs; website.map 1 line\n"));
    let both = format!("ok: config {config}, policy {dir}/.: 2 SLOs; website.map 1 line\n");
    assert_eq!(ok(&["--config", config]), both);
    fs::write(config, "").unwrap();
    let out = ok(&["--config", config]);
    assert!(out.starts_with(&format!("ok: config {config}, the built-in policy: 1 SLO; ")), "{out}");
}

#[test]
fn check_without_flags_looks_where_the_service_looks() {
    let service = fs::read_to_string(project("systemd/slowlane.service")).unwrap();
    assert!(service.contains("slowlane run --config /etc/slowlane/slowlane.toml\n"));
    let check = |files: &str| {
        let script = format!(
            "mount -t tmpfs none /etc && mkdir -p /etc/slowlane/policy && cd /etc/slowlane && {files}
             '{BINARY}' check 2>&1; echo \"exit $?\""
        );
        let output = Command::new("unshare").args(["-rm", "sh", "-c", &script]).output();
        output.ok().filter(|output| output.status.success()).map(|ran| String::from_utf8(ran.stdout).unwrap())
    };
    let good =
        "printf 'policy.dir = \"policy\"\n' > slowlane.toml; printf '0 rate=unlimited\n' > policy/slo.map";
    let Some(said) = check(good) else { return skipped("a mount namespace is not allowed") };
    let ok = "ok: config /etc/slowlane/slowlane.toml, policy /etc/slowlane/policy: 1 SLO; no maps; no SLO has a limit, so nothing is throttled\nexit 0\n";
    assert_eq!(said, ok);
    let said = check("printf '[hold]\nmaximum = 1\n' > slowlane.toml").unwrap();
    assert!(said.starts_with("slowlane: /etc/slowlane/slowlane.toml:2: unknown field `maximum`"), "{said}");
    assert!(said.ends_with("exit 1\n"), "{said}");
    let said = check("true").unwrap();
    assert!(
        said.starts_with("ok: no config file (/etc/slowlane/slowlane.toml is missing), the built-in"),
        "{said}"
    );
}

#[test]
fn every_mistake_of_a_config_and_of_its_policy_is_told() {
    let folder = policy(&[("slo.map", "0 burst=1 rate=5x/s\n"), ("website.map", "shop.example 2001\n")]);
    let config = folder.path().join("slowlane.toml");
    let text = "[spop]
timeout = \"5\"
listn = []
listen = [\"127.0.0.1:9000\", \"nowhere\"]
[hold]
max = -1
longest = 0
when_full = \"pass\"
[holds]
max = 1
[admin]
listen = [\"0.0.0.0:9002\"]
allow = [\"10.0.0.0/8\"]
token_file = \"missing\"
[policy]
dir = \".\"
key_secret_file = \"nowhere\"
ipv4_prefix = 33
";
    fs::write(&config, text).unwrap();
    let path = config.to_str().unwrap();
    let dir = folder.path().display().to_string();
    let checked = ran(&["check", "--config", path]);
    assert_eq!((checked.code, checked.out.as_str()), (1, ""));
    let lines = [2, 3, 4, 6, 7, 9, 14, 17, 18];
    let outcome: Vec<&String> = checked.problems.iter().filter(|problem| problem.starts_with(path)).collect();
    for line in lines {
        let place = format!("{path}:{line}: ");
        assert_eq!(
            outcome.iter().filter(|problem| problem.starts_with(&place)).count(),
            1,
            "{line}: {outcome:#?}"
        );
    }
    assert_eq!(outcome.len(), lines.len(), "{outcome:#?}");
    // The policy is read nevertheless.
    let policy = &checked.problems[lines.len()..];
    let expected = [
        format!(
            "{dir}/./slo.map:1: rate \"5x/s\": expected a whole number per period (s, m, h, d or month), \
             like 50/s; for 1.5/s, write 90/m"
        ),
        format!("{dir}/./website.map:1: SLO 2001 is not in slo.map: add it there, or name a different SLO"),
    ];
    assert_eq!(policy, expected);
    // A start tells the same of the config.
    assert_eq!(ran(&["run", "--config", path]).problems, checked.problems[..lines.len()]);
    // Several mistakes of syntax.
    fs::write(&config, "[spop]\ntimeout = \n[hold]\nmax = 1 2\nlongest = 1s\n").unwrap();
    let outcome = ran(&["check", "--config", path]).problems;
    for line in [2, 4, 5] {
        let place = format!("{path}:{line}: ");
        assert!(outcome.iter().any(|problem| problem.starts_with(&place)), "{line}: {outcome:#?}");
    }
}

#[test]
fn an_error_names_what_was_probably_meant() {
    let folder = policy(&[(
        "slo.map",
        "0 rate=unlimited\n3001 burst=1 rate=1.5/s\n3002 burst=1 rate=1/s law=token_bucket\n",
    )]);
    let dir = folder.path().to_str().unwrap();
    let slo_map = format!("{dir}/slo.map");
    let expected = [
        format!(
            "{slo_map}:2: rate \"1.5/s\": expected a whole number per period (s, m, h, d or month), like \
             50/s; for 1.5/s, write 90/m"
        ),
        format!("{slo_map}:3: law \"token_bucket\": did you mean token-bucket?"),
    ];
    assert_eq!(ran(&["check", "--policy", dir]).problems, expected);
    let no_directory = format!(
        "{slo_map}/slo.map: the parent of this path is a file: name the directory that contains slo.map and the other maps"
    );
    assert_eq!(ran(&["check", "--policy", &slo_map]).problems[0], no_directory);
}

#[test]
fn with_strict_a_warning_is_an_error() {
    let folder = policy(&[SLO_MAP, ("website.map", "shop.example/ 2001\n")]);
    let dir = folder.path().to_str().unwrap();
    let [lenient, strict] =
        [&[][..], &["--strict"]].map(|flag| ran(&[&["check", "--policy", dir], flag].concat()));
    assert_eq!((lenient.code, lenient.problems.len()), (0, 1));
    assert_eq!((strict.code, strict.out.as_str()), (1, ""));
    assert_eq!(strict.problems[0], lenient.problems[0]);
    assert_eq!(strict.problems[1], "1 warning, which --strict treats as an error");
    fs::write(folder.path().join("website.map"), "shop.example 2001\n").unwrap();
    assert_eq!(ran(&["check", "--policy", dir, "--strict"]).code, 0);
}

#[test]
fn with_json_a_check_is_for_programs() {
    let folder = policy(&[SLO_MAP, ("website.map", "shop.example/ 2001\n")]);
    let dir = folder.path().to_str().unwrap();
    let json = |args: &[&str]| {
        let Ran { code, out, problems } = ran(&[&["check", "--json", "--policy", dir], args].concat());
        assert_eq!(problems, [""; 0], "everything is in the JSON");
        (code, serde_json::from_str::<serde_json::Value>(&out).unwrap())
    };
    let (code, said) = json(&[]);
    assert_eq!((code, &said["ok"], &said["policy"]), (0, &true.into(), &dir.into()));
    assert_eq!(
        (&said["config"], &said["summary"]),
        (&serde_json::Value::Null, &"2 SLOs; website.map 1 line".into())
    );
    let place = format!("{dir}/website.map");
    assert_eq!(
        (&said["errors"], &said["warnings"][0]["file"]),
        (&serde_json::json!([]), &place.as_str().into())
    );
    assert_eq!(said["warnings"][0]["line"], 1);
    assert!(said["warnings"][0]["text"].as_str().unwrap().starts_with("\"shop.example/\" has a slash: "));
    let (code, said) = json(&["--strict"]);
    assert_eq!((code, &said["ok"], said["warnings"].as_array().unwrap().len()), (1, &false.into(), 1));
    fs::write(folder.path().join("website.map"), "a 7\n".repeat(150)).unwrap();
    let (code, said) = json(&[]);
    assert_eq!((code, &said["ok"], &said["summary"]), (1, &false.into(), &serde_json::Value::Null));
    assert_eq!((said["errors"].as_array().unwrap().len(), &said["errors_total"]), (100, &150.into()));
    assert_eq!(
        said["errors"][1],
        serde_json::json!({"file": place, "line": 2, "text": "SLO 7 is not in slo.map: add it there, or name a different SLO"})
    );
    // A file that cannot be read has no line.
    let (code, said) = json(&["--config", "/nowhere/slowlane.toml"]);
    assert_eq!((code, &said["errors"][0]["line"]), (1, &serde_json::Value::Null));
    assert_eq!(said["errors"][0]["file"], "/nowhere/slowlane.toml");
}

#[test]
fn check_warns_of_limits_as_the_start_does() {
    let folder = policy(&[SLO_MAP]);
    let config = folder.path().join("slowlane.toml");
    fs::write(&config, "[http]\nconnections_max = 50\n[hold]\nmax = 50\n").unwrap();
    let config = config.to_str().unwrap();
    let checked = ran(&["check", "--config", config]);
    let warning = "warning: [hold] max should be well below [http] connections_max";
    assert_eq!((checked.code, checked.problems.len()), (0, 1), "{:?}", checked.problems);
    assert!(checked.problems[0].starts_with(warning), "{:?}", checked.problems);
    let strict = ran(&["check", "--config", config, "--strict"]);
    assert_eq!(strict.code, 1);
    assert!(
        strict.problems[1].contains("1 warning, which --strict treats as an error"),
        "{:?}",
        strict.problems
    );
    let json = ran(&["check", "--config", config, "--json"]).out;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["warnings_total"], &json["warnings"][0]["file"]), (&1.into(), &config.into()));
    fs::write(config, "[http]\nconnections_max = 51\n[hold]\nmax = 50\n").unwrap();
    assert_eq!(ran(&["check", "--config", config]).problems, [""; 0]);
}

/// This variable is set if the test runs in its own network namespace.
const ALONE: &str = "SLOWLANE_TEST_ALONE";

#[test]
fn with_nothing_at_all_it_serves_on_its_defaults() {
    let defaults = ["127.0.0.1:9000", "127.0.0.1:9001", "127.0.0.1:9002"];
    let is_free = |address: &&str| TcpListener::bind(address).is_ok();
    if env::var_os(ALONE).is_none() {
        if let Some(mut alone) = network_of_its_own() {
            let test = "cli::with_nothing_at_all_it_serves_on_its_defaults";
            alone.arg(env::current_exe().unwrap()).args(["--exact", test, "--nocapture"]).env(ALONE, "1");
            let output = alone.output().unwrap();
            let text =
                [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            assert!(output.status.success() && text[0].contains("1 passed"), "{}{}", text[0], text[1]);
            return;
        }
        if !defaults.iter().all(is_free) {
            return skipped(&format!("a network namespace is not allowed, and one of {defaults:?} is taken"));
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let mut process = Process::start(Command::new(BINARY).arg("run").current_dir(folder.path()));
    for (marker, address) in ["SPOP on ", "HTTP check on ", "admin on "].into_iter().zip(defaults) {
        assert_eq!(process.logged(marker), address);
    }
    let [spop, http, admin] = defaults.map(|address| address.parse().unwrap());
    let heard = Line::greeted(spop).ask(1, "192.0.2.1", "shop.example");
    assert_eq!((heard.variable("verdict"), heard.variable("slo")), (Some("pass"), Some("0")));
    assert_eq!(client::get(http, "/check", &[]).status, 204);
    assert_eq!(client::get(admin, "/readyz", &[]).status, 200);

    process.signal("HUP");
    process.logged("nothing to reload");
    assert_eq!(client::get(http, "/check", &[]).status, 204);
    process.signal("INT");
    assert!(process.wait().success(), "Ctrl-C is an end like any other");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left behind");

    // The defaults in the help are the addresses in use.
    let (_, help, _) = typed(Path::new(HERE), &["run", "--help"]);
    let outcome: Vec<&str> =
        help.split("[default: ").skip(1).filter_map(|rest| rest.split(']').next()).collect();
    assert_eq!(outcome, defaults);
}

/// A command that runs its arguments in a network namespace with only a loopback; `None` if not permitted.
fn network_of_its_own() -> Option<Command> {
    for flags in ["-n", "-rn"] {
        let unshare = |rest: &str| {
            let mut command = Command::new("unshare");
            command.args([flags, "sh", "-c", &format!("ip link set lo up && {rest}"), "sh"]);
            command
        };
        if unshare("true").output().is_ok_and(|output| output.status.success()) {
            return Some(unshare("exec \"$@\""));
        }
    }
    None
}
