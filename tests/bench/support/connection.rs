//! Non-blocking connections without Nagle's algorithm, plain or TLS, for a loop over many of them.

use std::io::{self, Read, Write};
use std::net::{self, SocketAddr};
use std::sync::Arc;

use ::spop::{Frame, Kind};
use mio::net::TcpStream;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::programs::{spop, tls};

/// A connection of HAProxy.
pub enum Connection {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Connection {
    /// The socket, for a poll.
    pub fn socket(&mut self) -> &mut TcpStream {
        match self {
            Connection::Plain(stream) => stream,
            Connection::Tls(stream) => &mut stream.sock,
        }
    }
}

impl Read for Connection {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Connection::Plain(stream) => stream.read(bytes),
            Connection::Tls(stream) => stream.read(bytes),
        }
    }
}

impl Write for Connection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Connection::Plain(stream) => stream.write(bytes),
            Connection::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Connection::Plain(stream) => stream.flush(),
            Connection::Tls(stream) => stream.flush(),
        }
    }
}

pub fn open(server: SocketAddr) -> TcpStream {
    unblocked(connect(server))
}

/// A connection of HAProxy after its hello, with TLS if there is a client for it.
pub fn greeted(agent: SocketAddr, client: Option<&Arc<ClientConfig>>) -> Connection {
    match client {
        None => {
            let mut stream = connect(agent);
            greet(&mut stream);
            Connection::Plain(unblocked(stream))
        }
        Some(client) => {
            let mut secured = tls::connect(agent, client).unwrap();
            greet(&mut secured);
            let StreamOwned { conn, sock } = secured;
            Connection::Tls(Box::new(StreamOwned::new(conn, unblocked(sock))))
        }
    }
}

fn greet(stream: &mut (impl Read + Write)) {
    stream.write_all(&spop::hello()).unwrap();
    let mut answer = [0; 256];
    let count = stream.read(&mut answer).unwrap();
    let (frame, _) = Frame::cut(&answer[..count], 256).unwrap().expect("a whole AGENT-HELLO");
    assert_eq!(frame.head.kind, Kind::AGENT_HELLO);
}

fn connect(server: SocketAddr) -> net::TcpStream {
    let stream = net::TcpStream::connect(server).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

fn unblocked(stream: net::TcpStream) -> TcpStream {
    stream.set_nonblocking(true).unwrap();
    TcpStream::from_std(stream)
}
