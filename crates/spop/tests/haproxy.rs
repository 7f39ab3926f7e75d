//! The examples, with a real HAProxy.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "it runs programs")]

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

#[path = "../examples/agent.rs"]
mod agent;
#[path = "../examples/peer.rs"]
mod peer;

/// HAProxy, ended when it is dropped.
struct Haproxy {
    child: Child,
    address: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Drop for Haproxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts HAProxy with a frontend, its rules and further sections. `@folder` stands for the folder of its files.
fn haproxy(rules: &str, sections: &str, files: &[(&str, &str)]) -> Haproxy {
    let folder = tempfile::tempdir().unwrap();
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let defaults = "defaults\n mode http\n timeout client 5s\n timeout server 5s\n timeout connect 5s\n";
    let config = format!("{defaults}frontend web\n bind {address}\n{rules}\n{sections}\n");
    let config = config.replace("@folder", folder.path().to_str().unwrap());
    for (name, text) in files.iter().copied().chain([("haproxy.cfg", config.as_str())]) {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let mut command = Command::new("haproxy");
    command.args(["-db", "-L", "haproxy", "-f"]).arg(folder.path().join("haproxy.cfg"));
    let child = command.spawn().expect("haproxy is installed");
    Haproxy { child, address, _folder: folder }
}

impl Haproxy {
    /// The whole answer to a request, as soon as HAProxy listens.
    fn get(&mut self) -> String {
        let mut stream = (0..500)
            .find_map(|_| {
                assert!(self.child.try_wait().unwrap().is_none(), "HAProxy has ended");
                TcpStream::connect(self.address).map_err(|_| thread::sleep(Duration::from_millis(20))).ok()
            })
            .expect("HAProxy listens");
        stream.write_all(b"GET / HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

#[test]
fn an_agent_sets_a_variable_of_haproxy() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let agent = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(|| agent::serve(stream).unwrap_or_else(|error| eprintln!("{error}")));
        }
    });
    let spoe = "[counter]\nspoe-agent counter\n messages count\n option var-prefix counter\n\
        timeout processing 2s\n timeout hello 2s\n timeout idle 5s\n use-backend agents\n\
        spoe-message count\n event on-frontend-http-request\n";
    let rules = " filter spoe engine counter config @folder/spoe.conf\n\
        http-request return status 200 hdr count %[var(txn.counter.count)]";
    let agents = format!("backend agents\n mode tcp\n server agent {agent}");
    let mut haproxy = haproxy(rules, &agents, &[("spoe.conf", spoe)]);
    for count in 1..=3 {
        let answer = haproxy.get();
        assert!(answer.contains(&format!("\r\ncount: {count}\r\n")), "{answer}");
    }
}

#[test]
fn a_peer_is_told_the_entries_of_a_stick_table() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let peer = listener.local_addr().unwrap();
    let (seen, keys) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let seen = seen.clone();
            let print = move |table: &str, key: &[u8]| drop(seen.send((table.to_owned(), key.to_vec())));
            thread::spawn(move || peer::listen(stream, print).unwrap_or_else(|error| eprintln!("{error}")));
        }
    });
    let own = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let rules = " http-request track-sc0 hdr(host) table hosts\n http-request return status 200";
    let table = format!(
        "backend hosts\n stick-table type string len 64 size 100 expire 1m store http_req_cnt peers friends\n\
         peers friends\n peer haproxy {own}\n peer other {peer}"
    );
    let mut haproxy = haproxy(rules, &table, &[]);
    assert!(haproxy.get().starts_with("HTTP/1.1 200"));
    let (table, key) = keys.recv_timeout(Duration::from_secs(20)).expect("an entry");
    assert_eq!((table.as_str(), key.as_slice()), ("hosts", &b"shop.example"[..]));
}
