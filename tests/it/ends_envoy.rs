//! Envoy's access log, over gRPC, reports the ends of requests.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use grpc::accesslog::{CommonProperties, HttpEntries, HttpEntry, LogMessage, LoggedRequest};
use grpc::{Entry, MESSAGE_BYTES_MAX, Method, ProtoDuration, StatusCode, framed};

use crate::support::backend::Backend;
use crate::support::client::Client;
use crate::support::grpc::Client as GrpcClient;
use crate::support::haproxy::replace;
use crate::support::printed::Printed;
use crate::support::slowlane::Slowlane;
use crate::support::{eventually, own_address};

/// Nothing is refilled during a test.
const POLICY: &[(&str, &str)] = &[
    (
        "slo.map",
        "0 rate=unlimited\n2001 burst=1 rate=1/s law=concurrency max=5\n\
         2002 burst=1MB rate=1kB/h unit=bytes reserve=500kB law=token-bucket\n\
         2003 burst=1000s rate=1s/h unit=seconds reserve=500s law=token-bucket\n\
         2004 burst=1 rate=1/s law=concurrency max=5 lease=1h\n\
         2005 burst=1 rate=1/s law=concurrency max=1000 lease=1h\n",
    ),
    (
        "website.map",
        "shop.example 2001\nbytes.example 2002\nseconds.example 2003\nbusy.example 2004\nfull.example 2005\n",
    ),
];

fn slowlane(grpc: SocketAddr, more: &str) -> Slowlane {
    let config = format!("[policy]\nkey_secret_file = \"secret\"\n[grpc]\nlisten = [\"{grpc}\"]\n{more}");
    Slowlane::with_config(POLICY, &config)
}

fn ends(slowlane: &Slowlane, result: &str) -> f64 {
    slowlane.metric("slowlane_ends_total", &format!("result=\"{result}\""))
}

fn counted(slowlane: &Slowlane, number: f64) {
    eventually(&format!("{number} ends"), || (ends(slowlane, "counted") == number).then_some(()));
}

/// Envoy as it is printed, in each way in which it asks.
fn in_each_way(edit: impl Fn(String) -> String, story: impl Fn(&Slowlane, &Backend, &Printed)) {
    for delivery in ["hold", "header"] {
        let (app, grpc) = (Backend::start(), own_address());
        let slowlane = slowlane(grpc, "");
        if let Some(envoy) = Printed::envoy(delivery, &slowlane, grpc, &app, &edit) {
            story(&slowlane, &app, &envoy);
        }
    }
}

#[test]
fn places_come_back_when_requests_end() {
    in_each_way(
        |file| file,
        |slowlane, app, envoy| {
            let ask = |headers: &[(&str, &str)]| {
                let headers = [&[("Host", "shop.example")], headers].concat();
                envoy.client().request("GET", "/", &headers, "").status
            };
            for number in 1..=15 {
                assert_eq!(ask(&[]), 200, "request {number}");
                counted(slowlane, f64::from(number));
            }
            app.gate.close();
            let mut inside: Vec<Client> = (0..5)
                .map(|_| {
                    let mut client = envoy.client();
                    client.send("GET", "/", &[("Host", "shop.example")], "").unwrap();
                    client
                })
                .collect();
            eventually("five are inside", || (app.gate.inside() == 5).then_some(()));
            assert_eq!(ask(&[]), 429);
            // A client that leaves has ended.
            inside.pop();
            counted(slowlane, 16.0);
            app.gate.open();
            drop(inside);
            counted(slowlane, 20.0);
            assert_eq!(ask(&[]), 200);
            counted(slowlane, 21.0);
            let others = ["late", "refused", "no_amount", "unmeasured"].map(|result| ends(slowlane, result));
            assert_eq!(others, [0.0; 4]);
            assert_eq!(slowlane.metric("slowlane_grpc_failures_total", ""), 0.0);
            assert_eq!(slowlane.metric("slowlane_end_lines_total", ""), 21.0);
        },
    );
}

#[test]
fn bytes_and_seconds_are_measured() {
    in_each_way(
        |file| file,
        |slowlane, app, envoy| {
            let remaining = |website| -> u64 {
                let answer = slowlane.check("", &[("X-Slowlane-Website", website)]);
                let headers = [
                    ("X-Slowlane-Ticket", answer.header("x-slowlane-ticket").unwrap()),
                    ("X-Slowlane-Cost", "0"),
                ];
                assert_eq!(Client::connect(slowlane.http).request("POST", "/done", &headers, "").status, 204);
                answer.header("x-slowlane-remaining").unwrap().parse().unwrap()
            };
            let get = |website| envoy.client().request("GET", "/", &[("Host", website)], "").status;
            assert_eq!(get("bytes.example"), 200);
            counted(slowlane, 1.0);
            let sent = 500_000 - remaining("bytes.example");
            assert!((3..1_000).contains(&sent), "{sent}");
            app.gate.takes(Duration::from_millis(1_100));
            assert_eq!(get("seconds.example"), 200);
            counted(slowlane, 3.0);
            let busy = 500 - remaining("seconds.example");
            assert!((2..100).contains(&busy), "1.1 s, rounded up: {busy}");
        },
    );
}

/// A ticket of somebody else's request, in every form that a client can give it.
#[test]
fn no_client_ends_the_request_of_another() {
    // Even an operator who logs the header, and gives it to the application.
    let logs_header = |file: String| {
        let log = "                        log_name: ends\n";
        let more = "                      additional_request_headers_to_log: [x-slowlane-ticket]\n";
        let at = "                      common_config:\n";
        assert!(file.contains(log));
        replace(&file, at, &format!("{more}{at}"))
    };
    in_each_way(logs_header, |slowlane, _, envoy| {
        let open = slowlane.check("", &[("X-Slowlane-Website", "busy.example")]);
        let ticket = open.header("x-slowlane-ticket").unwrap();
        for host in ["free.example", "shop.example"] {
            let forged = [
                ("Host", host),
                ("X-Slowlane-Ticket", ticket),
                ("Ticket", ticket),
                ("User-Agent", &*format!("\"ticket\":\"{ticket}\" ticket={ticket}")),
            ];
            assert_eq!(envoy.client().request("GET", &format!("/?ticket={ticket}"), &forged, "").status, 200);
        }
        // Only its own.
        counted(slowlane, 1.0);
        thread::sleep(Duration::from_millis(300));
        assert_eq!((ends(slowlane, "counted"), ends(slowlane, "late")), (1.0, 0.0));
        let done =
            Client::connect(slowlane.http).request("POST", "/done", &[("X-Slowlane-Ticket", ticket)], "");
        assert_eq!(done.status, 204);
        counted(slowlane, 2.0);
    });
}

/// While Envoy serves, slowlane is replaced, and ended: Envoy opens its log again.
#[test]
fn ends_are_reported_after_an_upgrade_and_a_restart() {
    let (app, grpc) = (Backend::start(), own_address());
    let mut slowlane = slowlane(grpc, "");
    let Some(envoy) = Printed::envoy("hold", &slowlane, grpc, &app, |file| file) else { return };
    let get = || envoy.client().request("GET", "/", &[("Host", "busy.example")], "").status;
    let twenty = |slowlane: &Slowlane| {
        for number in 0..20 {
            assert_eq!(get(), 200, "request {number}");
            let inside = || slowlane.metric("slowlane_ends_total", "result=\"counted\"");
            eventually("its end is known", || (inside() > f64::from(number)).then_some(()));
        }
    };
    twenty(&slowlane);
    slowlane.kill();
    slowlane.restart();
    twenty(&slowlane);
    slowlane.upgrade();
    twenty(&slowlane);
}

/// Entries that are under way while slowlane is replaced are read by either process.
#[test]
fn no_end_is_lost_in_an_upgrade() {
    let (app, grpc) = (Backend::start(), own_address());
    let mut slowlane = slowlane(grpc, "");
    let Some(envoy) = Printed::envoy("hold", &slowlane, grpc, &app, |file| file) else { return };
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut client = envoy.client();
                while !is_over.load(Relaxed) {
                    assert_eq!(client.request("GET", "/", &[("Host", "full.example")], "").status, 200);
                }
            });
        }
        for _ in 0..5 {
            thread::sleep(Duration::from_millis(300));
            slowlane.upgrade();
        }
        is_over.store(true, Relaxed);
    });
    // A busy machine takes longer to send the last ones.
    eventually("all requests have ended", || {
        let alone = slowlane.check("", &[("X-Slowlane-Website", "full.example")]);
        let ticket = ("X-Slowlane-Ticket", alone.header("x-slowlane-ticket").unwrap());
        assert_eq!(Client::connect(slowlane.http).request("GET", "/done", &[ticket], "").status, 204);
        (alone.header("x-slowlane-remaining") == Some("999")).then_some(())
    });
}

fn logged(ticket: &str, kind: i32) -> HttpEntry {
    let header = Entry { key: "x-slowlane-ticket".into(), value: ticket.to_owned().into() };
    HttpEntry {
        common: Some(CommonProperties {
            duration: Some(ProtoDuration { seconds: 1, nanos: 5 }),
            kind,
            ..CommonProperties::default()
        }),
        request: Some(LoggedRequest { headers: vec![header] }),
    }
}

fn message(entries: Vec<HttpEntry>) -> Vec<u8> {
    framed(&LogMessage { http: Some(HttpEntries { entries }) })
}

/// Each message is one of Envoy's, or of a peer that is not Envoy.
#[test]
fn a_log_that_is_no_good_harms_nobody() {
    let at = own_address();
    let slowlane = slowlane(at, "");
    let mut client = GrpcClient::connect(at);
    let tickets: Vec<String> = (0..3)
        .map(|_| {
            let open = slowlane.check("", &[("X-Slowlane-Website", "busy.example")]);
            open.header("x-slowlane-ticket").unwrap().to_owned()
        })
        .collect();
    let mut send = |body: Vec<u8>| client.send(Method::StreamAccessLogs.path(), Bytes::from(body)).status;
    let ok = Some(0);
    assert_eq!(send(Vec::new()), ok);
    assert_eq!(send(message(vec![])), ok);
    // Of a request that goes on, and of an attempt at an upstream: DownstreamStart, DownstreamPeriodic, UpstreamEnd.
    assert_eq!(send(message([4, 5, 9].map(|kind| logged(&tickets[0], kind)).into())), ok);
    assert_eq!(ends(&slowlane, "counted"), 0.0);
    // A message that cannot be read is left out, and its neighbours count.
    let broken = [&[0, 0, 0, 0, 2][..], &[0x12, 0x7f]].concat();
    let neighbours = [message(vec![logged(&tickets[0], 6)]), broken, message(vec![logged(&tickets[1], 0)])];
    assert_eq!(send(neighbours.concat()), ok);
    assert_eq!(ends(&slowlane, "counted"), 2.0);
    assert_eq!(slowlane.metric("slowlane_grpc_failures_total", "INTERNAL"), 1.0);
    // The end that is cut off is not read.
    let cut = message(vec![logged(&tickets[2], 6)]);
    assert_eq!(send(cut[..cut.len() - 1].to_vec()), ok);
    assert_eq!(ends(&slowlane, "counted"), 2.0);
    assert_eq!(send(message(["x", "", &tickets[1]].map(|ticket| logged(ticket, 6)).into())), ok);
    assert_eq!((ends(&slowlane, "refused"), ends(&slowlane, "late")), (2.0, 1.0));
    let large = u32::try_from(MESSAGE_BYTES_MAX + 1).unwrap().to_be_bytes();
    assert_eq!(send([&[0][..], &large].concat()), Some(StatusCode::ResourceExhausted.number()));
    assert_eq!(send(vec![1, 0, 0, 0, 0]), Some(StatusCode::Unimplemented.number()));
    assert_eq!(send(message(vec![logged(&tickets[2], 6)])), ok);
    assert_eq!(ends(&slowlane, "counted"), 3.0);
}
