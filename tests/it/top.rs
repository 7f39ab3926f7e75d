//! `slowlane top`, on a terminal and without one.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::thread;

use spop::Data;

use crate::cli::ran;
use crate::support::slowlane::{BINARY, Slowlane};
use crate::support::spop::{Line, message};
use crate::support::terminal::Terminal;
use crate::support::{client, eventually, own_address};

const ESCAPE: &str = "\x1b[2J\x1b]0;hacked\x07";

fn slowlane() -> Slowlane {
    Slowlane::with_policy(&[
        (
            "slo.map",
            "0 burst=10000 rate=5000/s\n2001 burst=2 rate=1/h max_delay=1d\n2002 burst=3 rate=1/d\n1001 burst=3 rate=1/d\n",
        ),
        ("website.map", "shop.example 2001\napi.example 2002\n"),
        ("owner.map", &format!("{ESCAPE} 1001\n")),
    ])
}

/// Asks for two websites and an owner: seven requests are delayed, then five and four denied.
fn ask(slowlane: &Slowlane) {
    let mut line = Line::greeted(slowlane.spop);
    for (times, website) in [(9, "shop.example"), (8, "api.example")] {
        (0..times).for_each(|stream| drop(line.ask(stream, "192.0.2.1", website)));
    }
    for stream in 0..7 {
        line.say(&message(stream, b"request", &[(b"owner", Data::Str(ESCAPE.as_bytes()))]));
        line.hear();
    }
}

fn top(admin: SocketAddr, rows: u16, columns: u16) -> Terminal {
    Terminal::start(BINARY, &["top", "--admin", &admin.to_string()], rows, columns)
}

/// The websites and owners on the screen, from above.
fn websites(text: &str) -> Vec<&str> {
    let name = |line| split_once(line, "website=").or_else(|| split_once(line, "owner="));
    text.lines().take_while(|line| !line.starts_with("busiest")).filter_map(name).collect()
}

fn split_once<'t>(line: &'t str, before: &str) -> Option<&'t str> {
    line.split_once(before).map(|(_, name)| name.trim())
}

#[test]
fn it_shows_who_is_throttled_again_and_again_and_leaves_the_terminal_as_it_was() {
    let slowlane = slowlane();
    ask(&slowlane);
    let mut top = top(slowlane.admin, 40, 110);
    let all = ["shop.example", "api.example", r"\u{1b}[2J\u{1b}]0;hacked\u{7}"];
    top.shows("the most throttled first", |text| websites(text) == all);
    top.shows("the numbers", |text| {
        text.contains(&format!("slowlane {} up ", env!("CARGO_PKG_VERSION")))
            && text.contains("requests/s: pass")
            && text.contains("of 1M")
            && text.contains("throttled/s")
    });
    top.shows("the SLOs", |text| text.contains("one bucket per") && text.contains("all together"));
    top.shows("who is connected", |text| text.contains("HTTP check (nginx)") && text.contains("reloads"));
    top.resize(12, 60);
    top.shows("less", |text| {
        text.lines().all(|line| line.chars().count() <= 60)
            && !websites(text).is_empty()
            && !text.contains("reloads")
    });
    top.resize(40, 140);
    top.shows("everything again", |text| websites(text) == all && text.contains("reloads"));
    // Keys do nothing, and the next lines erase their echo.
    top.press("some keys\r");
    top.shows("no key", |text| text.contains("reloads") && !text.contains("some keys"));

    slowlane.replace("slo.map", "0 burst=1 rate=5x/s\n");
    top.shows("a refused reload, and its reason at the top", |text| {
        let banner: String = text.lines().skip(1).take(2).collect();
        banner.starts_with("POLICY REFUSED; the previous one stays in force (and ")
            && banner.contains("slo.map:1: rate \"5x/s\"")
            && text.contains("ago: REFUSED")
    });
    top.press("\x03");
    let (status, is_given_back) = top.ended();
    assert!(status.success() && is_given_back);
}

/// The keys of the history.
#[test]
fn since_shows_only_who_was_throttled() {
    let slowlane = slowlane();
    ask(&slowlane);
    let admin = slowlane.admin.to_string();
    let words = ["top", "--since", "1h", "--admin", &admin];
    let mut top = Terminal::start(BINARY, &words, 24, 100);
    top.shows("both websites", |text| {
        text.starts_with("throttled in the last 1h") && websites(text).len() == 3 && !text.contains("SLOs")
    });
    slowlane.check("", &[("X-Slowlane-Website", "shop.example")]);
    top.shows("one more delay", |text| {
        row(text, "website=shop.example").is_some_and(|(_, cells)| cells[0] == "8")
    });
    top.press("\x03");
    assert!(top.ended().0.success());
    let outcome = ran(&["top", "--once", "--since", "1h", "--admin", &admin]);
    assert_eq!((outcome.code, websites(&outcome.out).len()), (0, 3), "{}", outcome.out);
}

/// The cells of the row that contains a text, and the headings.
fn row<'t>(text: &'t str, part: &str) -> Option<(Vec<&'t str>, Vec<&'t str>)> {
    let cells = |line: &'t str| -> Vec<&str> {
        line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
    };
    let names = text.lines().find(|line| line.contains("SLO  "))?;
    Some((cells(names), cells(text.lines().find(|line| line.contains(part))?)))
}

/// On a common terminal, and on narrower ones.
#[test]
fn no_number_is_cut_on_a_narrow_terminal() {
    let slowlane = slowlane();
    ask(&slowlane);
    let status = client::get(slowlane.admin, "/api/status", &[]).body;
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    let delay_ms = status["keys"][0]["delay_ms"].as_f64().unwrap();
    let delay = format!("{:.1} s", delay_ms / 1e3);
    let mut top = top(slowlane.admin, 24, 80);
    for columns in [80, 70, 60, 50] {
        top.resize(24, columns);
        top.shows("whole numbers under whole names", |text| {
            let Some((names, cells)) = row(text, "  2001  website=") else { return false };
            let outcome =
                |name: &str| names.iter().position(|outcome| *outcome == name).map(|place| cells[place]);
            names.len() == cells.len()
                && names[0] == "throttled/s"
                && outcome("delay") == Some(&delay)
                && outcome("SLO") == Some("2001")
                && text.lines().all(|line| line.chars().count() <= columns.into())
        });
    }
    top.resize(24, 30);
    top.shows("no more than fits", |text| text.lines().all(|line| line.chars().count() <= 30));
    top.press("\x03");
    assert!(top.ended().0.success());
}

/// The steps of the README: find the busiest source before any request waits, then add a line for it.
#[test]
fn a_dry_run_for_everybody_tells_who_takes_the_most() {
    const EVERYBODY: &str = "0.0.0.0/0 3001\n::/0 3001\n";
    const SLOS: &str = "0 burst=10000 rate=5000/s\n3001 burst=10 rate=5/s dry_run=yes\n";
    let slowlane = Slowlane::with_policy(&[("slo.map", SLOS), ("source.map", EVERYBODY)]);
    let admin = slowlane.admin.to_string();
    let mut line = Line::greeted(slowlane.spop);
    (0..60).for_each(|stream| drop(line.ask(stream, "203.0.113.7", "shop.example")));
    (0..40).for_each(|stream| drop(line.ask(stream, "203.0.113.8", "shop.example")));
    (0..5).for_each(|stream| drop(line.ask(stream, "203.0.113.9", "shop.example")));
    // Over HTTP as well.
    for _ in 0..20 {
        let answer = slowlane.check("", &[("X-Slowlane-Source", "2001:db8:7::1")]);
        assert_eq!(answer.header("x-slowlane-verdict"), Some("pass"), "nobody has to wait");
    }
    let outcome = ran(&["top", "--once", "--admin", &admin]);
    let marked: Vec<&str> =
        outcome.out.lines().filter(|line| line.contains(" 3001 dry run  source=")).collect();
    let sources: Vec<&str> = marked.iter().map(|line| line.split("source=").nth(1).unwrap()).collect();
    assert_eq!(sources, ["203.0.113.7", "203.0.113.8", "2001:db8:7::/64"], "{}", outcome.out);
    let status: serde_json::Value =
        serde_json::from_str(&client::get(slowlane.admin, "/api/status", &[]).body).unwrap();
    let first = &status["keys"][0];
    assert_eq!((&first["dry_run"], &first["fields"][0]["value"]), (&true.into(), &"203.0.113.7".into()));
    assert!(first["delayed"].as_u64() > Some(20), "{first}");

    slowlane.replace("slo.map", &format!("{SLOS}3002 burst=10 rate=5/s\n"));
    slowlane.replace("source.map", &format!("203.0.113.7 3002\n{EVERYBODY}"));
    eventually("it has its own line", || {
        let outcome = ran(&["why", "--admin", &admin, "source=203.0.113.7"]).out;
        (outcome.contains("\nSLO 3002  burst=10 rate=5/s\n") && outcome.contains("/source.map:1 "))
            .then_some(())
    });
}

#[test]
fn ctrl_c_and_signals_end_it_cleanly_too() {
    let slowlane = slowlane();
    for end in ["\x03", "TERM", "INT", "HUP"] {
        let mut top = top(slowlane.admin, 24, 80);
        top.shows("a screen", |text| text.contains("throttled/s"));
        if end == "\x03" {
            top.press(end)
        } else {
            top.signal(end)
        }
        let (status, is_given_back) = top.ended();
        assert!(status.success() && is_given_back, "{end:?}: {status}");
    }
}

#[test]
fn a_daemon_that_goes_is_missed_and_one_that_comes_back_is_found() {
    let mut slowlane = slowlane();
    ask(&slowlane);
    let mut top = top(slowlane.admin, 24, 100);
    top.shows("a key", |text| text.contains("website=shop.example"));
    slowlane.kill();
    top.shows("that nobody answers, and what was", |text| {
        text.contains("NO ANSWER") && text.contains("website=shop.example")
    });
    let _again = slowlane.restarted();
    top.shows("the new one", |text| !text.contains("NO ANSWER") && !text.contains("website="));
    top.press("\x03");
    assert!(top.ended().0.success());
}

#[test]
fn without_a_terminal_it_prints_what_it_knows_and_ends() {
    let slowlane = slowlane();
    ask(&slowlane);
    let admin = slowlane.admin.to_string();
    let json = ran(&["status", "--json", "--admin", &admin]).out;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["keys"].as_array().unwrap().len(), 3);
    for args in [&["top"][..], &["top", "--once"], &["status"]] {
        let args = &[args, &["--admin", &admin]].concat();
        let outcome = ran(args);
        assert_eq!((outcome.code, &outcome.problems), (0, &vec![]));
        for part in
            ["requests/s: pass", "\nthrottled\n", "website=shop.example", "website=api.example", "\nSLOs\n"]
        {
            assert!(outcome.out.contains(part), "{part} in\n{}", outcome.out);
        }
        assert!(!outcome.out.contains('\x1b'), "{}", outcome.out);
    }
    // On a terminal too, if it is asked to.
    let mut once = Terminal::start(BINARY, &["top", "--once", "--admin", &admin], 40, 120);
    let (status, is_given_back) = once.ended();
    assert!(status.success() && is_given_back);
    once.shows("the keys", |text| text.contains("website=shop.example"));
}

#[test]
fn who_is_no_daemon_is_told_from_one() {
    let nobody = own_address().to_string();
    let outcome = ran(&["top", "--admin", &nobody]);
    assert_eq!(outcome.code, 1);
    let remedy = "is slowlane running there? Use --admin to name another address";
    assert!(
        outcome.problems[0].starts_with(&format!("cannot query slowlane at {nobody}: "))
            && outcome.problems[0].ends_with(remedy),
        "{:?}",
        outcome.problems
    );
    // And no screen is opened for it.
    let mut on_a_terminal = Terminal::start(BINARY, &["top", "--admin", &nobody], 24, 160);
    let (status, is_given_back) = on_a_terminal.ended();
    assert!(!status.success() && is_given_back);
    on_a_terminal.shows("what helps", |text| text.contains(remedy));

    let outcome = ran(&["top", "--admin", "unix:/nowhere/admin"]);
    assert!(
        outcome.problems[0].starts_with("cannot query slowlane at unix:/nowhere/admin: No such file"),
        "{:?}",
        outcome.problems
    );

    // The system accepts the connection, but no program answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let outcome = ran(&["top", "--admin", &silent.local_addr().unwrap().to_string()]);
    assert!(outcome.problems[0].contains("no answer within 5 s"), "{:?}", outcome.problems);

    for (answer, reason) in [
        ("SSH-2.0-OpenSSH_9.2\r\n", "does not speak HTTP"),
        ("HTTP/1.1 200 OK\r\n\r\n{}", "does not run this version of slowlane: missing field `version`"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{}", "end of file before message length reached"),
        ("HTTP/1.1 500 Oh\r\n\r\nit\x1b[31m\nis broken", r"it\u{1b}[31m"),
        ("HTTP/1.1 401 Unauthorized\r\n\r\n", "requires a token: use --token-file or --config"),
    ] {
        let admin = strange(answer);
        let outcome = ran(&["top", "--admin", &admin.to_string()]);
        assert!(outcome.problems[0].contains(reason), "{answer:?}: {:?}", outcome.problems);
    }
}

#[test]
fn a_token_is_sent_to_a_daemon_that_wants_one() {
    let slowlane = Slowlane::with_config(
        &[("slo.map", "0 burst=1 rate=1/s\n")],
        "[admin]\ntoken = \"0123456789abcdef\"\n",
    );
    let (admin, config) = (slowlane.admin.to_string(), slowlane.folder().join("slowlane.toml"));
    let path = slowlane.folder().join("token");
    fs::write(&path, "0123456789abcdef\n").unwrap();
    for opened_by in [["--token-file", path.to_str().unwrap()], ["--config", config.to_str().unwrap()]] {
        let outcome = ran(&[&["top", "--admin", &admin][..], &opened_by].concat());
        assert!(outcome.code == 0 && outcome.out.contains("requests/s: pass"), "{:?}", outcome.problems);
    }
    fs::write(&path, "two words").unwrap();
    let outcome = ran(&["top", "--admin", &admin, "--token-file", path.to_str().unwrap()]);
    assert!(outcome.problems[0].contains("token: expected a token of 16 or more ASCII letters"));
}

/// A server with a constant answer.
fn strange(answer: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    address
}
