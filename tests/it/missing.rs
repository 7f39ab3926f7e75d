//! A field that the policy needs and no request carries: the log, `/api/status`, the page, `top` and the metrics say it.

use serde_json::{Value, json};
use slowlane::observe::status::REQUESTS_MIN;
use spop::Data;

use crate::cli::ran;
use crate::support::chromium::Chromium;
use crate::support::client::{self, Client};
use crate::support::eventually;
use crate::support::slowlane::Slowlane;
use crate::support::spop::{Line, message};

/// `source+owner.map` and type 4 need an owner.
fn slowlane() -> Slowlane {
    Slowlane::with_policy(&[
        ("slo.map", "0 rate=unlimited\n2001 burst=10000 rate=5000/s\n4001 burst=1 rate=1/s\n"),
        ("website.map", "shop.example 2001\n"),
        ("source+owner.map", "192.0.2.0/24+acme 4001\n"),
    ])
}

const REPORTED: &str = "carried owner, which source+owner.map and type 4 need";

fn missing(slowlane: &Slowlane) -> Value {
    let status = client::get(slowlane.admin, "/api/status", &[]).body;
    serde_json::from_str::<Value>(&status).unwrap()["fields_missing"].take()
}

fn gauge(slowlane: &Slowlane, field: &str) -> f64 {
    slowlane.metric("slowlane_field_missing", &format!("field=\"{field}\""))
}

/// The lines of the log about a missing field.
fn logged(slowlane: &Slowlane) -> Vec<String> {
    slowlane.process.log().into_iter().filter(|line| line.contains("no request of ")).collect()
}

/// Waits until the owner is missing, and nothing else.
fn is_reported(slowlane: &mut Slowlane) {
    let outcome = eventually("the owner is missing", || {
        let outcome = missing(slowlane);
        (outcome != json!([])).then_some(outcome)
    });
    assert_eq!(
        (outcome.as_array().unwrap().len(), &outcome[0]["field"], &outcome[0]["needed_by"]),
        (1, &"owner".into(), &json!(["source+owner.map", "type 4"]))
    );
    assert!(outcome[0]["requests"].as_u64() >= Some(REQUESTS_MIN), "{outcome}");
    slowlane.process.logged(REPORTED);
    assert_eq!(["owner", "source", "website"].map(|field| gauge(slowlane, field)), [1.0, 0.0, 0.0]);
    let top = ran(&["top", "--once", "--admin", &slowlane.admin.to_string()]).out;
    assert!(
        top.contains(&format!("of {} {REPORTED}", outcome[0]["requests"])) && top.contains("FIELD MISSING"),
        "{top}"
    );
}

/// Waits until no field is missing. The log was told once.
fn is_over(slowlane: &Slowlane) {
    eventually("no field is missing", || (missing(slowlane) == json!([])).then_some(()));
    assert_eq!(gauge(slowlane, "owner"), 0.0);
    let top = ran(&["top", "--once", "--admin", &slowlane.admin.to_string()]).out;
    assert!(!top.contains("FIELD MISSING"), "{top}");
    assert_eq!(logged(slowlane).len(), 1, "{:?}", logged(slowlane));
}

#[test]
fn a_field_that_no_http_check_carries_is_told_until_one_does() {
    let mut slowlane = slowlane();
    let mut client = Client::connect(slowlane.http);
    let mut ask = |owner: &str| {
        let fields = [
            ("X-Slowlane-Source", "192.0.2.1"),
            ("X-Slowlane-Website", "shop.example"),
            ("X-Slowlane-Owner", owner),
        ];
        assert_eq!(client.request("GET", "/check?hold=off", &fields, "").status, 204);
    };
    // nginx sends no header for an empty value; another proxy may send it.
    (1..REQUESTS_MIN).for_each(|_| ask(""));
    assert_eq!((missing(&slowlane), logged(&slowlane)), (json!([]), vec![]), "too few to say so");
    (0..100).for_each(|_| ask(""));
    is_reported(&mut slowlane);
    let mut page = Chromium::open(&format!("http://{}/", slowlane.admin), 1200, 900);
    page.shows("#missing", "Field missing: no request of ");
    page.shows("#missing", REPORTED);
    // A question of the operator's is no request.
    ran(&["why", "--admin", &slowlane.admin.to_string(), "owner=acme"]);
    assert_eq!(gauge(&slowlane, "owner"), 1.0);
    ask("acme");
    is_over(&slowlane);
    eventually("the page says it no more", || {
        (page.value("document.querySelector('#missing').hidden") == true).then_some(())
    });
    assert_eq!(page.problems(), [""; 0]);
}

#[test]
fn a_field_that_haproxy_never_sends_is_told_until_it_does() {
    let mut slowlane = slowlane();
    let mut line = Line::greeted(slowlane.spop);
    let mut ask = |owner: Data<'_>| {
        let (source, website) = (Data::Ipv4([192, 0, 2, 1].into()), Data::Str(b"shop.example"));
        line.say(&message(1, b"request", &[(b"source", source), (b"website", website), (b"owner", owner)]));
        line.hear();
    };
    // HAProxy sends a variable that was never set as NULL.
    (0..REQUESTS_MIN).for_each(|_| ask(Data::Null));
    (0..100).for_each(|_| ask(Data::Str(b"")));
    is_reported(&mut slowlane);
    ask(Data::Str(b"acme"));
    is_over(&slowlane);
}

#[test]
fn a_policy_that_needs_no_field_misses_none() {
    let slowlane = Slowlane::with_policy(&[("slo.map", "0 rate=unlimited\n4001 burst=1 rate=1/s\n")]);
    let mut client = Client::connect(slowlane.http);
    (0..2 * REQUESTS_MIN).for_each(|_| drop(client.request("GET", "/check", &[], "")));
    let reported_at = || {
        let status = client::get(slowlane.admin, "/api/status", &[]).body;
        serde_json::from_str::<Value>(&status).unwrap()["at_ms"].as_u64().unwrap()
    };
    let asked_at = reported_at();
    eventually("two seconds more", || (reported_at() > asked_at + 2_000).then_some(()));
    assert_eq!((missing(&slowlane), logged(&slowlane)), (json!([]), vec![]));
    assert!(!client::get(slowlane.admin, "/metrics", &[]).body.contains("field_missing{"));
}
