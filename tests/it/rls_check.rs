//! `slowlane-check rls`: slowlane passes, and servers with a fault are found out.

use std::future::pending;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::Command;
use std::thread;

use bytes::Bytes;

use grpc::ratelimit::{Code, DescriptorStatus, RateLimitRequest, RateLimitResponse};
use grpc::{GrpcStatus, Method, StatusCode, decoded, framed, health, unframed};
use h2::RecvStream;
use h2::server::{Builder, SendResponse};
use http::{HeaderMap, Request, Response};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, copy, duplex, split};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::cli::Ran;
use crate::spoa_check::{PATIENT, lists_the_cases_of, names, ran_checker, server as raw};
use crate::support::checker::checker;
use crate::support::slowlane::Slowlane;
use crate::support::tls::Authority;
use crate::support::{free_port, own_address};

const POLICY: &[(&str, &str)] = &[("slo.map", "0 burst=10 rate=5/s max_delay=1s\n")];

fn checked(address: &str, arguments: &[&str]) -> Ran {
    ran_checker(&[&["rls", address], arguments].concat())
}

#[test]
fn slowlane_passes_every_case() {
    let at = own_address();
    let slowlane = Slowlane::with_config(POLICY, &format!("[grpc]\nlisten = [\"{at}\"]\n"));
    let Ran { code, out, problems } = checked(&at.to_string(), PATIENT);
    assert_eq!((code, problems), (0, vec![]), "{out}");
    for level in ["required", "advised"] {
        assert_eq!(names(&out, level, "fail"), [""; 0], "{out}");
        assert_eq!(names(&out, level, "skipped"), [""; 0], "{out}");
    }
    assert!(names(&out, "required", "pass").len() >= 20, "{out}");
    lists_the_cases_of("rls", &out);
    // It has decided about the domain and the entries of the command line.
    assert!(slowlane.metric("slowlane_verdicts_total", "slo=\"0\"") > 100.0);
}

#[test]
fn a_request_of_ones_own_is_checked_over_a_unix_socket() {
    let folder = tempfile::tempdir().unwrap();
    let address = format!("unix:{}", folder.path().join("grpc").display());
    let policy: &[(&str, &str)] = &[
        ("slo.map", "0 rate=unlimited\n2001 burst=1 rate=1/h law=token-bucket\n"),
        ("website.map", "a.example 2001\n"),
    ];
    let slowlane = Slowlane::with_config(policy, &format!("[grpc]\nlisten = [\"{address}\"]\n"));
    let own = ["--domain", "www", "--entry", "method=GET", "--entry", "host=a.example", "--json"];
    let Ran { code, out, .. } = checked(&address, &[&own[..], PATIENT].concat());
    assert_eq!(code, 0, "{out}");
    let card: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((card["ok"].clone(), card["address"].clone()), (true.into(), address.into()));
    let reasons: Vec<&str> =
        card["cases"].as_array().unwrap().iter().filter_map(|case| case["reason"].as_str()).collect();
    assert_eq!(reasons[..2], ["OK", "OVER_LIMIT, statuses: OVER_LIMIT"]);
    assert!(slowlane.metric("slowlane_verdicts_total", "slo=\"2001\",verdict=\"deny\"") > 100.0);
}

#[test]
fn a_server_with_tls_is_checked_and_one_of_another_ca_is_not() {
    // Certificates here are for this address.
    let at = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let (authority, other) = (Authority::new("servers"), Authority::new("others"));
    let client_ca = authority.cert();
    let config = format!(
        "[grpc]\nlisten = [\"{at}\"]\n[grpc.tls]\nclient_ca = \"{}\"\n{}",
        client_ca.display(),
        authority.pair("server").lines()
    );
    let slowlane = Slowlane::with_config(POLICY, &config);
    let pair = authority.pair("checker");
    let [ca, foreign, cert, key] =
        [client_ca, other.cert(), pair.cert, pair.key].map(|path| path.display().to_string());
    let shown = ["--cert", &cert, "--key", &key];
    let tried = |more: &[&str]| checked(&at.to_string(), &[PATIENT, more].concat());
    let Ran { code, out, problems } = tried(&[&["--tls", "--ca", &ca], &shown[..]].concat());
    assert_eq!((code, problems), (0, vec![]), "{out}");
    assert_eq!(names(&out, "required", "fail"), [""; 0], "{out}");
    assert!(slowlane.metric("slowlane_tls_handshakes_total", "listener=\"grpc\"") > 10.0);
    // Without TLS, with another CA, and without the certificate that the server requires.
    for arguments in [vec![], [&["--tls", "--ca", &foreign], &shown[..]].concat(), vec!["--tls", "--ca", &ca]]
    {
        assert_eq!(tried(&arguments).code, 1, "{arguments:?}");
    }
    for (arguments, code, reason) in [
        (&["--ca", &ca][..], 2, "--tls"),
        (&["--tls", "--cert", &cert], 2, "--key"),
        (&["--tls", "--ca", "/no/such/file"], 1, "/no/such/file: "),
        (&["--tls", "--ca", &key], 1, ": it has no certificate"),
    ] {
        let output = Command::new(checker()).args(["rls", &at.to_string()]).args(arguments).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{told}");
        assert!(told.contains(reason), "{reason}: {told}");
    }
}

/// A small server, correct but for one fault.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    None,
    NoStatuses,
    /// The overall code is OK, and the statuses are over the limit.
    CodesDisagree,
    /// Values are strings.
    Utf8,
    /// Hits are 31 bits.
    ShortHits,
    /// Messages have 4 KiB at most.
    ShortMessages,
    /// Messages that cannot be read are answered.
    ReadsAnything,
    /// Every error ends the connection.
    Closes,
    AnyMethod,
    /// Calls with a timeout are not answered.
    Late,
    /// Each connection answers 40 calls.
    Tired,
    /// A reset call ends the connection.
    Reset,
    NoPing,
    NoHealth,
}

/// Serves until the tests end.
pub fn server(fault: Fault) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    thread::spawn(move || {
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                // Without it, the trailers of an answer wait for the client's delayed ACK: longer than Envoy does.
                stream.set_nodelay(true).unwrap();
                match fault {
                    Fault::NoPing => drop(tokio::spawn(serve(without_pings(stream), fault))),
                    _ => drop(tokio::spawn(serve(stream, fault))),
                }
            }
        });
    });
    address
}

/// Serves a connection until it ends, or until a call ends it.
async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin, fault: Fault) {
    let mut builder = Builder::new();
    builder.initial_window_size(2 << 20).initial_connection_window_size(2 << 20);
    let Ok(mut connection) = builder.handshake(stream).await else { return };
    let (mut calls, mut accepted) = (JoinSet::new(), 0);
    loop {
        tokio::select! {
            call = connection.accept() => {
                let Some(Ok((request, respond))) = call else { return };
                accepted += 1;
                if fault != Fault::Tired || accepted <= 40 {
                    calls.spawn(answer(request, respond, fault));
                }
            }
            Some(goes_on) = calls.join_next() => if !goes_on.unwrap() { return },
        }
    }
}

/// Answers a call. Returns whether the connection goes on.
async fn answer(request: Request<RecvStream>, mut respond: SendResponse<Bytes>, fault: Fault) -> bool {
    let (head, mut stream) = request.into_parts();
    let mut body = Vec::new();
    while let Some(bytes) = stream.data().await {
        let Ok(bytes) = bytes else { return fault != Fault::Reset };
        body.extend_from_slice(&bytes);
    }
    if fault == Fault::Late && head.headers.contains_key("grpc-timeout") {
        pending().await
    }
    if head.headers["content-type"] != "application/grpc" {
        let _ = respond.send_response(Response::builder().status(415).body(()).unwrap(), true);
        return true;
    }
    let (body, status) = match message(head.uri.path(), &body.into(), fault) {
        Ok(body) => (body, StatusCode::Ok),
        Err(_) if fault == Fault::Closes => return false,
        Err(error) => (Vec::new(), error.code),
    };
    let response = Response::builder().header("content-type", "application/grpc").body(()).unwrap();
    if let Ok(mut stream) = respond.send_response(response, false) {
        let _ = stream.send_data(body.into(), false);
        let _ = stream.send_trailers(HeaderMap::from_iter([(
            "grpc-status".parse().unwrap(),
            u16::from(status.number()).into(),
        )]));
    }
    true
}

/// The body of an answer.
fn message(path: &str, body: &Bytes, fault: Fault) -> Result<Vec<u8>, GrpcStatus> {
    let error = |code| Err(GrpcStatus::new(code, ""));
    match Method::at(path) {
        Some(Method::Health) if fault != Fault::NoHealth => {
            return Ok(framed(&health::health(&decoded(&unframed(body)?)?, false)?));
        }
        Some(Method::ShouldRateLimit) => {}
        _ if fault == Fault::AnyMethod => {}
        _ => return error(StatusCode::Unimplemented),
    }
    let read = unframed(body).and_then(|message| decoded(&message));
    let request: RateLimitRequest = match fault {
        Fault::ReadsAnything => read.unwrap_or_default(),
        _ => read?,
    };
    let mut entries = request.descriptors.iter().flat_map(|descriptor| &descriptor.entries);
    if request.descriptors.is_empty() && fault != Fault::ReadsAnything
        || fault == Fault::Utf8 && entries.any(|entry| str::from_utf8(&entry.value).is_err())
        || fault == Fault::ShortHits && request.hits_addend > i32::MAX as u64
        || fault == Fault::ShortMessages && body.len() > 4 << 10
    {
        return error(StatusCode::InvalidArgument);
    }
    let code = if fault == Fault::CodesDisagree { Code::OverLimit } else { Code::Ok };
    let status = DescriptorStatus { code: code.into(), ..DescriptorStatus::default() };
    let statuses = if fault == Fault::NoStatuses { 0 } else { request.descriptors.len() };
    let statuses = vec![status; statuses];
    Ok(framed(&RateLimitResponse { overall_code: Code::Ok.into(), statuses, ..Default::default() }))
}

/// A connection on which the answers to PINGs are lost.
fn without_pings(stream: TcpStream) -> DuplexStream {
    let (near, far) = duplex(1 << 16);
    let (mut from_client, mut to_client) = stream.into_split();
    let (mut from_server, mut to_server) = split(far);
    tokio::spawn(async move { copy(&mut from_client, &mut to_server).await });
    tokio::spawn(async move {
        let mut head = [0; 9];
        while from_server.read_exact(&mut head).await.is_ok() {
            let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
            from_server.read_exact(&mut payload).await.unwrap();
            const PING: u8 = 6;
            if head[3] != PING {
                to_client.write_all(&[&head[..], &payload].concat()).await.unwrap();
            }
        }
    });
    near
}

#[test]
fn each_fault_fails_its_own_cases() {
    // Faults that are a missing answer take this long.
    const SHORT: &[&str] = &["--timeout", "2s"];
    let broken = ["message-broken", "message-cut", "encoding-unknown"];
    for (fault, arguments, expected) in [
        (Fault::None, PATIENT, &[][..]),
        (Fault::NoStatuses, PATIENT, &["statuses", "descriptors-10"]),
        (Fault::CodesDisagree, PATIENT, &["statuses", "descriptors-10"]),
        (Fault::Utf8, PATIENT, &["value-not-utf8"]),
        (Fault::ShortHits, PATIENT, &["hits-max"]),
        (Fault::ShortMessages, PATIENT, &["value-60k"]),
        (Fault::ReadsAnything, PATIENT, &broken),
        (
            Fault::Closes,
            PATIENT,
            &[
                "descriptors-none",
                "megabyte",
                "message-broken",
                "message-cut",
                "encoding-unknown",
                "method-unknown",
            ],
        ),
        (Fault::AnyMethod, PATIENT, &["method-unknown"]),
        (Fault::Late, PATIENT, &["deadline"]),
        (Fault::Tired, SHORT, &["calls-64"]),
        (Fault::Reset, PATIENT, &["cancelled"]),
        (Fault::NoPing, SHORT, &["ping"]),
        (Fault::NoHealth, PATIENT, &[]),
    ] {
        let Ran { code, out, problems } = checked(&server(fault), arguments);
        assert_eq!((code, problems), (i32::from(!expected.is_empty()), vec![]), "{fault:?}: {out}");
        assert_eq!(names(&out, "required", "fail"), expected, "{fault:?}: {out}");
        let advised: &[&str] = match fault {
            Fault::ShortMessages => &["entries-1000"],
            Fault::NoHealth => &["health", "health-service", "health-unknown"],
            Fault::Closes => &["health-unknown"],
            _ => &[],
        };
        assert_eq!(names(&out, "advised", "fail"), advised, "{fault:?}: {out}");
        assert_eq!(names(&out, "required", "skipped"), [""; 0], "{fault:?}: {out}");
    }
}

/// One wait, and no more: the first case fails, and the others are skipped.
#[test]
fn a_server_that_does_not_answer_fails() {
    let garbage = raw(|mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    });
    let silent = raw(|mut stream| {
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let closes = raw(drop);
    for (address, arguments, reason) in [
        (&garbage, PATIENT, "the call fails: "),
        (&silent, &["--timeout", "20ms"], "no answer in time"),
        (&closes, PATIENT, "the call fails: "),
        (&"127.0.0.1:1".to_owned(), &["--timeout", "10ms"], "cannot connect"),
    ] {
        let Ran { code, out, .. } = checked(address, arguments);
        assert_eq!(code, 1, "{out}");
        assert_eq!(names(&out, "required", "fail"), ["answer"], "{out}");
        assert_eq!(names(&out, "required", "pass"), [""; 0], "{out}");
        assert!(out.contains(reason), "{out}");
    }
}

#[test]
fn what_cannot_be_checked_is_a_usage_error() {
    for (arguments, words) in [
        (&[][..], "<ADDR>"),
        (&["9005"], "expected host:port"),
        (&["127.0.0.1:1", "--entry", "path"], "expected an entry, like remote_address=192.0.2.1"),
        (&["127.0.0.1:1", "--timeout", "1ms"], "expected a time from 10ms to 60s"),
    ] {
        let output = Command::new(checker()).arg("rls").args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(words), "{arguments:?}");
    }
}
