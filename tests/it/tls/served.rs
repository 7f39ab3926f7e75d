//! Questions over TLS get the answers that they get without it.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::time::Duration;

use rustls::ProtocolVersion::{TLSv1_2, TLSv1_3};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, RootCertStore};

use super::{POLICY, Secured};
use crate::support::client::{self, Client};
use crate::support::slowlane::Slowlane;
use crate::support::spop::{Heard, Line, goodbye, hold, request};
use crate::support::tls::{Authority, connect, der, shown, tunnel};
use crate::support::{eventually, own_address};

#[test]
fn haproxy_and_nginx_are_answered_over_tls() {
    let secured = Secured::start("", "");
    let (slowlane, client) = (&secured.slowlane, secured.authority.client(None));
    let mut line = Line::greeted(tunnel(slowlane.spop, &client));
    assert_eq!(line.ask(1, "192.0.2.1", "slow.example").variable("verdict"), Some("pass"));
    let delayed = line.ask(2, "192.0.2.1", "slow.example");
    assert_eq!(delayed.variable("verdict"), Some("delay"));
    line.say(&hold(3, 50));
    assert_eq!(line.hear().variable("verdict"), Some("pass"));
    line.say(&goodbye());
    assert!(matches!(line.hear(), Heard::Disconnect { status: 0, .. }));
    assert_eq!(line.hear(), Heard::Closed);

    let mut check = Client::connect(tunnel(slowlane.http, &client));
    for _ in 0..3 {
        let answer = check.request("GET", "/check", &[("X-Slowlane-Source", "192.0.2.1")], "");
        assert_eq!((answer.status, answer.header("x-slowlane-verdict")), (204, Some("pass")));
    }
    assert_eq!(slowlane.metric("slowlane_tls_handshakes_total", ""), 2.0);
    // A tunnel of TLS is a connection like any other.
    let status = client::get(slowlane.admin, "/api/status", &[]).body;
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    assert_eq!(status["connections"]["http"], 1);
}

/// A batch of answers is longer than one record of TLS, which has 16 KB.
#[test]
fn a_long_batch_is_answered_whole() {
    const QUESTIONS: u64 = 2_000;
    let secured = Secured::start("", "");
    let mut line = Line::greeted(tunnel(secured.slowlane.spop, &secured.authority.client(None)));
    let questions: Vec<u8> = (0..QUESTIONS).flat_map(|id| request(id, "192.0.2.1", "free.example")).collect();
    let mut writer = line.again();
    let outcome = std::thread::spawn(move || writer.say(&questions));
    for id in 0..QUESTIONS {
        let Heard::Ack { stream_id, .. } = line.hear() else { panic!("no answer to {id}") };
        assert_eq!(stream_id, id);
    }
    outcome.join().unwrap();
}

#[test]
fn both_versions_of_tls_are_spoken_and_http_is_agreed_on() {
    let secured = Secured::start("", "");
    for (version, name) in [(&TLS12, TLSv1_2), (&TLS13, TLSv1_3)] {
        let mut roots = RootCertStore::empty();
        roots.add(der(&secured.authority.cert()).into()).unwrap();
        let mut client = ClientConfig::builder_with_protocol_versions(&[version])
            .with_root_certificates(roots)
            .with_no_client_auth();
        client.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let client = Arc::new(client);
        let http = connect(secured.slowlane.http, &client).unwrap();
        assert_eq!(http.conn.protocol_version(), Some(name));
        assert_eq!(http.conn.alpn_protocol(), Some(&b"http/1.1"[..]));
        let spop = connect(secured.slowlane.spop, &client).unwrap();
        assert_eq!((spop.conn.protocol_version(), spop.conn.alpn_protocol()), (Some(name), None));
    }
}

#[test]
fn unix_sockets_have_no_tls() {
    let secured = Secured::start("", "");
    let mut stream = std::os::unix::net::UnixStream::connect(secured.slowlane.socket("http")).unwrap();
    stream.write_all(b"GET /check HTTP/1.1\r\nHost: s\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
}

#[test]
fn the_admin_listener_speaks_tls_and_still_wants_its_token() {
    let authority = Authority::new("servers");
    let (pair, address) = (authority.pair("server"), own_address());
    let config = format!("[admin]\ntoken = \"0123456789abcdef\"\n[admin.tls]\n{}", pair.lines());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("slowlane.toml");
    std::fs::write(&path, config).unwrap();
    let mut process = crate::support::process::Process::start(
        std::process::Command::new(crate::support::slowlane::BINARY)
            .args(["run", "--spop", &own_address().to_string(), "--http", &own_address().to_string()])
            .args(["--admin", &address.to_string(), "--config", path.to_str().unwrap()]),
    );
    process.logged("admin on ");
    let admin = tunnel(address, &authority.client(None));
    assert_eq!(client::get(admin, "/healthz", &[]).status, 200);
    assert_eq!(client::get(admin, "/metrics", &[]).status, 401);
    let metrics = client::get(admin, "/metrics", &[("Authorization", "Bearer 0123456789abcdef")]);
    assert_eq!(metrics.status, 200);
    assert!(metrics.body.contains("slowlane_tls_refused{listener=\"admin\"} 0"), "{}", metrics.body);
}

#[test]
fn a_shutdown_lets_held_requests_go_over_tls() {
    let mut secured = Secured::start("", "");
    let mut line = Line::greeted(tunnel(secured.slowlane.spop, &secured.authority.client(None)));
    line.say(&hold(7, 30_000));
    eventually("the answer is held", || (secured.slowlane.metric("slowlane_holds", "") == 1.0).then_some(()));
    secured.slowlane.process.signal("TERM");
    assert_eq!(line.hear().variable("verdict"), Some("pass"));
    assert!(matches!(line.hear(), Heard::Disconnect { .. }));
    assert!(secured.slowlane.process.wait().success());
}

/// A TLS stream takes more than its socket: the wait for such a client is in the flush.
#[test]
fn a_client_that_asks_on_and_never_reads_is_closed() {
    let lines_of = |authority: &Authority| authority.pair("server").lines();
    let authority = Authority::new("servers");
    let lines = lines_of(&authority);
    let config = format!(
        "[spop]\ntimeout = \"1s\"\n[spop.tls]\n{lines}[http]\nidle_timeout = \"1s\"\n[http.tls]\n{lines}"
    );
    let slowlane = Slowlane::with_config(POLICY, &config);
    let client = authority.client(None);
    let check = b"GET /check HTTP/1.1\r\nHost: s\r\n\r\n".to_vec();
    let greeting = [crate::support::spop::hello(), request(1, "192.0.2.1", "free.example")].concat();
    for (address, first, question) in [
        (slowlane.http, check.clone(), check),
        (slowlane.spop, greeting, request(2, "192.0.2.1", "free.example")),
    ] {
        let mut secured = connect(address, &client).unwrap();
        secured.sock.set_write_timeout(Some(Duration::from_secs(60))).unwrap();
        secured.write_all(&first).unwrap();
        let questions = question.repeat(500);
        let closed = loop {
            if let Err(error) = secured.write_all(&questions) {
                break error;
            }
        };
        assert_ne!(closed.kind(), std::io::ErrorKind::WouldBlock, "{address} is not closed: {closed}");
        let _ = secured.sock.shutdown(Shutdown::Both);
    }
    eventually("no connection is left", || {
        (slowlane.metric("slowlane_connections", "listener=\"spop\"") == 0.0
            && slowlane.metric("slowlane_connections", "listener=\"http\"") == 0.0)
            .then_some(())
    });
}

#[test]
fn a_client_of_the_authority_is_served_and_asks_again_on_a_resumed_connection() {
    let clients = Authority::new("clients");
    let secured = Secured::for_clients_of(&clients, "");
    let own = clients.pair("haproxy");
    let client = secured.authority.client(Some(&own));
    for _ in 0..3 {
        let mut line = Line::greeted(tunnel(secured.slowlane.spop, &client));
        assert_eq!(line.ask(1, "192.0.2.1", "free.example").variable("verdict"), Some("pass"));
    }
    assert_eq!(shown(secured.slowlane.http, &client), der(&secured.pair.cert));
}
