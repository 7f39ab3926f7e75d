//! HAProxy with as many clients as it takes: it has open files left to ask slowlane about each request.

use std::fs;
use std::path::Path;
use std::time::Instant;

use crate::support::backend::Backend;
use crate::support::client::Client;
use crate::support::haproxy::{
    CONFIG, EACH_DELIVERY, Haproxy, VerdictHeaders, each, replace, showing_verdicts_patiently,
};
use crate::support::slowlane::Slowlane;
use crate::support::spop::Line;
use crate::support::{eventually, project, project_files};

/// `shop`: one request. `queue`: 200/s, with long delays.
const POLICY: &[(&str, &str)] = &[
    (
        "slo.map",
        "0 rate=unlimited\n2001 burst=1 rate=1/h law=token-bucket\n2002 burst=1 rate=200/s max_delay=20s\n",
    ),
    ("website.map", "shop.example 2001\nqueue.example 2002\n"),
];

/// Each `maxconn` of the shipped files is divided by this, for a test with few clients.
const SMALLER: usize = 100;

/// Requests ahead of the crowd in the queue: two seconds of it.
const AHEAD: u64 = 400;

/// The value of a line `maxconn`, if it is one.
fn maxconn(line: &str) -> Option<usize> {
    line.trim_start().strip_prefix("maxconn ")?.parse().ok()
}

/// The shipped files for fewer clients, and for a slow machine.
fn small(name: &str, text: String) -> String {
    let text = showing_verdicts_patiently(name, text);
    if name != CONFIG {
        return text;
    }
    let smaller = |line: &str| match maxconn(line) {
        Some(number) => format!("    maxconn {}\n", number / SMALLER),
        None => format!("{line}\n"),
    };
    replace(&text, "timeout check   250ms", "timeout check   5s").lines().map(smaller).collect()
}

/// A column of HAProxy's statistics, in the row that begins like this.
fn stat(haproxy: &Haproxy, row: &str, column: &str) -> usize {
    eventually("HAProxy tells its statistics", || {
        let stats = haproxy.runtime("show stat\n")?;
        let mut lines = stats.lines();
        let at = lines.next()?.split(',').position(|name| name == column)?;
        lines.find(|line| line.starts_with(row))?.split(',').nth(at)?.parse().ok()
    })
}

/// Sends a request of each client, every second one to the queue, and returns the time.
fn send(crowd: &mut [Client]) -> Instant {
    let at = Instant::now();
    for (number, client) in crowd.iter_mut().enumerate() {
        let host = ["free.example", "queue.example"][number % 2];
        client.send("GET", "/", &[("Host", host)], "").unwrap();
    }
    at
}

/// The agent stops for a moment, and each client has a question under way. Then each has its own connection to the
/// application, or waits for its turn.
#[test]
fn with_all_the_clients_that_haproxy_takes_each_request_is_asked_about() {
    each(EACH_DELIVERY, |version, delivery| {
        let (app, slowlane) = (Backend::start(), Slowlane::with_policy(POLICY));
        let agent = slowlane.spop.to_string();
        let mut haproxy = Haproxy::with(version, delivery, &agent, app.address, small).unwrap();
        haproxy.wait_for_agent("UP");
        let most = stat(&haproxy, "www,FRONTEND,", "slim");
        let mut over = haproxy.client();
        let mut ask = || over.request("GET", "/over", &[("Host", "shop.example")], "").status;
        assert_eq!([ask(), ask()], [200, 429]);
        let mut line = Line::greeted(slowlane.spop);
        for round in 0..2 {
            let mut crowd: Vec<Client> = (1..most).map(|_| haproxy.client()).collect();
            for number in 1..=AHEAD {
                line.ask(round * AHEAD + number, "192.0.2.1", "queue.example");
            }
            let before = stat(&haproxy, "www,FRONTEND,", "req_tot");
            app.gate.close();
            slowlane.process.stop();
            let at = send(&mut crowd);
            eventually("HAProxy has read each request", || {
                (stat(&haproxy, "www,FRONTEND,", "req_tot") >= before + crowd.len()).then_some(())
            });
            slowlane.process.signal("CONT");
            eventually("the application has its requests", || {
                assert_eq!(ask(), 429);
                (app.gate.inside() >= crowd.len().div_ceil(2)).then_some(())
            });
            (0..100).for_each(|_| assert_eq!(ask(), 429));
            app.gate.open();
            for client in &mut crowd {
                let answer = client.receive("GET", at).unwrap();
                assert!(answer.status == 200 && VerdictHeaders::by(&answer).verdict.is_some(), "{answer:?}");
            }
        }
        assert_eq!(stat(&haproxy, "slowlane-agents,agent1,", "chkdown"), 0, "it was never taken for dead");
        app.saw("/over");
    });
}

/// The sum of the lines `maxconn` in the sections with this name.
fn sum(text: &str, section: &str) -> usize {
    let mut inside = false;
    let mut sum = 0;
    for line in text.lines() {
        let starts = |words: &[&str]| words.iter().any(|word| line.trim_start().starts_with(word));
        if starts(&["global", "defaults", "frontend ", "backend ", "listen ", "peers "]) {
            inside = starts(&[section]);
        }
        sum += if inside { maxconn(line).unwrap_or(0) } else { 0 };
    }
    sum
}

/// A client needs four open files: its own, and one each for the application, a question and a hold. HAProxy has two for
/// each connection of the section `global`.
#[test]
fn every_file_for_haproxy_leaves_room_for_the_connections_to_slowlane() {
    let asks = |path: &String| {
        let text = fs::read_to_string(project(path)).unwrap_or_default();
        // The values of a controller are lines for its own file, whose maxconn it chooses.
        let is_whole = path.ends_with(".cfg") || path.ends_with(".yaml") && !path.ends_with("-values.yaml");
        is_whole && text.contains("backend slowlane-agents")
    };
    let files: Vec<String> = project_files().into_iter().filter(asks).collect();
    assert!(files.iter().any(|path| Path::new(path).starts_with("haproxy")) && files.len() > 15, "{files:?}");
    for path in files {
        let text = fs::read_to_string(project(&path)).unwrap();
        let (all, clients) = (sum(&text, "global"), sum(&text, "frontend "));
        assert!(clients > 0 && clients * 4 < all * 2, "{path}: {clients} of {all}");
        assert!(!text.contains("on-error mark-down"), "{path}: HAProxy's own failure is not the agent's");
    }
}
