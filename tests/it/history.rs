//! The clients throttled in the last day, of a real slowlane: told by each command, and kept over restarts.

use std::process::Command;

use serde_json::Value;

use crate::cli::ran;
use crate::support::slowlane::{BINARY, Slowlane};
use crate::support::{client, eventually};

const ESCAPE: &str = "\\e[2J<script>";

fn slowlane() -> Slowlane {
    let policy = [
        (
            "slo.map",
            "0 rate=unlimited\n1001 burst=1 rate=1/h law=token-bucket\n2001 burst=1 rate=1/h max_delay=1d\n",
        ),
        ("website.map", "shop.example 2001\n"),
        ("owner.map", &format!("{ESCAPE} 1001\n")),
    ];
    Slowlane::with_config(&policy, "[state]\nfile = \"state\"\nevery = \"1h\"\n")
}

fn ask(slowlane: &Slowlane) {
    for _ in 0..3 {
        slowlane.check(
            "?hold=off",
            &[("X-Slowlane-Website", "shop.example"), ("X-Slowlane-Source", "192.0.2.1")],
        );
    }
    (0..6).for_each(|_| drop(slowlane.check("", &[("X-Slowlane-Owner", ESCAPE)])));
}

fn history(slowlane: &Slowlane) -> Value {
    let answer = client::get(slowlane.admin, "/api/history?since=24h", &[]);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    serde_json::from_str(&answer.body).unwrap()
}

/// Waits until the history has these numbers of delayed and denied requests.
fn told(slowlane: &Slowlane, delayed: u64, denied: u64) -> Value {
    let sum = |history: &Value, name: &str| -> u64 {
        history[name].as_array().unwrap().iter().map(|count| count.as_u64().unwrap()).sum()
    };
    eventually("the requests are in the history", || {
        let history = history(slowlane);
        ([sum(&history, "delayed"), sum(&history, "denied")] == [delayed, denied]).then_some(history)
    })
}

#[test]
fn it_tells_who_was_throttled_and_by_which_slo() {
    let slowlane = slowlane();
    ask(&slowlane);
    let history = told(&slowlane, 2, 5);
    let (first, second) = (&history["keys"][0], &history["keys"][1]);
    assert_eq!([&first["slo"], &first["denied"], &first["delay_ms"]], [1001, 5, 0]);
    assert_eq!(first["fields"][0]["value"], ESCAPE);
    assert_eq!([&second["slo"], &second["delayed"]], [2001, 2]);
    // The third request pays for two hours, less the moments since the first.
    let longest_ms = second["delay_ms"].as_u64().unwrap();
    assert!((7_100_000..=7_200_000).contains(&longest_ms), "{longest_ms}");
    assert_eq!(second["why"], "website=shop.example&source=192.0.2.1");
    assert_eq!([&history["period_s"], &history["keys_total"]["number"]], [3_600, 2]);

    let admin = slowlane.admin.to_string();
    for args in [&["status", "--since", "10m"][..], &["top", "--once", "--since", "10m"]] {
        let text = ran(&[args, &["--admin", &admin]].concat()).out;
        assert!(text.starts_with("throttled in the last "), "{text}");
        assert!(text.contains(": requests delayed 2, denied 5\n"), "{text}");
        let rows: Vec<Vec<&str>> =
            text.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[0], ["delayed", "denied", "longest", "first", "last", "SLO", "who"]);
        assert_eq!((rows[1][0], rows[1][1], rows[1].last()), ("0", "5", Some(&&*format!("owner={ESCAPE}"))));
        assert_eq!((rows[2][0], rows[2][1], rows[2].last()), ("2", "0", Some(&"website=shop.example")));
    }
    let json = ran(&["status", "--since", "10m", "--json", "--admin", &admin]).out;
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!([&json["period_s"], &json["keys"][0]["denied"]], [60, 5]);
}

#[test]
fn a_restart_and_an_upgrade_keep_it() {
    let mut slowlane = slowlane();
    ask(&slowlane);
    told(&slowlane, 2, 5);
    slowlane.process.signal("TERM");
    slowlane.process.wait();
    slowlane = slowlane.restarted();
    told(&slowlane, 2, 5);
    ask(&slowlane);
    told(&slowlane, 5, 11);
    slowlane.upgrade();
    told(&slowlane, 5, 11);
}

#[test]
fn a_time_that_is_none_is_refused() {
    let slowlane = slowlane();
    for query in ["", "?since", "?since=", "?since=0s", "?since=25h", "?since=-1m", "?since=1", "?until=10m"]
    {
        let answer = client::get(slowlane.admin, &format!("/api/history{query}"), &[]);
        assert_eq!(answer.status, 400, "{query}");
        assert_eq!(answer.body, "expected a time from 1s to 24h, like /api/history?since=10m\n");
    }
    let code = |args: &[&str]| Command::new(BINARY).args(args).output().unwrap().status.code();
    for time in ["0s", "25h", "soon"] {
        assert_eq!(code(&["status", "--since", time]), Some(2));
        assert_eq!(code(&["top", "--since", time]), Some(2));
    }
    assert_eq!(code(&["status", "cluster", "--since", "10m"]), Some(2));
}
