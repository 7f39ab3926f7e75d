//! Invalid HTTP: it gets a clear answer or a closed connection, and disturbs no other client.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use spop::{Data, Disconnect, Status};

use crate::support::client::{self, Client};
use crate::support::slowlane::Slowlane;
use crate::support::spop::{Line, message};
use crate::support::{PATIENCE, eventually};

/// `slow.example` passes once, and then waits a minute longer each time. `denied.example` passes once a minute. Others
/// pass.
const POLICY: &[(&str, &str)] = &[
    (
        "slo.map",
        "0 burst=1000000 rate=5000/s\n2001 burst=1 rate=1/m max_delay=1h\n2002 burst=1 rate=1/m max_delay=1s\n",
    ),
    ("website.map", "slow.example 2001\ndenied.example 2002\n"),
];

const CHECK: &str = "GET /check HTTP/1.1\r\nHost: slowlane\r\n";

fn slowlane() -> Slowlane {
    Slowlane::with_policy(POLICY)
}

#[test]
fn haproxy_at_the_port_of_nginx_is_told_in_the_log() {
    let mut slowlane = slowlane();
    let hello = b"\0\0\0\x2c\x01\0\0\0\x01\0\0\x12supported-versions\x08\x032.0";
    assert!(Raw::said(slowlane.http, hello).head().starts_with("HTTP/1.1 400 "));
    slowlane.process.logged("WARN http connection refused: this is SPOP, not HTTP: this port is for nginx");
}

/// A connection whose bytes are written by hand.
struct Raw(TcpStream);

impl Raw {
    fn to(address: SocketAddr) -> Raw {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Raw(stream)
    }

    fn said(address: SocketAddr, text: impl AsRef<[u8]>) -> Raw {
        let mut raw = Raw::to(address);
        raw.say(text);
        raw
    }

    fn say(&mut self, text: impl AsRef<[u8]>) {
        self.0.write_all(text.as_ref()).unwrap();
    }

    /// The next answer without its body, or the bytes before the connection was closed.
    fn head(&mut self) -> String {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            match self.0.read(&mut byte) {
                Ok(0) => break,
                Ok(_) => head.push(byte[0]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => panic!("waited in vain for an answer: {error}"),
            }
        }
        String::from_utf8(head).unwrap()
    }

    fn status(&mut self) -> u16 {
        let head = self.head();
        head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("{head:?}"))
    }

    /// Checks that the connection is closed without further bytes.
    fn is_closed(&mut self) {
        assert_eq!(self.head(), "");
    }
}

/// Another client on its own connection, which must not be disturbed.
struct Bystander(Client);

impl Bystander {
    fn of(slowlane: &Slowlane) -> Bystander {
        Bystander(Client::connect(slowlane.http))
    }

    fn is_served(&mut self) {
        let answer = self.0.request("GET", "/check", &[("X-Slowlane-Website", "free.example")], "");
        assert_eq!((answer.status, answer.header("x-slowlane-slo")), (204, Some("0")));
    }
}

fn nonsense(rng: &mut fastrand::Rng) -> Vec<u8> {
    let mut bytes = match rng.u8(..3) {
        0 => return (0..rng.usize(1..5_000)).map(|_| rng.u8(..)).collect(),
        1 => format!("{CHECK}X-Slowlane-Source: 192.0.2.1\r\nX-Request-Id: 1\r\n\r\n").into_bytes(),
        _ => format!("{CHECK}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n{CHECK}\r\n")
            .into_bytes(),
    };
    for _ in 0..rng.usize(1..4) {
        let at = rng.usize(..bytes.len());
        bytes[at] = rng.u8(..);
    }
    bytes
}

#[test]
fn random_bytes_disturb_nobody() {
    let mut slowlane = slowlane();
    let mut bystander = Bystander::of(&slowlane);
    for seed in 0..300 {
        let mut rng = fastrand::Rng::with_seed(seed);
        drop(Raw::said(slowlane.http, nonsense(&mut rng)));
        drop(Raw::said(slowlane.admin, nonsense(&mut rng)));
        bystander.is_served();
        assert!(slowlane.process.is_running(), "seed {seed}");
    }
    eventually("the connections of nonsense are given up", || {
        let open = |listener| slowlane.metric("slowlane_connections", listener);
        // One connection is the bystander's; the other one reads the metrics.
        (open("listener=\"http\"") == 1.0 && open("listener=\"admin\"") == 1.0).then_some(())
    });
    let log = slowlane.process.log().join("\n");
    assert!(!log.contains("panicked"), "{log}");
}

#[test]
fn what_is_no_request_is_refused_and_closed() {
    let slowlane = slowlane();
    for (text, status) in [
        ("\u{0}\u{1}\u{2}\r\n\r\n", 400),
        ("GET\r\n\r\n", 400),
        ("GET /check HTTP/9.9\r\n\r\n", 400),
        ("GET /check HTTP/1.1\r\nno colon\r\n\r\n", 400),
        ("GET /check HTTP/1.1\r\nContent-Length: many\r\n\r\n", 400),
        ("GET /check HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
    ] {
        for address in [slowlane.http, slowlane.admin] {
            let mut raw = Raw::said(address, text);
            assert_eq!(raw.status(), status, "{text:?}");
            raw.is_closed();
        }
    }
}

#[test]
fn a_head_that_is_too_large_is_refused() {
    let slowlane = slowlane();
    let mut bystander = Bystander::of(&slowlane);
    let long = format!("X-Slowlane-Website: {}\r\n", "a".repeat(8_000_000));
    let many: String = (0..200).map(|number| format!("X-Slowlane-F{number}: 1\r\n")).collect();
    for address in [slowlane.http, slowlane.admin] {
        for headers in [&long, &many] {
            let mut raw = Raw::said(address, format!("{CHECK}{headers}\r\n"));
            assert_eq!(raw.status(), 431);
            raw.is_closed();
            bystander.is_served();
        }
    }
    assert_eq!(slowlane.metric("slowlane_verdicts_total", "slo=\"0\""), 4.0);
}

#[test]
fn a_head_without_end_is_not_kept() {
    let slowlane = slowlane();
    let mut raw = Raw::said(slowlane.http, CHECK);
    let mut said = 0;
    let filler = [b'a'; 4_096];
    let closed = loop {
        match raw.0.write_all(&filler) {
            Ok(()) => said += filler.len(),
            Err(error) => break error,
        }
        assert!(said < 64 << 20, "{said} bytes of a head were taken");
    };
    assert!([ErrorKind::ConnectionReset, ErrorKind::BrokenPipe].contains(&closed.kind()), "{closed}");
}

#[test]
fn a_body_is_neither_waited_for_nor_kept() {
    let slowlane = slowlane();
    let ask = |method: &str, rest: &str| {
        Raw::said(slowlane.http, format!("{method} /check HTTP/1.1\r\nHost: slowlane\r\n{rest}"))
    };
    // The body is never sent: the answer comes anyway. Later bytes cannot be told from the body, so the connection is
    // closed.
    for rest in [
        "Content-Length: 1000\r\n\r\n",
        "Expect: 100-continue\r\nContent-Length: 1000\r\n\r\n",
        "Content-Length: 1000\r\n\r\nten bytes.",
        "Transfer-Encoding: chunked\r\n\r\n",
    ] {
        let mut raw = ask("POST", rest);
        assert_eq!(raw.status(), 204, "{rest:?}");
        raw.is_closed();
    }
    // The body is sent: the connection continues after it.
    for rest in [
        "Content-Length: 5\r\n\r\nhello",
        "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "\r\n",
    ] {
        let mut raw = ask("POST", rest);
        assert_eq!(raw.status(), 204, "{rest:?}");
        raw.say(format!("{CHECK}\r\n"));
        assert_eq!(raw.status(), 204, "{rest:?}");
    }
}

/// A proxy that takes the other length for true would let its client write the next question.
#[test]
fn a_question_in_a_body_whose_end_is_not_clear_is_not_answered() {
    let slowlane = slowlane();
    let hidden = format!("{CHECK}\r\n");
    for headers in [
        "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n",
        "Content-Length: 0\r\nContent-Length: 0\r\n",
        "Content-Length: +0\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: identity\r\n",
        "Content-Length : 0\r\n",
        "Content-Length: 0\r\n Transfer-Encoding: chunked\r\n",
    ] {
        let mut raw = Raw::said(
            slowlane.http,
            format!("POST /check HTTP/1.1\r\nHost: slowlane\r\n{headers}\r\n{hidden}"),
        );
        assert_eq!(raw.status(), 400, "{headers:?}");
        raw.is_closed();
    }
    assert_eq!(slowlane.metric("slowlane_verdicts_total", ""), 0.0);
}

#[test]
fn a_delay_is_held_whatever_the_body_does() {
    let slowlane = Slowlane::with_config(POLICY, "[hold]\nlongest = \"300ms\"\n");
    let ask = format!("{CHECK}X-Slowlane-Website: slow.example\r\nContent-Length: 9\r\n\r\n");
    assert_eq!(Raw::said(slowlane.http, &ask).status(), 204, "the burst is free");
    let started = Instant::now();
    assert_eq!(Raw::said(slowlane.http, &ask).status(), 204);
    assert!(started.elapsed() >= Duration::from_millis(300), "{:?}", started.elapsed());
}

#[test]
fn any_method_and_any_version_is_answered_the_same_and_with_an_empty_body() {
    let slowlane = slowlane();
    for method in ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "BREW"] {
        let mut raw = Raw::said(
            slowlane.http,
            format!("{method} /check HTTP/1.1\r\nHost: slowlane\r\n\r\n{CHECK}\r\n"),
        );
        for _ in 0..2 {
            let head = raw.head();
            assert!(
                head.starts_with("HTTP/1.1 204 ") && head.contains("x-slowlane-verdict: pass\r\n"),
                "{head}"
            );
        }
    }
    let mut raw = Raw::said(slowlane.http, "GET /check HTTP/1.0\r\n\r\n");
    assert!(raw.head().starts_with("HTTP/1.0 204 "));
    raw.is_closed();
    let mut raw = Raw::said(slowlane.http, "GET /check HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert_eq!(raw.status(), 204);
    raw.say(
        "GET http://proxy.example/check?hold=off HTTP/1.1\r\nHost: slowlane\r\nConnection: close\r\n\r\n",
    );
    assert_eq!(raw.status(), 204);
    raw.is_closed();
}

#[test]
fn pipelined_requests_are_answered_in_their_order() {
    let slowlane = slowlane();
    let ask = |website| format!("{CHECK}X-Slowlane-Website: {website}\r\n\r\n");
    let mut raw = Raw::said(
        slowlane.http,
        ["free.example", "denied.example", "denied.example"].map(ask).concat().repeat(20),
    );
    for round in 0..20 {
        let expected = if round == 0 { [204, 204, 403] } else { [204, 403, 403] };
        assert_eq!([raw.status(), raw.status(), raw.status()], expected);
    }
}

#[test]
fn only_the_check_is_found() {
    let slowlane = slowlane();
    let mut client = Client::connect(slowlane.http);
    for path in [
        "/",
        "/Check",
        "//check",
        "/./check",
        "/check%2F",
        "/check%20",
        "/metrics",
        "/checks?hold=off",
        "/%00",
        "*",
    ] {
        assert_eq!(client.request("GET", path, &[], "").status, 404, "{path}");
    }
    assert_eq!(slowlane.metric("slowlane_verdicts_total", ""), 0.0);
    for path in ["/check?", "/check?&&", "/check?hold=on&deny=403"] {
        assert_eq!(client.request("GET", path, &[], "").status, 204, "{path}");
    }
    for path in [
        "/check?what",
        "/check?hold=never",
        "/check?deny=200",
        "/check?==",
        "/check?%ff",
        "/check?max_delay=-1s",
    ] {
        assert_eq!(client.request("GET", path, &[], "").status, 400, "{path}");
    }
    assert_eq!(slowlane.metric("slowlane_verdicts_total", ""), 3.0);
}

#[test]
fn a_client_that_leaves_gives_back_its_place_and_its_slot() {
    let slowlane = Slowlane::with_config(POLICY, "[hold]\nmax = 1\n");
    let ask = format!("{CHECK}X-Slowlane-Website: slow.example\r\n\r\n");
    let holds = || slowlane.metric("slowlane_holds", "");
    assert_eq!(Raw::said(slowlane.http, &ask).status(), 204, "the burst is free");
    for left in 1..=3 {
        let held = Raw::said(slowlane.http, &ask);
        eventually("it is held", || (holds() == 1.0).then_some(()));
        drop(held);
        eventually("its place is free", || (holds() == 0.0).then_some(()));
        assert_eq!(slowlane.metric("slowlane_holds_abandoned_total", ""), f64::from(left));
    }
    let outcome = client::get(slowlane.http, "/check?hold=off", &[("X-Slowlane-Website", "slow.example")]);
    let delay_ms: u64 = outcome.header("x-slowlane-delay").unwrap().parse().unwrap();
    assert!(delay_ms <= 60_000, "three who left wait no more, and {delay_ms} ms are one slot");
    assert_eq!(slowlane.metric("slowlane_holds_refused_total", ""), 0.0);
}

#[test]
fn one_hold_too_many_is_answered_at_once_as_configured() {
    for (when_full, status, verdict) in [("pass", 204, "pass"), ("deny", 403, "deny")] {
        let config = format!("[hold]\nmax = 1\nwhen_full = \"{when_full}\"\n");
        let slowlane = Slowlane::with_config(POLICY, &config);
        let ask = || Raw::said(slowlane.http, format!("{CHECK}X-Slowlane-Website: slow.example\r\n\r\n"));
        assert_eq!(ask().status(), 204, "the burst is free");
        let _held = ask();
        eventually("it is held", || (slowlane.metric("slowlane_holds", "") == 1.0).then_some(()));
        let answer = client::get(slowlane.http, "/check", &[("X-Slowlane-Website", "slow.example")]);
        assert_eq!((answer.status, answer.header("x-slowlane-verdict")), (status, Some(verdict)));
        assert_eq!(answer.header("retry-after"), (verdict == "deny").then_some("1"));
        assert_eq!(slowlane.metric("slowlane_holds_refused_total", ""), 1.0);
    }
}

#[test]
fn who_does_not_finish_a_head_is_closed_and_who_is_held_is_not() {
    let config = "[http]\nidle_timeout = \"400ms\"\n[hold]\nlongest = \"1s\"\n";
    let slowlane = Slowlane::with_config(POLICY, config);
    let slow = format!("{CHECK}X-Slowlane-Website: slow.example\r\n\r\n");
    assert_eq!(Raw::said(slowlane.http, &slow).status(), 204, "the burst is free");
    let (started, mut held) = (Instant::now(), Raw::said(slowlane.http, &slow));

    let unfinished =
        ["", "GET", "GET /check HTTP/1.1\r\n", CHECK, "GET /check HTTP/1.1\r\nX-Slowlane-Website: "];
    for mut raw in unfinished.map(|text| Raw::said(slowlane.http, text)) {
        let said = raw.head();
        assert!(said.is_empty() || said.starts_with("HTTP/1.1 408 "), "{said:?}");
    }
    let mut idle = Raw::said(slowlane.http, format!("{CHECK}\r\n"));
    assert_eq!(idle.status(), 204);
    idle.is_closed();

    for (begun, byte) in [(CHECK, b"a"), ("", b"\n")] {
        let mut dribbled = Raw::said(slowlane.http, begun);
        eventually("a dribbler is closed", || {
            thread::sleep(Duration::from_millis(20));
            dribbled.0.write_all(byte).is_err().then_some(())
        });
    }
    assert_eq!(held.status(), 204, "holding is not idling");
    assert!(started.elapsed() >= Duration::from_secs(1));
}

#[test]
fn one_connection_too_many_waits_until_another_leaves() {
    let slowlane = Slowlane::with_config(POLICY, "[http]\nconnections_max = 2\n");
    let mut bystander = Bystander::of(&slowlane);
    bystander.is_served();
    let mut second = Raw::said(slowlane.http, format!("{CHECK}\r\n"));
    assert_eq!(second.status(), 204);
    let mut third = Raw::said(slowlane.http, format!("{CHECK}\r\n"));
    let waited = || slowlane.metric("slowlane_connections_waited_total", "listener=\"http\"");
    eventually("it waits for a place", || (waited() == 1.0).then_some(()));
    bystander.is_served();
    assert_eq!(slowlane.metric("slowlane_connections", "listener=\"http\""), 2.0);
    drop(second);
    assert_eq!(third.status(), 204);
}

#[test]
fn a_request_id_is_counted_once_where_nginx_asks() {
    let slowlane = slowlane();
    let ask = |path, id| {
        client::get(slowlane.http, path, &[("X-Slowlane-Website", "denied.example"), ("X-Request-Id", id)])
            .status
    };
    // An internal redirect asks again with the same id, within a second. On a slow machine the test tries again.
    let started = Instant::now();
    let answers = [ask("/check", "a"), ask("/check", "a"), ask("/check", "b"), ask("/check", "b")];
    if started.elapsed() < Duration::from_secs(1) {
        assert_eq!(answers, [204, 204, 403, 403]);
        assert_eq!(slowlane.metric("slowlane_verdicts_total", "slo=\"2002\""), 2.0);
    }
    // With `deny=429`, clients may choose the ids, so they are ignored. An empty id is ignored, too.
    let before = slowlane.metric("slowlane_verdicts_total", "slo=\"2002\"");
    assert_eq!([ask("/check?deny=429", "b"), ask("/check?deny=429", "b")], [429, 429]);
    assert_eq!([ask("/check", ""), ask("/check", "")], [403, 403]);
    assert_eq!(slowlane.metric("slowlane_verdicts_total", "slo=\"2002\""), before + 4.0);
}

#[test]
fn at_the_end_who_is_held_is_let_through() {
    let mut slowlane = slowlane();
    let ask = || Raw::said(slowlane.http, format!("{CHECK}X-Slowlane-Website: slow.example\r\n\r\n"));
    assert_eq!(ask().status(), 204, "the burst is free");
    let (mut held, mut idle) = (ask(), Raw::to(slowlane.http));
    eventually("it is held", || (slowlane.metric("slowlane_holds", "") == 1.0).then_some(()));
    slowlane.process.signal("TERM");
    assert_eq!(held.status(), 204);
    held.is_closed();
    idle.is_closed();
    assert!(slowlane.process.wait().success());
}

#[test]
fn the_admin_listener_answers_get_and_head_only() {
    let slowlane = slowlane();
    let mut client = Client::connect(slowlane.admin);
    for (path, body) in [("/healthz", "alive\n"), ("/readyz", "ready\n"), ("/readyz?verbose", "ready\n")] {
        let answer = client.request("GET", path, &[], "");
        assert_eq!((answer.status, answer.body.as_str()), (200, body), "{path}");
        assert_eq!(client.request("HEAD", path, &[], "").status, 200, "{path}");
    }
    for path in ["//", "/index.html", "/metrics/", "/check", "/healthz/.."] {
        assert_eq!(client.request("GET", path, &[], "").status, 404, "{path}");
    }
    for path in ["/", "/api/status"] {
        assert_eq!(client.request("HEAD", path, &[], "").status, 200, "{path}");
    }
    for path in ["/", "/api/status", "/metrics", "/healthz", "/nowhere"] {
        for method in ["POST", "PUT", "DELETE", "BREW"] {
            assert_eq!(client.request(method, path, &[], "").status, 405, "{method} {path}");
        }
    }
}

/// DNS rebinding: a web page of another site has its name resolved to 127.0.0.1.
#[test]
fn a_web_page_of_another_site_reads_nothing_of_the_admin_listener() {
    let slowlane = slowlane();
    let get = |path, host: &str| client::get(slowlane.admin, path, &[("Host", host)]);
    let (address, port) = (slowlane.admin.to_string(), slowlane.admin.port());
    for path in ["/", "/metrics", "/healthz", "/api/status", "/api/why?source=192.0.2.1", "/no"] {
        for host in
            ["evil.example", &format!("evil.example:{port}"), "localhost.evil.example", "192.0.2.1", ""]
        {
            let refused = get(path, host);
            assert_eq!(refused.status, 421, "{path} of {host:?}");
            assert!(refused.body.contains("[admin] hosts"), "{}", refused.body);
        }
        for host in [&format!("127.0.0.1:{port}"), &address, "LOCALHOST:80", "[::1]:9002"] {
            assert_ne!(get(path, host).status, 421, "{path} of {host:?}");
        }
    }
    // Two hosts, a host in the request line, and none at all.
    for (line, hosts) in [
        ("GET /metrics HTTP/1.1", "Host: localhost\r\nHost: evil.example\r\n"),
        ("GET http://evil.example/metrics HTTP/1.1", "Host: localhost\r\n"),
        ("GET /metrics HTTP/1.1", ""),
    ] {
        let mut raw = Raw::said(slowlane.admin, format!("{line}\r\n{hosts}\r\n"));
        assert_eq!(raw.status(), 421, "{line} {hosts}");
    }
    // A health check.
    assert_eq!(Raw::said(slowlane.admin, "GET /readyz HTTP/1.0\r\n\r\n").status(), 200);
    let show = |host| {
        let mut client = Client::connect(slowlane.admin);
        client.request("POST", "/api/runtime", &[("Host", host)], "show table").status
    };
    assert_eq!([show("localhost"), show("evil.example")], [200, 421]);
}

#[test]
fn a_reverse_proxy_of_the_admin_listener_has_its_host_in_the_config() {
    let slowlane = Slowlane::with_config(POLICY, "[admin]\nhosts = [\"slowlane.example\"]\n");
    let get = |host| client::get(slowlane.admin, "/metrics", &[("Host", host)]).status;
    assert_eq!(["Slowlane.example:443", "localhost", "evil.example"].map(get), [200, 200, 421]);
}

#[test]
fn whoever_has_the_token_may_name_any_host() {
    let slowlane = Slowlane::with_config(POLICY, "[admin]\ntoken = \"0123456789abcdef\"\n");
    let get = |path, token: &str| {
        let headers = [("Host", "any.example"), ("Authorization", &format!("Bearer {token}"))];
        client::get(slowlane.admin, path, &headers).status
    };
    assert_eq!(
        [get("/metrics", "0123456789abcdef"), get("/metrics", "other"), get("/healthz", "")],
        [200, 401, 200]
    );
}

#[test]
fn no_web_page_gives_commands() {
    let slowlane = slowlane();
    let ask = |name, value| {
        let mut client = Client::connect(slowlane.admin);
        client.request("POST", "/api/runtime", &[(name, value)], "show table").status
    };
    assert_eq!(ask("Origin", "http://localhost"), 403);
    for (site, status) in [("cross-site", 403), ("same-site", 403), ("same-origin", 403), ("none", 200)] {
        assert_eq!(ask("Sec-Fetch-Site", site), status, "{site}");
    }
}

/// The allowed label values: constants of slowlane, SLO ids, fields of the policy, and status codes.
const LABELS: &[(&str, &[&str])] = &[
    ("listener", &["spop", "http", "grpc", "admin", "cluster", "peers"]),
    ("version", &[env!("CARGO_PKG_VERSION")]),
    ("type", &["hello", "notify", "ack", "disconnect"]),
    ("verdict", &["pass", "delay", "deny"]),
    ("slo", &["0", "2001", "2002"]),
    ("result", &["done", "refused", "counted", "late", "no_amount", "unmeasured"]),
    ("reason", &["rate", "queue", "write"]),
    ("by", &["slowlane", "haproxy"]),
    ("field", &["website", "source", "cost"]),
    ("fault", &["unreadable", "absent"]),
    (
        "le",
        &[
            "0.001", "0.002", "0.004", "0.008", "0.016", "0.032", "0.064", "0.128", "0.256", "0.512",
            "1.024", "2.048", "4.096", "8.192", "16.384", "32.768", "65.536", "131.072", "262.144",
            "524.288", "+Inf",
        ],
    ),
    ("status", &["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "99"]),
];

/// The name and the labels of a sample.
fn series(sample: &str) -> (&str, Vec<(&str, &str)>) {
    let Some((name, labels)) = sample.split_once('{') else { return (sample, Vec::new()) };
    let mut pairs = Vec::new();
    for label in labels.strip_suffix('}').expect("labels end").split(',') {
        let (name, value) = label.split_once("=\"").expect("a label has a value");
        pairs.push((name, value.strip_suffix('"').expect("a value ends")));
    }
    (name, pairs)
}

#[test]
fn the_metrics_are_openmetrics_and_no_client_chooses_a_label() {
    let slowlane = slowlane();
    let hostile = "x\",evil=\"1";
    for website in ["free.example", "slow.example", "denied.example", "denied.example", hostile] {
        client::get(
            slowlane.http,
            "/check?hold=off",
            &[("X-Slowlane-Website", website), ("X-Slowlane-Slo", "7")],
        );
    }
    let mut line = Line::greeted(slowlane.spop);
    line.say(&message(1, hostile.as_bytes(), &[(hostile.as_bytes(), Data::Str(hostile.as_bytes()))]));
    line.hear();
    let mut complaint = Vec::new();
    Disconnect { status: Status::new(4_711), message: hostile.as_bytes() }.encode_as_haproxy(&mut complaint);
    line.say(&complaint);
    line.hear_goodbye();

    let answer = client::get(slowlane.admin, "/metrics", &[]);
    assert!(
        answer.header("content-type").unwrap().starts_with("application/openmetrics-text; version=1.0.0")
    );
    let lines: Vec<&str> = answer.body.lines().collect();
    let (&last, lines) = lines.split_last().unwrap();
    assert_eq!(last, "# EOF");

    let (mut helps, mut types, mut samples) = (BTreeMap::new(), BTreeMap::new(), 0);
    for line in lines {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, text) = help.split_once(' ').unwrap();
            assert!(helps.insert(name, text).is_none() && text.len() > 10, "{line}");
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            assert!(types.insert(name, kind).is_none(), "{line}");
            assert!(["counter", "gauge", "histogram", "info"].contains(&kind), "{line}");
        } else if let Some(unit) = line.strip_prefix("# UNIT ") {
            let (name, unit) = unit.split_once(' ').unwrap();
            assert!(name.ends_with(&format!("_{unit}")) && ["seconds", "bytes"].contains(&unit), "{line}");
        } else {
            let (sample, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
            assert!(value.parse::<f64>().is_ok_and(|value| value >= 0.0), "{line}");
            let (name, labels) = series(sample);
            let histogram = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix));
            let (family, kind) = match (histogram, name.strip_suffix("_total"), name.strip_suffix("_info")) {
                (Some(family), ..) => (family, "histogram"),
                (None, Some(family), _) => (family, "counter"),
                (None, None, Some(family)) => (family, "info"),
                (None, None, None) => (name, "gauge"),
            };
            let is_ours = ["slowlane_", "process_"].iter().any(|prefix| family.starts_with(prefix));
            assert!(is_ours && types.get(family) == Some(&kind), "{line}");
            assert!(helps.contains_key(family), "{line}");
            for (name, value) in labels {
                let (_, values) =
                    LABELS.iter().find(|(known, _)| *known == name).unwrap_or_else(|| panic!("{line}"));
                assert!(values.contains(&value), "{line}");
            }
            samples += 1;
        }
    }
    assert!(samples >= 20, "{}", answer.body);
    for name in [
        "verdicts",
        "delay_seconds",
        "table_entries",
        "table_evictions",
        "holds",
        "holds_refused",
        "connections",
        "spop_frames",
        "spop_errors",
        "policy_reloads",
    ] {
        assert!(types.contains_key(format!("slowlane_{name}").as_str()), "{name}");
    }
}
