//! Peers that stall: silent ones, half a question, and many questions whose answers nobody reads.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use crate::support::slowlane::Slowlane;
use crate::support::spop::{hello, request};
use crate::{End, Shared, pause};

/// Peers of each kind.
const EACH: usize = 5;

const LOOK: Duration = Duration::from_millis(100);

/// The most that a peer sends at one look. Its questions cost work until the agent has no more room for answers.
const BYTES_MAX: usize = 16 * 1_024;

/// The least that the system gives. The agent's answers wait in its own memory sooner.
const RECEIVE_BUFFER_BYTES: usize = 4_096;

/// A peer. When the agent has closed its connection, it comes again.
struct Peer {
    agent: SocketAddr,
    /// It sends this first.
    first: Vec<u8>,
    /// Then this, again and again, without reading. Empty: it stalls, and reads.
    again: Vec<u8>,
    sent: usize,
    stream: Option<TcpStream>,
}

/// What a look at a peer found.
enum Found {
    Waiting,
    Closed,
}

/// Keeps stalled peers of every kind on all listeners until the end.
pub fn peers(slowlane: &Slowlane) -> impl FnOnce(&End, &Shared) + Send + use<> {
    let check = b"GET /check HTTP/1.1\r\nHost: agent\r\nX-Slowlane-Source: 203.0.113.9\r\n\r\n";
    let metrics = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let question = request(1, "203.0.113.9", "other.example");
    let kinds: [(SocketAddr, &[u8], &[u8]); 9] = [
        (slowlane.spop, b"", b""),
        (slowlane.spop, &hello()[..10], b""),
        (slowlane.spop, &hello(), &question),
        (slowlane.http, b"", b""),
        (slowlane.http, &check[..20], b""),
        (slowlane.http, b"", check),
        (slowlane.admin, b"", b""),
        (slowlane.admin, &metrics[..20], b""),
        (slowlane.admin, b"", metrics),
    ];
    let peer = |(agent, first, again): (SocketAddr, &[u8], &[u8])| {
        (0..EACH).map(move |_| Peer::new(agent, first.to_vec(), again.to_vec())).collect::<Vec<_>>()
    };
    let mut peers: Vec<Peer> = kinds.into_iter().flat_map(peer).collect();
    move |end, records| {
        while !end.has_come() {
            for peer in &mut peers {
                peer.look(records);
            }
            pause(LOOK, end);
        }
    }
}

impl Peer {
    fn new(agent: SocketAddr, first: Vec<u8>, again: Vec<u8>) -> Peer {
        Peer { agent, first, again, sent: 0, stream: None }
    }

    fn look(&mut self, records: &Shared) {
        let Some(stream) = &mut self.stream else {
            match self.connect() {
                Ok(stream) => self.stream = Some(stream),
                Err(_) if records.gaps.is_open() => {}
                Err(error) => records.fault("a listener takes no connection", error.to_string()),
            }
            return;
        };
        let found =
            if self.again.is_empty() { read(stream) } else { send(stream, &self.again, &mut self.sent) };
        if matches!(found, Found::Closed) {
            self.stream = None;
            let who = if self.again.is_empty() { "stalled peers" } else { "peers that never read" };
            records.count(&format!("{who} that came again"));
        }
    }

    fn connect(&mut self) -> std::io::Result<TcpStream> {
        self.sent = 0;
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.set_recv_buffer_size(RECEIVE_BUFFER_BYTES)?;
        socket.connect(&self.agent.into())?;
        let mut stream = TcpStream::from(socket);
        stream.write_all(&self.first)?;
        stream.set_nonblocking(true)?;
        Ok(stream)
    }
}

fn read(stream: &mut TcpStream) -> Found {
    match stream.read(&mut [0; 1_024]) {
        Ok(0) => Found::Closed,
        Ok(_) => Found::Waiting,
        Err(error) if error.kind() == ErrorKind::WouldBlock => Found::Waiting,
        Err(_) => Found::Closed,
    }
}

/// Sends as much as the connection takes. The bytes go on where they stopped, so the agent sees whole questions.
fn send(stream: &mut TcpStream, again: &[u8], sent: &mut usize) -> Found {
    let before = *sent;
    while *sent - before < BYTES_MAX {
        match stream.write(&again[*sent % again.len()..]) {
            Ok(bytes) => *sent += bytes,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Found::Waiting,
            Err(_) => return Found::Closed,
        }
    }
    Found::Waiting
}
