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
    slowlane.process.log().into_iter().filter(|line| line.contains("none of ")).collect()
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
        top.contains(&format!("of {} requests {REPORTED}", outcome[0]["requests"]))
            && top.contains("FIELD MISSING"),
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
    page.shows("#missing", "Field missing: none of ");
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

/// Only sources are limited.
const SOURCES: &[(&str, &str)] = &[
    ("slo.map", "0 rate=unlimited\n3001 burst=10000 rate=5000/s\n"),
    ("source.map", "0.0.0.0/0 3001\n::/0 3001\n"),
];

/// Waits until a fault is told in these words. Requests are counted a moment after their faults, so the first words may
/// name too few of them.
fn is_told(slowlane: &Slowlane, words: &str) {
    eventually("the fault is told with all requests", || {
        let status = client::get(slowlane.admin, "/api/status", &[]).body;
        let lines = serde_json::from_str::<Value>(&status).unwrap()["field_faults"].take();
        let mut texts = lines.as_array().unwrap().iter().map(|line| line["text"].as_str().unwrap());
        texts.any(|text| text.contains(words)).then_some(())
    });
}

/// The faults that the status has, as field, fault, requests and example.
fn faults(slowlane: &Slowlane) -> Vec<(String, String, u64, Value)> {
    let status = client::get(slowlane.admin, "/api/status", &[]).body;
    let lines = serde_json::from_str::<Value>(&status).unwrap()["field_faults"].take();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let line = |line: &Value| {
        (
            text(&line["field"]),
            text(&line["fault"]),
            line["requests"].as_u64().unwrap(),
            line["example"].clone(),
        )
    };
    lines.as_array().unwrap().iter().map(line).collect()
}

fn counted(slowlane: &Slowlane, field: &str, fault: &str) -> f64 {
    slowlane.metric("slowlane_field_faults_total", &format!("field=\"{field}\",fault=\"{fault}\""))
}

/// The findings of the doctor about the field, with their states.
fn findings(slowlane: &Slowlane, part: &str) -> Vec<(String, String)> {
    let config = slowlane.folder().join("doctor.toml");
    let Slowlane { spop, http, admin, .. } = slowlane;
    let text = format!(
        "[spop]\nlisten = ['{spop}']\n[http]\nlisten = ['{http}']\n[admin]\nlisten = ['{admin}']\n[policy]\ndir = '{}'\n",
        slowlane.policy().display()
    );
    std::fs::write(&config, text).unwrap();
    let report = ran(&["doctor", "--json", "--config", config.to_str().unwrap()]).out;
    let report: Value = serde_json::from_str(&report).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let all = report["findings"].as_array().unwrap().iter();
    let of = all.map(|finding| (text(&finding["state"]), text(&finding["text"])));
    of.filter(|(_, text)| text.contains(part)).collect()
}

#[test]
fn sources_that_no_limit_can_read_are_told_everywhere() {
    let mut slowlane = Slowlane::with_policy(SOURCES);
    let mut line = Line::greeted(slowlane.spop);
    let mut ask = |source: Data<'_>| {
        line.say(&message(1, b"request", &[(b"source", source), (b"website", Data::Str(b"shop.example"))]));
        line.hear().variable("slo").unwrap().to_owned()
    };
    for _ in 0..100 {
        assert_eq!(ask(Data::Ipv4([192, 0, 2, 1].into())), "3001");
    }
    for source in ["[2001:db8::1]", "192.0.2.1:4711", "[2001:db8::1]:443", "fe80::1%eth0", " 192.0.2.1 "] {
        assert_eq!(ask(Data::Str(source.as_bytes())), "3001", "{source}");
    }
    assert_eq!(ask(Data::Ipv6("64:ff9b::c000:201".parse().unwrap())), "3001");
    assert_eq!(ask(Data::Str(b"\x1b[31m192.0.2.1, 10.0.0.1")), "0", "it is under no limit");
    let example = json!("\\u{1b}[31m192.0.2.1, 10.0.0.1");
    eventually("one request in 107 is told", || {
        (faults(&slowlane) == [("source".into(), "unreadable".into(), 1, example.clone())]).then_some(())
    });
    is_told(&slowlane, "1 of the last 107 requests ");
    assert_eq!(
        findings(&slowlane, "not an address")[0].0,
        "note",
        "1 % or less is no fault of the configuration"
    );
    for source in [&b"unix:"[..], b"-", b"unknown", b"192.0.2.1, 10.0.0.1"] {
        assert_eq!(ask(Data::Str(source)), "0");
    }
    eventually("all are counted", || (counted(&slowlane, "source", "unreadable") == 5.0).then_some(()));
    let said = "5 of the last 111 requests carried a source like \"192.0.2.1, 10.0.0.1\", which is not an \
                address; the field is needed by source.map and type 3";
    is_told(&slowlane, said);
    assert_eq!(findings(&slowlane, "not an address"), [("wrong".to_owned(), said.to_owned())]);
    assert_eq!(findings(&slowlane, "fields that arrive"), []);
    let status = ran(&["status", "--admin", &slowlane.admin.to_string()]).out;
    assert!(status.contains(&format!("FIELD UNREADABLE: {said}")), "{status}");
    let mut page = Chromium::open(&format!("http://{}/", slowlane.admin), 1200, 900);
    page.shows("#missing", &format!("Field unreadable: {said}"));
    assert_eq!(page.problems(), [""; 0]);
    slowlane.process.logged("which is not an address");
    let logged = slowlane.process.log().into_iter().filter(|line| line.contains("not an address")).count();
    assert_eq!(logged, 1, "once in ten minutes");
}

#[test]
fn costs_that_are_no_numbers_and_absent_owners_are_counted_over_http() {
    let slowlane = Slowlane::with_policy(&[
        ("slo.map", "0 rate=unlimited\n1001 burst=10000 rate=5000/s\n"),
        ("owner.map", "acme 1001\n"),
    ]);
    let mut client = Client::connect(slowlane.http);
    let mut ask = |owner: &str, cost: &str| {
        let fields = [("X-Slowlane-Owner", owner), ("X-Slowlane-Cost", cost)];
        assert_eq!(client.request("GET", "/check?hold=off", &fields, "").status, 204);
    };
    (0..10).for_each(|_| ask("acme", "5"));
    (0..4).for_each(|_| ask("acme", "1.5"));
    (0..6).for_each(|_| ask("", ""));
    eventually("both are told", || {
        let expected = [
            ("cost".into(), "unreadable".into(), 4, json!("1.5")),
            ("owner".into(), "absent".into(), 6, Value::Null),
        ];
        (faults(&slowlane) == expected).then_some(())
    });
    assert_eq!([counted(&slowlane, "cost", "unreadable"), counted(&slowlane, "owner", "absent")], [4.0, 6.0]);
    let said = "6 of the last 20 requests carried no owner, which every limit needs: no limit \
                applied to these requests";
    is_told(&slowlane, said);
    assert_eq!(findings(&slowlane, "carried no owner"), [("wrong".to_owned(), said.to_owned())]);
    assert_eq!(findings(&slowlane, "not a whole number")[0].0, "wrong");
    // Another policy counts on.
    slowlane.replace("owner.map", "acme 1001\nann 1001\n");
    eventually("the edit is in force", || {
        (client::get(slowlane.admin, "/api/why?owner=ann", &[]).body.contains("1001")).then_some(())
    });
    eventually("its requests have no faults", || faults(&slowlane).is_empty().then_some(()));
    assert_eq!(counted(&slowlane, "cost", "unreadable"), 4.0);
}

#[test]
fn a_crowd_of_one_network_is_asked_about() {
    let slowlane = Slowlane::with_policy(SOURCES);
    let mut line = Line::greeted(slowlane.spop);
    let mut number = 0_u8;
    let text = eventually("enough requests are sampled", || {
        for _ in 0..100 {
            number = (number + 1) % 8;
            line.ask(1, &format!("192.0.2.{}", 16 + number), "shop.example");
        }
        findings(&slowlane, "is this network your CDN's?").pop()
    });
    assert_eq!(text.0, "note");
    let counted = text.1.split_once("sampled requests come from about ").unwrap().1;
    let (addresses, rest) = counted.split_once(" addresses in ").unwrap();
    assert!(rest.starts_with("192.0.2.0/24: "), "{}", text.1);
    assert!((6..=9).contains(&addresses.parse().unwrap()), "two may share a bit: {}", text.1);
}

#[test]
fn behind_trusted_proxies_the_client_is_taken_from_the_list() {
    let policy = [("slo.map", "0 rate=unlimited\n3001 burst=2 rate=1/h law=token-bucket\n"), SOURCES[1]];
    let slowlane = Slowlane::with_config(&policy, "[http]\ntrusted = ['10.0.0.0/8', '2001:db8:cd::/48']\n");
    let ask = |query: &str, headers: &[(&str, &str)]| {
        let answer = slowlane.check(query, headers);
        let header = |name| answer.header(name).unwrap().to_owned();
        (header("x-slowlane-slo"), header("x-slowlane-verdict"))
    };
    let is = |slo: &str, verdict: &str| (slo.to_owned(), verdict.to_owned());
    let list = ("X-Forwarded-For", "198.51.100.7, 192.0.2.1:4711, 10.2.3.4");
    let edge = ("X-Slowlane-Source", "10.0.0.1");
    assert_eq!(ask("?hold=off", &[edge, list]), is("3001", "pass"));
    assert_eq!(ask("?hold=off&deny=429", &[list]), is("3001", "pass"), "Traefik and Caddy");
    let other = ("X-Forwarded-For", "203.0.113.9, 192.0.2.1");
    assert_eq!(
        ask("?hold=off", &[edge, other]),
        is("3001", "deny"),
        "one client, whatever it says on the left"
    );
    assert_eq!(
        ask("?hold=off", &[("X-Slowlane-Source", "198.51.100.7")]),
        is("3001", "pass"),
        "nobody else paid"
    );
    let forged = ("X-Forwarded-For", "203.0.113.10");
    assert_eq!(
        ask("?hold=off", &[("X-Slowlane-Source", "192.0.2.1"), forged]),
        is("3001", "deny"),
        "no proxy"
    );
    let garbage = ("X-Forwarded-For", "203.0.113.10, secret");
    assert_eq!(ask("?hold=off", &[edge, garbage]), is("0", "pass"));
    eventually("it is counted", || (counted(&slowlane, "source", "unreadable") == 1.0).then_some(()));
    // nginx asks twice after an internal redirect: the answer is that of the same client only.
    let id = ("X-Request-Id", "0123456789abcdef0123456789abcdef");
    let [one, two] = [("X-Forwarded-For", "203.0.113.20"), ("X-Forwarded-For", "203.0.113.21")];
    for (list, verdict) in [(one, "pass"), (one, "pass"), (one, "pass"), (two, "pass")] {
        assert_eq!(ask("?hold=off", &[edge, list, id]), is("3001", verdict), "{list:?}");
    }
    assert_eq!(ask("?hold=off", &[edge, one]), is("3001", "pass"), "three checks with one id counted once");
    assert_eq!(ask("?hold=off", &[edge, one]), is("3001", "deny"));
    assert_eq!(ask("?hold=off", &[edge, two]), is("3001", "pass"));
}
