//! Non-blocking connections without Nagle's algorithm, for a loop over many of them.

use std::io::{Read, Write};
use std::net::{self, SocketAddr};

use mio::net::TcpStream;
use slowlane::wire::spop::{Frame, Kind};

use super::programs::spop;

pub fn open(server: SocketAddr) -> TcpStream {
    unblocked(connect(server))
}

/// A connection of HAProxy after the handshake.
pub fn greeted(agent: SocketAddr) -> TcpStream {
    let mut stream = connect(agent);
    stream.write_all(&spop::hello()).unwrap();
    let mut answer = [0; 256];
    let count = stream.read(&mut answer).unwrap();
    let (frame, _) = Frame::cut(&answer[..count], 256).unwrap().expect("a whole AGENT-HELLO");
    assert_eq!(frame.head.kind, Kind::AgentHello);
    unblocked(stream)
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
