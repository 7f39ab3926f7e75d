//! Peers that lie, break the protocol, or never read.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::support::slowlane::Slowlane;
use crate::support::{eventually, own_address};

fn slowlane() -> (Slowlane, SocketAddr) {
    let peers = own_address();
    let config = format!("[peers]\nlisten = [\"{peers}\"]\nname = \"slow\"\nallow = [\"lb1\"]\n");
    let files =
        [("slo.map", "0 rate=unlimited\n3001 burst=5 rate=1/m\n"), ("source.map", "192.0.2.0/24 3001\n")];
    (Slowlane::with_config(&files, &config), peers)
}

/// What slowlane answers to bytes until it closes, or says nothing for some time.
fn answer(peers: SocketAddr, said: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(peers).unwrap();
    stream.write_all(said).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}

const HELLO: &[u8] = b"HAProxyS 2.1\nslow\nlb1 1 1\n";

#[test]
fn names_and_versions_are_checked() {
    let (slowlane, peers) = slowlane();
    for (said, status) in [
        (&b"HAProxyS 2.1\nother\nlb1 1 1\n"[..], &b"503\n"[..]),
        (b"HAProxyS 2.1\nslow\nlb9 1 1\n", b"504\n"),
        (b"HAProxyS 3.0\nslow\nlb1 1 1\n", b"502\n"),
        (b"HAProxyS 2.1\nslow\n\x1b[2Jlb1 1 1\n", b"501\n"),
        (b"GET / HTTP/1.1\r\n\r\n", b"501\n"),
        (b"\x16\x03\x01\x02\x00", b"501\n"),
    ] {
        assert_eq!(answer(peers, said), status, "{said:?}");
    }
    assert_eq!(answer(peers, HELLO), b"200\n\0\0");
    eventually("refused ones are counted", || {
        (slowlane.metric("slowlane_peers_malformed_total", "") == 6.0).then_some(())
    });
}

#[test]
fn broken_messages_end_the_connection_with_a_reason() {
    let (slowlane, peers) = slowlane();
    for (said, fault) in [
        // An update without a table, an unknown class, and a column that no HAProxy has.
        (&b"\x0a\x80\x05\0\0\0\x01\x00"[..], &b"\x01\x00"[..]),
        (b"\x0b\x01", b"\x01\x00"),
        (b"\x0a\x82\x0c\x01\x01t\x06\x09\xf0\xf1\xfe\xfe\xfe\xfe\x00", b"\x01\x00"),
        // A body of 1 MiB.
        (b"\x0a\x80\xf0\xf1\xfe\x02", b"\x01\x01"),
    ] {
        let answer = answer(peers, &[HELLO, said].concat());
        assert_eq!(answer, [b"200\n\0\0", fault].concat(), "{said:?}");
    }
    eventually("they are counted", || {
        (slowlane.metric("slowlane_peers_malformed_total", "") == 4.0).then_some(())
    });
    assert_eq!(slowlane.metric("slowlane_peers_sessions", ""), 0.0);
    assert_eq!(slowlane.check("", &[("X-Slowlane-Source", "192.0.2.1")]).status, 204);
}

/// What slowlane says first to a peer, without waiting for more.
fn status(peers: SocketAddr, name: &str) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(peers).unwrap();
    stream.write_all(format!("HAProxyS 2.1\nslowlane\n{name} 1 1\n").as_bytes()).unwrap();
    let mut status = [0; 4];
    stream.read_exact(&mut status).unwrap();
    (stream, String::from_utf8_lossy(&status).trim().to_owned())
}

#[test]
fn names_that_come_and_go_keep_no_proxy_out_and_fill_no_log() {
    let peers = own_address();
    let config = format!("[peers]\nlisten = [\"{peers}\"]\n");
    let slowlane = Slowlane::with_config(&[("slo.map", "0 rate=unlimited\n")], &config);
    for number in 0..100 {
        assert_eq!(status(peers, &format!("stranger{number}")).1, "200");
    }
    let refused = (0..100).filter(|_| {
        let mut stream = TcpStream::connect(peers).unwrap();
        stream.write_all(b"HAProxyS 2.1\nother\nlb1 1 1\n").unwrap();
        let mut said = Vec::new();
        stream.read_to_end(&mut said).unwrap();
        said == b"503\n"
    });
    assert_eq!(refused.count(), 100);
    eventually("the strangers are gone", || {
        (slowlane.metric("slowlane_peers_sessions", "") == 0.0).then_some(())
    });
    let (_proxy, outcome) = status(peers, "lb1");
    assert_eq!(outcome, "200", "the names of others make room");
    let lines = slowlane.process.log().iter().filter(|line| line.contains("peer ")).count();
    assert!(lines < 60, "{lines} lines for 200 connections");
}

#[test]
fn a_second_connection_of_a_name_replaces_the_first() {
    let (_slowlane, peers) = slowlane();
    let mut first = TcpStream::connect(peers).unwrap();
    first.write_all(HELLO).unwrap();
    let mut begun = [0; 6];
    first.read_exact(&mut begun).unwrap();
    let mut second = TcpStream::connect(peers).unwrap();
    second.write_all(HELLO).unwrap();
    second.read_exact(&mut begun).unwrap();
    let mut rest = Vec::new();
    first.read_to_end(&mut rest).unwrap();
    second.write_all(b"\0\0").unwrap();
    let mut answer = [0; 2];
    second.read_exact(&mut answer).unwrap();
    assert_eq!(answer, *b"\0\x01");
}

/// A hundred thousand keys, and no byte is read of what is taught about them.
#[test]
fn a_peer_that_never_reads_is_let_go() {
    let (slowlane, peers) = slowlane();
    let mut stream = TcpStream::connect(peers).unwrap();
    stream.write_all(HELLO).unwrap();
    let mut said =
        b"\x0a\x82\x18\x01\x0fslowlane_limits\x06\x41\xf0\xf1\xfe\x0e\xf0\xe2\x03\x16\x04".to_vec();
    said[2] = (said.len() - 3) as u8;
    let mut pace =
        b"\x0a\x82\x00\x02\x0dslowlane_pace\x06\x41\xf0\xf1\xfe\x2e\xf0\x97\x1c\x16\x01\x17\x02".to_vec();
    pace[2] = (pace.len() - 3) as u8;
    said.extend_from_slice(&pace);
    said.extend_from_slice(b"\0\x01");
    for number in 0..200_000_u32 {
        let key = format!("192.0.2.{}", number % 256);
        let mut body = number.to_be_bytes().to_vec();
        body.push(key.len() as u8);
        body.extend_from_slice(key.as_bytes());
        body.extend_from_slice(&[0, (number % 200) as u8, 0]);
        said.extend_from_slice(&[10, 0x80, body.len() as u8]);
        said.extend_from_slice(&body);
    }
    // Slowlane reads on as long as its answers go out. Its own limits keep them few, so this may go through whole.
    stream.set_write_timeout(Some(Duration::from_secs(10))).unwrap();
    let _ = stream.write_all(&said);
    assert_eq!(slowlane.check("", &[("X-Slowlane-Source", "198.51.100.1")]).status, 204);
    assert!(slowlane.metric("slowlane_peers_updates_total", "") > 0.0);
    drop(stream);
    eventually("it is gone", || (slowlane.metric("slowlane_peers_sessions", "") == 0.0).then_some(()));
}
