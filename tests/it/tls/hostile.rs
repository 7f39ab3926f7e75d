//! Clients that attack a listener with TLS: none of them keeps a place for long, and no proxy notices.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};

use super::Secured;
use crate::support::spop::{Line, hello};
use crate::support::tls::{Authority, NAME, connect, tunnel};
use crate::support::{PATIENCE, eventually};

/// Reads until the listener closes.
fn until_closed(mut stream: TcpStream) {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!("the listener does not close: {error}"),
    }
}

/// The first message of a real handshake.
fn client_hello(client: &Arc<ClientConfig>) -> Vec<u8> {
    let mut connection = ClientConnection::new(client.clone(), ServerName::try_from(NAME).unwrap()).unwrap();
    let mut bytes = Vec::new();
    connection.write_tls(&mut bytes).unwrap();
    bytes
}

fn is_served(address: SocketAddr, client: &Arc<ClientConfig>) {
    let mut line = Line::greeted(tunnel(address, client));
    assert_eq!(line.ask(1, "192.0.2.1", "free.example").variable("verdict"), Some("pass"));
}

#[test]
fn silence_and_single_bytes_end_at_the_timeout() {
    let secured = Secured::start("timeout = \"1s\"", "[admin]\n");
    let spop = secured.slowlane.spop;
    until_closed(TcpStream::connect(spop).unwrap());
    eventually("it is counted", || (secured.failures("timeout") == 1.0).then_some(()));
    // A byte each tenth of a second: the whole message would take half a minute.
    let mut slow = TcpStream::connect(spop).unwrap();
    let closed = client_hello(&secured.authority.client(None)).into_iter().find(|&byte| {
        std::thread::sleep(Duration::from_millis(100));
        slow.write_all(&[byte]).is_err()
    });
    assert!(closed.is_some(), "the whole message was taken");
    eventually("it is counted", || (secured.failures("timeout") == 2.0).then_some(()));
    is_served(spop, &secured.authority.client(None));
}

#[test]
fn what_is_no_tls_is_closed_at_once() {
    let secured = Secured::start("timeout = \"60s\"", "");
    let mut expected = 0.0;
    for bytes in
        [&hello()[..], b"GET /check HTTP/1.1\r\nHost: s\r\n\r\n", &[0xff; 600], b"\x16\x03\x01\xff\xff"]
    {
        let mut stream = TcpStream::connect(secured.slowlane.spop).unwrap();
        stream.write_all(bytes).unwrap();
        until_closed(stream);
        expected += 1.0;
        eventually("the failure is counted", || (secured.failures("garbage") == expected).then_some(()));
    }
    let log = secured.slowlane.process.log().join("\n");
    assert!(log.contains("[spop.tls] a handshake with 127.0.0.1 failed: "), "{log}");
    // A client that is closed again is no garbage.
    drop(TcpStream::connect(secured.slowlane.spop).unwrap());
    eventually("the failure is counted", || (secured.failures("closed") == 1.0).then_some(()));
}

#[test]
fn tls_1_1_is_refused() {
    let secured = Secured::start("", "");
    let offer = |version: &str| {
        let mut command = Command::new("openssl");
        command.args(["s_client", version, "-cipher", "DEFAULT@SECLEVEL=0", "-connect"]);
        let output =
            command.arg(secured.slowlane.spop.to_string()).stdin(std::process::Stdio::null()).output();
        output.unwrap().status.success()
    };
    assert!(!offer("-tls1_1") && offer("-tls1_2"));
    eventually("it is counted", || (secured.failures("incompatible") == 1.0).then_some(()));
}

#[test]
fn a_client_without_a_certificate_or_with_a_foreign_one_is_refused() {
    let (clients, strangers) = (Authority::new("clients"), Authority::new("clients"));
    let secured = Secured::for_clients_of(&clients, "");
    let (foreign, expired) = (strangers.pair("haproxy"), clients.expired_pair("old"));
    let known = secured.authority.client(Some(&clients.pair("haproxy")));
    for (number, (pair, reason)) in
        [(None, "no_certificate"), (Some(&foreign), "certificate"), (Some(&expired), "certificate")]
            .into_iter()
            .enumerate()
    {
        let client = secured.authority.client(pair);
        let mut rest = Vec::new();
        // With TLS 1.3 the client has finished its part before the server can refuse it.
        let outcome = connect(secured.slowlane.spop, &client).and_then(|mut secured| {
            secured.write_all(&hello())?;
            secured.read_to_end(&mut rest)
        });
        assert!(outcome.is_err() && rest.is_empty(), "{reason}: {outcome:?} {rest:?}");
        let expected = number.max(1) as f64;
        eventually(reason, || (secured.failures(reason) == expected).then_some(()));
        is_served(secured.slowlane.spop, &known);
    }
    assert_eq!(secured.slowlane.metric("slowlane_spop_frames_total", "type=\"hello\""), 3.0);
}

/// Half of the places stay for proxies that have finished their handshake, and a new proxy pushes the oldest out.
#[test]
fn a_thousand_half_open_handshakes_keep_no_proxy_out() {
    let secured = Secured::start("timeout = \"60s\"\nconnections_max = 100", "");
    let (spop, client) = (secured.slowlane.spop, secured.authority.client(None));
    let mut early = Line::greeted(tunnel(spop, &client));
    let begun = client_hello(&client);
    let half_open: Vec<TcpStream> = (0..1_000)
        .map(|number: usize| {
            let mut stream = TcpStream::connect(spop).unwrap();
            // Some send nothing, some a part, some a whole first message and then nothing.
            let _ = stream.write_all(&begun[..[0, 1, begun.len()][number % 3]]);
            stream
        })
        .collect();
    assert_eq!(early.ask(1, "192.0.2.1", "free.example").variable("verdict"), Some("pass"));
    is_served(spop, &client);
    eventually("the oldest are gone", || (secured.failures("crowded") >= 950.0).then_some(()));
    assert_eq!(early.ask(2, "192.0.2.1", "free.example").variable("verdict"), Some("pass"));
    assert!(secured.slowlane.metric("slowlane_connections", "listener=\"spop\"") <= 52.0);
    drop(half_open);
}

#[test]
fn a_shutdown_does_not_wait_for_handshakes() {
    let mut secured = Secured::start("timeout = \"60s\"", "");
    let half_open = TcpStream::connect(secured.slowlane.spop).unwrap();
    let is_open = || secured.slowlane.metric("slowlane_connections", "listener=\"spop\"") == 1.0;
    eventually("the connection is accepted", || is_open().then_some(()));
    secured.slowlane.process.signal("TERM");
    assert!(secured.slowlane.process.wait().success());
    let log = secured.slowlane.process.log().join("\n");
    assert!(!log.contains("did not close"), "{log}");
    drop(half_open);
}
