//! SLOs in work over HTTP and SPOP: reservations, reported costs, and reports that change nothing.

use spop::{Data, Notify};

use crate::support::client::Client;
use crate::support::slowlane::Slowlane;
use crate::support::spop::Line;

/// Each website may have ten tokens at once, and six a minute. A request reserves five.
const POLICY: &[(&str, &str)] = &[
    (
        "slo.map",
        "0 rate=unlimited\n2001 burst=10 rate=6/m unit=tokens reserve=5 law=token-bucket\n\
         2002 burst=10s rate=100ms/s unit=seconds reserve=5s law=token-bucket lease=200ms\n\
         2003 burst=1000 rate=1000/m unit=tokens reserve=announced\n",
    ),
    ("website.map", "shop.example 2001\nbrief.example 2002\nllm.example 2003\n"),
];

fn ends(slowlane: &Slowlane, result: &str) -> f64 {
    slowlane.metric("slowlane_ends_total", &format!("result=\"{result}\""))
}

/// A check, with its status, its ticket and what is left.
fn check(slowlane: &Slowlane, website: &str) -> (u16, Option<String>, Option<String>) {
    let answer = slowlane.check("", &[("X-Slowlane-Website", website)]);
    let header = |name| answer.header(name).map(str::to_owned);
    (answer.status, header("x-slowlane-ticket"), header("x-slowlane-remaining"))
}

#[test]
fn a_cost_over_http_counts_once_and_a_bad_one_changes_nothing() {
    let slowlane = Slowlane::with_policy(POLICY);
    let done = |headers: &[(&str, &str)]| {
        Client::connect(slowlane.http).request("POST", "/done", headers, "").status
    };
    let (status, ticket, left) = check(&slowlane, "shop.example");
    assert_eq!((status, left.as_deref()), (204, Some("5")));
    let ticket = ticket.unwrap();
    let done_at = |cost: &str| done(&[("X-Slowlane-Ticket", &ticket), ("X-Slowlane-Cost", cost)]);

    let long = "9".repeat(4_000);
    let bad = ["-1", "-0", "1e3", "NaN", "inf", "0x1", "1,5", "x", "1099511627777", &long];
    for cost in bad {
        assert_eq!(done_at(cost), 400, "{cost}");
    }
    assert_eq!(ends(&slowlane, "no_amount"), bad.len() as f64);
    // An empty header is none. The ticket stays open without a measure.
    assert_eq!((done_at(""), ends(&slowlane, "unmeasured")), (204, 1.0));
    // Forged tickets: another key, another cost, no seal.
    for forged in [ticket.replacen(".5", ".1", 1), ticket[..ticket.len() - 17].to_owned(), String::new()] {
        assert_eq!(done(&[("X-Slowlane-Ticket", &forged), ("X-Slowlane-Cost", "0")]), 400, "{forged}");
    }
    assert_eq!(check(&slowlane, "shop.example").0, 204, "five were left");
    assert_eq!(check(&slowlane, "shop.example").0, 403, "none of them has freed anything");

    assert_eq!(slowlane.metric("slowlane_reservations_open", ""), 2.0);
    assert_eq!((done_at("0"), ends(&slowlane, "counted")), (204, 1.0));
    assert_eq!(slowlane.metric("slowlane_reservations_open", ""), 1.0);
    assert_eq!(check(&slowlane, "shop.example").0, 204, "five are back");
    for _ in 0..3 {
        assert_eq!(done_at("0"), 204, "a repeated end is one end");
    }
    assert_eq!(ends(&slowlane, "late"), 3.0);
    assert_eq!(slowlane.metric("slowlane_work_total", "slo=\"2001\",unit=\"tokens\""), 0.0);
    assert_eq!(check(&slowlane, "shop.example").0, 403);
}

/// After the lease the reservation stays as it was.
#[test]
fn a_cost_after_the_lease_changes_nothing() {
    let slowlane = Slowlane::with_policy(POLICY);
    let [one, other] = [(); 2].map(|()| check(&slowlane, "brief.example").1.unwrap());
    crate::support::eventually("the leases are over", || {
        (slowlane.metric("slowlane_reservations_open", "") == 0.0).then_some(())
    });
    for ticket in [one, other] {
        let headers = [("X-Slowlane-Ticket", ticket.as_str()), ("X-Slowlane-Seconds", "0.1")];
        assert_eq!(Client::connect(slowlane.http).request("GET", "/done", &headers, "").status, 204);
    }
    assert_eq!((ends(&slowlane, "late"), ends(&slowlane, "counted")), (2.0, 0.0));
    assert_eq!(check(&slowlane, "brief.example").0, 403);
}

#[test]
fn the_limit_is_reported_in_its_unit() {
    let slowlane = Slowlane::with_policy(POLICY);
    let asked = |cost| {
        let headers = [("X-Slowlane-Website", "llm.example"), ("X-Slowlane-Announced", cost)];
        slowlane.check("?ratelimit=on", &headers)
    };
    let answer = asked("300.5");
    assert_eq!(answer.header("ratelimit-policy"), Some("\"2003\";q=1000;w=60;qu=\"tokens\""));
    assert_eq!(answer.header("ratelimit"), Some("\"2003\";r=699"));
    assert_eq!(asked("0").header("x-slowlane-remaining"), Some("699"), "nothing is free");
    assert_eq!(
        asked("-5").header("x-slowlane-remaining"),
        Some("649"),
        "no amount: a twentieth of the burst"
    );
}

#[test]
fn a_cost_over_spop_is_a_number_or_text_and_a_bad_one_changes_nothing() {
    let slowlane = Slowlane::with_policy(POLICY);
    let mut line = Line::greeted(slowlane.spop);
    let ticket = line.ask(1, "192.0.2.1", "shop.example").variable("ticket").unwrap().to_owned();
    let mut end = |arguments: &[(&[u8], Data<'_>)]| {
        let mut bytes = Vec::new();
        let all: Vec<_> =
            [(&b"ticket"[..], Data::Str(ticket.as_bytes()))].iter().chain(arguments).copied().collect();
        Notify::begin(&mut bytes, 2, 1).message(b"response", &all).finish();
        line.say(&bytes);
        line.hear();
    };
    let bad = [
        Data::Bool(true),
        Data::Int64(-1),
        Data::Int64(i64::MIN),
        Data::Uint64(u64::MAX),
        Data::Str(b"-1"),
        Data::Str(b"1e3"),
        Data::Str(b"\xff"),
        Data::Bin(b"1"),
        Data::Ipv4("0.0.0.1".parse().unwrap()),
    ];
    for cost in bad {
        end(&[(b"cost", cost)]);
        end(&[(b"seconds", cost), (b"cost", Data::Int32(0))]);
    }
    assert_eq!(ends(&slowlane, "no_amount"), 2.0 * bad.len() as f64);
    // HAProxy sends NULL for a header that the response does not have.
    end(&[(b"cost", Data::Null)]);
    end(&[(b"bytes", Data::Uint32(7))]);
    assert_eq!(ends(&slowlane, "unmeasured"), 2.0);
    assert_eq!((check(&slowlane, "shop.example").0, check(&slowlane, "shop.example").0), (204, 403));
    end(&[(b"cost", Data::Str(b"0.5"))]);
    assert_eq!(ends(&slowlane, "counted"), 1.0);
    assert_eq!(check(&slowlane, "shop.example").0, 403, "4.5 are back, and 5 are needed");
    assert_eq!(slowlane.metric("slowlane_work_total", "slo=\"2001\",unit=\"tokens\""), 0.5);
    end(&[(b"cost", Data::Str(b"0"))]);
    assert_eq!((ends(&slowlane, "late"), check(&slowlane, "shop.example").0), (1.0, 403));
}
