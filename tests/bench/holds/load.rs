//! The load: connections of HAProxy that ask for holds at a constant rate and measure each answer.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ::spop::{Ack, Action, Data, Frame, Kind};
use mio::{Events, Interest, Poll, Token};
use rustix::process::{Resource, getrlimit, setrlimit};

use crate::support::connection::{self, Connection};
use crate::support::programs::spop;

/// The rate of questions, and later of answers.
pub const PER_SECOND: f64 = 20_000.0;

/// The time between the last question and the first answer that is due.
pub const DUE_AFTER: Duration = Duration::from_secs(1);

/// The longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// The longest wait between two checks for questions to send.
const TICK: Duration = Duration::from_millis(1);

/// Every connection needs a file descriptor.
pub fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).expect("every process may raise its limit so far");
}

#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub answers: usize,
    pub connections: usize,
}

pub struct Line {
    stream: Connection,
    unread: Vec<u8>,
    /// The due time of each stream-id; `None` without a pending question.
    due: Vec<Option<Instant>>,
}

impl Load {
    pub fn connect(self, agent: SocketAddr) -> Vec<Line> {
        (0..self.connections).map(|_| Line::open(agent)).collect()
    }

    /// The lateness of each answer in milliseconds, sorted. `all_held` is called between the last question and the first
    /// due answer.
    pub fn run(self, lines: &mut [Line], time: Duration, is_held: bool, all_held: impl FnOnce()) -> Vec<f64> {
        let mut poll = Poll::new().unwrap();
        for (number, line) in lines.iter_mut().enumerate() {
            poll.registry().register(line.stream.socket(), Token(number), Interest::READABLE).unwrap();
        }
        let mut events = Events::with_capacity(1024);
        let mut rng = fastrand::Rng::with_seed(7);
        let (mut late_ms, mut asked, mut all_held) = (Vec::new(), 0, Some(all_held).filter(|_| is_held));
        let started = Instant::now();
        while late_ms.len() < self.answers {
            let wanted = (started.elapsed().as_secs_f64() * PER_SECOND) as usize;
            while asked < wanted.min(self.answers) {
                let due = started + time + DUE_AFTER + time.mul_f64(rng.f64());
                lines[asked % self.connections].ask(is_held.then_some(due));
                asked += 1;
            }
            if asked == self.answers
                && let Some(all_held) = all_held.take()
            {
                all_held();
            }
            poll.poll(&mut events, Some(TICK)).unwrap();
            for event in &events {
                lines[event.token().0].turn(&mut late_ms);
            }
            assert!(started.elapsed() < time * 2 + DUE_AFTER + PATIENCE, "answers are missing");
        }
        late_ms.sort_by(f64::total_cmp);
        late_ms
    }
}

impl Line {
    /// Connects and greets.
    fn open(agent: SocketAddr) -> Line {
        Line { stream: connection::greeted(agent, None), unread: Vec::new(), due: Vec::new() }
    }

    /// Asks for an answer at about `due`, to the millisecond, or at once.
    fn ask(&mut self, due: Option<Instant>) {
        let now = Instant::now();
        let delay_ms = due.map_or(0, |due| due.saturating_duration_since(now).as_millis() as u64);
        let bytes = spop::hold(self.due.len() as u64, delay_ms as i64);
        self.due.push(Some(now + Duration::from_millis(delay_ms)));
        // The pending questions always fit the buffer of the socket.
        self.stream.write_all(&bytes).unwrap();
    }

    /// Reads all available answers.
    fn turn(&mut self, late_ms: &mut Vec<f64>) {
        let mut bytes = [0; 16 * 1024];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => panic!("the agent has closed a connection"),
                Ok(count) => self.unread.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => panic!("{error}"),
            }
            let now = Instant::now();
            let mut used = 0;
            while let Some((frame, length)) = Frame::cut(&self.unread[used..], 16_380).unwrap() {
                used += length;
                let due = self.due[checked(frame)].take().expect("an ACK to a NOTIFY that is in flight");
                assert!(now >= due, "an answer came {:?} before its time", due - now);
                late_ms.push((now - due).as_secs_f64() * 1_000.0);
            }
            self.unread.drain(..used);
        }
    }
}

/// The stream-id of an ACK that lets a request pass.
fn checked(frame: Frame<'_>) -> usize {
    assert_eq!(frame.head.kind, Kind::ACK);
    let ack = Ack::decode(frame).unwrap();
    let is_pass =
        |action| matches!(action, Ok(Action::SetVar { name: b"verdict", value: Data::Str(b"pass"), .. }));
    assert!(ack.actions().next().is_some_and(is_pass), "an ACK that does not pass");
    ack.stream_id as usize
}
