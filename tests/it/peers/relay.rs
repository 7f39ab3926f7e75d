//! A relay between HAProxy and slowlane, which drops messages of the peers protocol, or is late with them.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use spop::peers::Frame;

use crate::support::own_address;

/// Between two looks at messages that are held back.
const TICK: Duration = Duration::from_millis(20);

/// A message's class and type.
pub type Kind = (u8, u8);

pub const FINISHED: Kind = (0, 1);
/// With an id or without, with the rest of the entry's life or without.
pub const UPDATES: [Kind; 4] = [(10, 0x80), (10, 0x81), (10, 0x85), (10, 0x86)];
pub const ACK: Kind = (10, 0x84);

/// The sender of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Haproxy,
    Slowlane,
}

/// The fate of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Passes,
    Dropped,
    /// Those after it overtake it.
    Late(Duration),
}

/// A message that has come, by the number of its connection, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub connection: usize,
    pub from: Side,
    pub kind: Kind,
}

/// The faults of a relay.
pub struct Faults {
    /// Bytes that HAProxy reads before the first message of slowlane.
    pub early: &'static [u8],
    pub fate: fn(Seen) -> Fate,
}

/// A relay. It listens until the test ends.
pub struct Relay {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    faults: Faults,
    seen: Mutex<Vec<Seen>>,
    /// Both streams of each connection.
    streams: Mutex<Vec<[TcpStream; 2]>>,
}

impl Relay {
    /// Relays connections to this address.
    pub fn start(to: SocketAddr, faults: Faults) -> Relay {
        let listener = TcpListener::bind(own_address()).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared { faults, seen: Mutex::default(), streams: Mutex::default() });
        let relay = Relay { address, shared: shared.clone() };
        thread::spawn(move || {
            for haproxy in listener.incoming().flatten() {
                // A slowlane that is gone refuses. HAProxy then dials again.
                let Ok(slowlane) = TcpStream::connect(to) else { continue };
                let number = {
                    let mut streams = shared.streams.lock().unwrap();
                    streams.push([&haproxy, &slowlane].map(|stream| stream.try_clone().unwrap()));
                    streams.len() - 1
                };
                let ways = [
                    (Side::Haproxy, haproxy.try_clone().unwrap(), slowlane.try_clone().unwrap()),
                    (Side::Slowlane, slowlane, haproxy),
                ];
                for (from, source, target) in ways {
                    let shared = shared.clone();
                    thread::spawn(move || {
                        let _ = shared.pass(number, from, &source, &target);
                        close([source, target]);
                    });
                }
            }
        });
        relay
    }

    /// The messages of this kind that have come from a side.
    pub fn count(&self, connection: usize, from: Side, kind: Kind) -> usize {
        let seen = self.shared.seen.lock().unwrap();
        seen.iter().filter(|seen| **seen == Seen { connection, from, kind }).count()
    }

    /// The connections so far.
    pub fn connections(&self) -> usize {
        self.shared.streams.lock().unwrap().len()
    }

    /// Ends all connections.
    pub fn cut(&self) {
        for streams in &*self.shared.streams.lock().unwrap() {
            close(streams.each_ref().map(|stream| stream.try_clone().unwrap()));
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.cut();
    }
}

impl Shared {
    /// Passes on the messages of one side until the connection ends.
    fn pass(
        &self,
        connection: usize,
        from: Side,
        source: &TcpStream,
        mut target: &TcpStream,
    ) -> io::Result<()> {
        let lines = if from == Side::Haproxy { 3 } else { 1 };
        for _ in 0..lines {
            target.write_all(&line(source)?)?;
        }
        if from == Side::Slowlane {
            target.write_all(self.faults.early)?;
        }
        source.set_read_timeout(Some(TICK))?;
        let (mut unread, mut read) = (Vec::new(), [0; 4_096]);
        let mut held: VecDeque<(Instant, Vec<u8>)> = VecDeque::new();
        loop {
            while let Some((frame, length)) = Frame::cut(&unread).map_err(io::Error::other)? {
                let seen = Seen { connection, from, kind: (frame.class, frame.kind) };
                match (self.faults.fate)(seen) {
                    Fate::Passes => target.write_all(&unread[..length])?,
                    Fate::Dropped => {}
                    Fate::Late(by) => held.push_back((Instant::now() + by, unread[..length].to_vec())),
                }
                self.seen.lock().unwrap().push(seen);
                unread.drain(..length);
            }
            while held.front().is_some_and(|(due, _)| *due <= Instant::now()) {
                let (_, bytes) = held.pop_front().expect("it was just seen");
                target.write_all(&bytes)?;
            }
            match (&mut &*source).read(&mut read) {
                Ok(0) => return Ok(()),
                Ok(length) => unread.extend_from_slice(&read[..length]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// A line of the handshake, with its end.
fn line(mut source: &TcpStream) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    while line.last() != Some(&b'\n') {
        let mut byte = [0];
        source.read_exact(&mut byte)?;
        line.push(byte[0]);
    }
    Ok(line)
}

fn close(streams: [TcpStream; 2]) {
    for stream in streams {
        let _ = stream.shutdown(Shutdown::Both);
    }
}
