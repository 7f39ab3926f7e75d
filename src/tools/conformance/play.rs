//! Plays the exchanges with a real agent, over sockets.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "it connects to an agent, and waits for it"
)]

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use crate::base::address::Address;
use crate::tools::conformance::card::{Card, Outcome, Row};
use crate::tools::conformance::case::{Case, Exchange, Judge, Turn, Writing};
use crate::tools::conformance::judges::acks::acks;
use crate::tools::conformance::setting::{Agreed, Setting};
use crate::tools::conformance::suite::exchanges;
use crate::tools::conformance::suite::script::{greeted, opening};
use crate::tools::conformance::transcript::{End, Transcript, Until};
use crate::wire::spop::AgentHello;

/// The pause before another attempt to connect: a supervisor may be restarting the agent.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// Between small writes, so that the agent reads them one by one.
const PIECE_PAUSE: Duration = Duration::from_millis(3);

/// An agent to examine.
#[derive(Clone, Debug)]
pub(crate) struct Agent {
    pub address: Address,
    /// The longest wait: for a connection, for a write, and for the answer to a turn.
    pub limit: Duration,
}

/// Plays every exchange.
pub(crate) fn examine(agent: &Agent, mut setting: Setting) -> Card {
    let mut bystander = Bystander::new(agent);
    let mut rows = Vec::new();
    for (exchange, number) in exchanges().zip(0..) {
        let outcomes = match setting.lacks(exchange.needs) {
            Some(reason) => exchange.cases.iter().map(|_| Outcome::Skipped(reason.into())).collect(),
            None => {
                let played = agent.play(exchange, &setting, &mut bystander);
                if number == 0 {
                    setting.agreed = played.agreed();
                }
                exchange.cases.iter().map(|case| played.outcome(case)).collect::<Vec<_>>()
            }
        };
        rows.extend(exchange.cases.iter().zip(outcomes).map(|(case, outcome)| Row { case, outcome }));
    }
    Card { rows }
}

/// What an exchange has brought.
struct Played {
    /// The transcripts of the connections, or the reason why there are none.
    transcripts: Result<Vec<Transcript>, String>,
    /// Whether others are served, after a hostile exchange.
    others: Result<(), String>,
}

impl Played {
    fn outcome(&self, case: &Case) -> Outcome {
        let judged = match case.judge {
            Judge::ServesOn => self.others.clone(),
            Judge::Of(judge) => {
                let transcripts = self.transcripts.as_ref().map_err(String::clone);
                transcripts.and_then(|transcripts| transcripts.iter().try_for_each(judge))
            }
        };
        judged.map_or_else(Outcome::Failed, |()| Outcome::Passed)
    }

    fn agreed(&self) -> Option<Agreed> {
        let first = self.transcripts.as_ref().ok()?.first()?;
        let hello = first.frames().ok()?.first()?.frame;
        Some(Agreed::of(&AgentHello::decode(hello).ok()?))
    }
}

impl Agent {
    fn play(&self, exchange: &Exchange, setting: &Setting, bystander: &mut Bystander<'_>) -> Played {
        let is_watched = exchange.is_hostile && setting.agreed.is_some();
        if is_watched {
            bystander.prepare(setting);
        }
        let lines = self.converse(exchange, setting);
        // Asked while the hostile connections are still open.
        let beside = if is_watched { bystander.is_served(setting) } else { Ok(()) };
        let transcripts = lines.map(|lines| lines.into_iter().map(Line::close).collect());
        let others = match exchange.is_hostile {
            true if is_watched => beside.and_then(|()| self.serves_a_newcomer(setting)),
            true => Err("the plain handshake fails".into()),
            false => Ok(()),
        };
        Played { transcripts, others }
    }

    /// Opens all connections, and plays each turn on every one of them.
    fn converse(&self, exchange: &Exchange, setting: &Setting) -> Result<Vec<Line>, String> {
        let lines = (0..exchange.connections).map(|_| self.connect());
        let mut lines = lines.collect::<Result<Vec<_>, _>>()?;
        for turn in (exchange.turns)(setting) {
            lines.iter_mut().for_each(|line| line.say(&turn, self.limit));
            let deadline = Instant::now() + self.limit;
            lines.iter_mut().for_each(|line| line.wait(turn.until, deadline));
        }
        Ok(lines)
    }

    fn serves_a_newcomer(&self, setting: &Setting) -> Result<(), String> {
        let newcomer = self.connect().and_then(|mut line| {
            greeted(setting.notify(1, 1), 1).iter().for_each(|turn| line.take(turn, self.limit));
            acks(&line.close())
        });
        newcomer.map_err(|reason| format!("afterwards a new connection is not served: {reason}"))
    }

    fn connect(&self) -> Result<Line, String> {
        let deadline = Instant::now() + self.limit;
        loop {
            let error = match Stream::connect(&self.address, left(deadline)) {
                Ok(stream) => return Ok(Line { stream, transcript: Transcript::default() }),
                Err(error) => error,
            };
            let is_restarting = matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::NotFound);
            if !is_restarting || left(deadline) <= RETRY_PAUSE {
                return Err(format!("cannot connect: {error}"));
            }
            thread::sleep(RETRY_PAUSE);
        }
    }
}

/// The time up to a moment, at least a millisecond: a socket takes no timeout of 0.
fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
}

/// A well-behaved connection beside the hostile ones.
struct Bystander<'a> {
    agent: &'a Agent,
    line: Option<Line>,
    asked: u64,
}

impl<'a> Bystander<'a> {
    fn new(agent: &'a Agent) -> Bystander<'a> {
        Bystander { agent, line: None, asked: 0 }
    }

    /// Makes sure that it is served before the exchange, so that a later failure is that of the exchange.
    ///
    /// An agent that has crashed gets some time to come back.
    fn prepare(&mut self, setting: &Setting) {
        let deadline = Instant::now() + self.agent.limit;
        while self.is_served(setting).is_err() && Instant::now() < deadline {
            thread::sleep(RETRY_PAUSE);
            self.line = self.agent.connect().ok();
            if let Some(line) = &mut self.line {
                line.take(&opening(), self.agent.limit);
            }
        }
    }

    fn is_served(&mut self, setting: &Setting) -> Result<(), String> {
        let line = self.line.as_mut().ok_or("another connection could not be opened before")?;
        self.asked += 1;
        line.transcript = Transcript::default();
        line.take(&Turn::new(setting.notify(self.asked, 1), Until::Frames(1)), self.agent.limit);
        acks(&line.transcript).map_err(|reason| format!("a connection beside it is disturbed: {reason}"))
    }
}

/// A connection to the agent.
struct Line {
    stream: Stream,
    transcript: Transcript,
}

impl Line {
    fn take(&mut self, turn: &Turn, limit: Duration) {
        self.say(turn, limit);
        self.wait(turn.until, Instant::now() + limit);
    }

    /// Sends the bytes of a turn, unless an earlier turn has failed.
    fn say(&mut self, turn: &Turn, limit: Duration) {
        if self.transcript.end != End::Open {
            return;
        }
        self.transcript.sent.extend_from_slice(&turn.bytes);
        let piece = match turn.writing {
            Writing::AtOnce => turn.bytes.len(),
            Writing::InPieces(bytes) => bytes,
        };
        for bytes in turn.bytes.chunks(piece.max(1)) {
            // An agent that has closed may have sent its reason before.
            if self.stream.send(bytes, limit).is_err() {
                return;
            }
            if turn.writing != Writing::AtOnce {
                thread::sleep(PIECE_PAUSE);
            }
        }
    }

    fn wait(&mut self, until: Until, deadline: Instant) {
        let mut bytes = [0; 16 << 10];
        while self.transcript.end == End::Open && !self.transcript.is_complete(until) {
            if Instant::now() >= deadline {
                self.transcript.end = End::Overdue;
                return;
            }
            match self.stream.receive(&mut bytes, left(deadline)) {
                Ok(0) => self.transcript.end = End::Closed,
                Ok(count) => self.transcript.received.extend_from_slice(&bytes[..count]),
                Err(error) => match error.kind() {
                    // The time is checked above.
                    ErrorKind::Interrupted | ErrorKind::WouldBlock | ErrorKind::TimedOut => {}
                    _ => self.transcript.end = End::Closed,
                },
            }
        }
    }

    fn close(self) -> Transcript {
        self.stream.close();
        self.transcript
    }
}

/// A socket of either kind.
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    fn connect(address: &Address, limit: Duration) -> io::Result<Stream> {
        match address {
            Address::Unix(path) => UnixStream::connect(path).map(Stream::Unix),
            Address::Tcp(text) => {
                let mut error = io::Error::new(ErrorKind::NotFound, "the name has no address");
                for address in text.to_socket_addrs()? {
                    match TcpStream::connect_timeout(&address, limit) {
                        Ok(stream) => {
                            stream.set_nodelay(true)?;
                            return Ok(Stream::Tcp(stream));
                        }
                        Err(failed) => error = failed,
                    }
                }
                Err(error)
            }
        }
    }

    fn send(&mut self, bytes: &[u8], limit: Duration) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => {
                stream.set_write_timeout(Some(limit))?;
                stream.write_all(bytes)
            }
            Stream::Unix(stream) => {
                stream.set_write_timeout(Some(limit))?;
                stream.write_all(bytes)
            }
        }
    }

    fn receive(&mut self, bytes: &mut [u8], limit: Duration) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => {
                stream.set_read_timeout(Some(limit))?;
                stream.read(bytes)
            }
            Stream::Unix(stream) => {
                stream.set_read_timeout(Some(limit))?;
                stream.read(bytes)
            }
        }
    }

    fn close(self) {
        // The agent may have closed before.
        let _ = match &self {
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Stream::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }
}
