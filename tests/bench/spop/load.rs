//! The load: HAProxy's side of many connections, each with a number of NOTIFYs in flight.

use std::io::{ErrorKind, Read, Write};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use slowlane::spop::{Ack, Action, Data, Frame, HaproxyHello, Kind, Notify};

use crate::agent::{Agent, KEYS};

/// What is measured of one run.
#[derive(Clone, Debug)]
pub struct Figures {
    pub per_second: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub cpu_us: f64,
}

#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub connections: usize,
    pub in_flight: usize,
}

/// The part of a run before it counts.
const WARM_UP: Duration = Duration::from_millis(500);

struct Line {
    stream: TcpStream,
    unread: Vec<u8>,
    out: Vec<u8>,
    /// When each stream-id was last used; none while it is free.
    asked: Vec<Option<Instant>>,
}

impl Load {
    pub fn run(self, agent: &Agent, time: Duration) -> Figures {
        let mut poll = Poll::new().unwrap();
        let mut lines: Vec<Line> = (0..self.connections).map(|_| Line::open(agent, self.in_flight)).collect();
        for (number, line) in lines.iter_mut().enumerate() {
            poll.registry().register(&mut line.stream, Token(number), Interest::READABLE).unwrap();
        }
        let mut run = Run { dice: fastrand::Rng::with_seed(7), latencies: Vec::new() };
        for line in &mut lines {
            (0..self.in_flight).for_each(|id| line.ask(id, &mut run));
            line.send();
        }
        let mut events = Events::with_capacity(256);
        let started = Instant::now();
        let (mut counting, mut cpu_ns) = (None, 0);
        while started.elapsed() < WARM_UP + time {
            if counting.is_none() && started.elapsed() >= WARM_UP {
                (counting, cpu_ns) = (Some(Instant::now()), agent.cpu_ns());
                run.latencies.clear();
            }
            poll.poll(&mut events, Some(Duration::from_secs(5))).unwrap();
            assert!(!events.is_empty(), "{} does not answer", agent.name);
            for event in &events {
                lines[event.token().0].turn(&mut run);
            }
        }
        let cpu_ns = agent.cpu_ns() - cpu_ns;
        run.figures(counting.unwrap().elapsed(), cpu_ns)
    }
}

struct Run {
    dice: fastrand::Rng,
    latencies: Vec<u32>,
}

impl Run {
    fn figures(mut self, time: Duration, cpu_ns: u64) -> Figures {
        self.latencies.sort_unstable();
        let count = self.latencies.len();
        let percentile = |percent: usize| f64::from(self.latencies[count * percent / 100]) / 1_000.0;
        Figures {
            per_second: count as f64 / time.as_secs_f64(),
            p50_us: percentile(50),
            p99_us: percentile(99),
            cpu_us: cpu_ns as f64 / 1_000.0 / count as f64,
        }
    }
}

impl Line {
    /// Connects and greets.
    fn open(agent: &Agent, in_flight: usize) -> Line {
        let mut stream = std::net::TcpStream::connect(agent.address).unwrap();
        stream.set_nodelay(true).unwrap();
        let hello = HaproxyHello {
            supported_versions: b"2.0",
            frame_bytes_max: 16_380,
            capabilities: b"pipelining",
            engine_id: None,
            healthcheck: false,
        };
        let mut bytes = Vec::new();
        hello.encode(&mut bytes);
        stream.write_all(&bytes).unwrap();
        let mut answer = [0; 256];
        let count = stream.read(&mut answer).unwrap();
        let (frame, _) = Frame::cut(&answer[..count], 256).unwrap().expect("a whole AGENT-HELLO");
        assert_eq!(frame.head.kind, Kind::AgentHello);
        stream.set_nonblocking(true).unwrap();
        let stream = TcpStream::from_std(stream);
        Line { stream, unread: Vec::new(), out: Vec::new(), asked: vec![None; in_flight] }
    }

    fn ask(&mut self, id: usize, run: &mut Run) {
        let source = Ipv4Addr::from_bits(0x0a00_0000 + run.dice.u32(0..KEYS));
        let arguments: [(&[u8], Data); 4] = [
            (b"source", Data::Ipv4(source)),
            (b"website", Data::Str(b"www.shop.example")),
            (b"owner", Data::Str(b"acme")),
            (b"method", Data::Str(b"GET")),
        ];
        Notify::begin(&mut self.out, id as u64, 1).message(b"request", &arguments).finish();
        self.asked[id] = Some(Instant::now());
    }

    /// Takes every answer that is there, and asks again for each.
    fn turn(&mut self, run: &mut Run) {
        let mut bytes = [0; 16 * 1024];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => panic!("the agent has closed a connection"),
                Ok(count) => self.unread.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => panic!("{error}"),
            }
            let unread = std::mem::take(&mut self.unread);
            let mut used = 0;
            while let Some((frame, length)) = Frame::cut(&unread[used..], 16_380).unwrap() {
                used += length;
                let id = checked(frame);
                let asked = self.asked[id].take().expect("an ACK to a NOTIFY that is in flight");
                run.latencies.push(u32::try_from(asked.elapsed().as_nanos()).unwrap_or(u32::MAX));
                self.ask(id, run);
            }
            self.unread = unread;
            self.unread.drain(..used);
            self.send();
        }
    }

    fn send(&mut self) {
        // A few hundred bytes a turn always fit into the socket's buffer.
        self.stream.write_all(&self.out).unwrap();
        self.out.clear();
    }
}

/// The stream-id of an ACK that sets a verdict.
fn checked(frame: Frame<'_>) -> usize {
    assert_eq!(frame.head.kind, Kind::Ack);
    let ack = Ack::decode(frame).unwrap();
    let is_verdict = |action| matches!(action, Ok(Action::SetVar { name: b"verdict", .. }));
    assert!(ack.actions().next().is_some_and(is_verdict), "an ACK without a verdict");
    ack.stream_id as usize
}
