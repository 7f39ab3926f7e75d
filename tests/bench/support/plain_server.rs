//! A minimal server: one thread that reads, answers, and writes all answers in one write.

use std::io::{self, ErrorKind, Read, Write};

use mio::event::Source;
use mio::net::{TcpListener, UnixListener};
use mio::{Events, Interest, Poll, Token};

const LISTENER: Token = Token(usize::MAX);

/// Serves at `host:port` or `unix:/path`, and reports its address on standard error.
///
/// Each connection has its own `answer`. It takes the unused bytes, appends answers, and returns the number of bytes used.
pub fn serve<A>(protocol: &str, at: &str, answer: impl FnMut() -> A)
where
    A: FnMut(&[u8], &mut Vec<u8>) -> usize,
{
    match at.strip_prefix("unix:") {
        Some(path) => {
            let listener = UnixListener::bind(path).unwrap();
            eprintln!("{protocol} on {at}");
            accept(listener, |listener| Ok(listener.accept()?.0), answer);
        }
        None => {
            let listener = TcpListener::bind(at.parse().unwrap()).unwrap();
            eprintln!("{protocol} on {}", listener.local_addr().unwrap());
            let stream = |listener: &TcpListener| {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                Ok(stream)
            };
            accept(listener, stream, answer);
        }
    }
}

fn accept<L: Source, S: Source + Read + Write, A>(
    mut listener: L,
    stream: impl Fn(&L) -> io::Result<S>,
    mut answer: impl FnMut() -> A,
) where
    A: FnMut(&[u8], &mut Vec<u8>) -> usize,
{
    let mut poll = Poll::new().unwrap();
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE).unwrap();
    let (mut lines, mut events, mut out) = (Vec::new(), Events::with_capacity(256), Vec::new());
    loop {
        poll.poll(&mut events, None).unwrap();
        for event in &events {
            if event.token() == LISTENER {
                while let Ok(mut stream) = stream(&listener) {
                    let token = Token(lines.len());
                    poll.registry().register(&mut stream, token, Interest::READABLE).unwrap();
                    lines.push(Some(Line { stream, unread: Vec::new(), answer: answer() }));
                }
            } else {
                let line = &mut lines[event.token().0];
                if line.as_mut().is_some_and(|line| !line.serve(&mut out)) {
                    *line = None;
                }
            }
        }
    }
}

struct Line<S, A> {
    stream: S,
    unread: Vec<u8>,
    answer: A,
}

impl<S: Read + Write, A: FnMut(&[u8], &mut Vec<u8>) -> usize> Line<S, A> {
    /// Reads all available bytes and answers each read in one write; false if the connection is closed.
    fn serve(&mut self, out: &mut Vec<u8>) -> bool {
        let mut bytes = [0; 16 * 1024];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => return false,
                Ok(count) => self.unread.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(_) => return false,
            }
            let used = (self.answer)(&self.unread, out);
            self.unread.drain(..used);
            // A few hundred bytes always fit the buffer of the socket.
            let written = self.stream.write_all(out);
            out.clear();
            if written.is_err() {
                return false;
            }
        }
    }
}
