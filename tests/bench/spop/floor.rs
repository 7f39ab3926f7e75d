//! The floor: the least that an agent can do. It finds the ids of each NOTIFY and answers a constant.

use std::io::{ErrorKind, Read, Write};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use slowlane::spop::{Ack, Connection, Data, Frame, Kind, Scope};

/// Makes this binary the floor agent.
pub const ARGUMENT: &str = "--floor";

const LISTENER: Token = Token(usize::MAX);

struct Line {
    stream: TcpStream,
    protocol: Connection,
    unread: Vec<u8>,
}

pub fn run() {
    let mut poll = Poll::new().unwrap();
    let mut listener = TcpListener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    eprintln!("SPOP on {}", listener.local_addr().unwrap());
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE).unwrap();
    let (mut lines, mut events, mut out) = (Vec::new(), Events::with_capacity(256), Vec::new());
    loop {
        poll.poll(&mut events, None).unwrap();
        for event in &events {
            if event.token() == LISTENER {
                while let Ok((mut stream, _)) = listener.accept() {
                    stream.set_nodelay(true).unwrap();
                    let token = Token(lines.len());
                    poll.registry().register(&mut stream, token, Interest::READABLE).unwrap();
                    lines.push(Some(Line { stream, protocol: Connection::new(65_536), unread: Vec::new() }));
                }
            } else {
                let line = &mut lines[event.token().0];
                if line.as_mut().is_some_and(|line: &mut Line| !line.serve(&mut out)) {
                    *line = None;
                }
            }
        }
    }
}

impl Line {
    /// Reads until there is nothing more, answering each time in one write. False: it is closed.
    fn serve(&mut self, out: &mut Vec<u8>) -> bool {
        let mut bytes = [0; 16 * 1024];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => return false,
                Ok(count) => self.unread.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(_) => return false,
            }
            let mut used = 0;
            while let Some((frame, length)) = Frame::cut(&self.unread[used..], 65_536).unwrap() {
                used += length;
                match frame.head.kind {
                    Kind::Notify => Ack::begin(out, frame.head.stream_id, frame.head.frame_id)
                        .set_var(Scope::Txn, b"verdict", Data::Str(b"pass"))
                        .finish(),
                    _ => drop(self.protocol.receive(frame, out)),
                }
            }
            self.unread.drain(..used);
            self.stream.write_all(out).unwrap();
            out.clear();
        }
    }
}
