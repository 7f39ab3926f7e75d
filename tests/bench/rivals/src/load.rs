//! The load: connections in a closed loop, each with a number of questions in flight.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{self, SocketAddr};
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use crate::codec::Codec;
use crate::support::histogram::Histogram;
use crate::support::usage;
use crate::support::{Key, Limit};

/// The next key to ask for; none: stop.
pub type Keys<'k> = &'k mut dyn FnMut(Instant) -> Option<Key>;

/// Counts answers from its start.
pub struct Meter {
    process: u32,
    started: Instant,
    cpu_ns: u64,
    waited_ns: u64,
    latencies: Histogram,
}

/// Requests per second, the CPU of each in µs, the 99th percentile of the latency in µs, and the part of the time in which
/// the server waited for its core.
pub type Figures = [f64; 4];

impl Meter {
    pub fn start(process: u32) -> Meter {
        let (cpu_ns, waited_ns) = (usage::cpu_ns(process), usage::waited_ns(process));
        Meter { process, started: Instant::now(), cpu_ns, waited_ns, latencies: Histogram::new() }
    }

    pub fn add(&mut self, latency: Duration) {
        self.latencies.add(latency.as_nanos() as u64);
    }

    pub fn figures(&self) -> Figures {
        let cpu_ns = usage::cpu_ns(self.process) - self.cpu_ns;
        let waited_ns = usage::waited_ns(self.process) - self.waited_ns;
        let (time, count) = (self.started.elapsed().as_secs_f64(), self.latencies.count() as f64);
        let p99_us = self.latencies.percentile_ns(99.0) as f64 / 1e3;
        [count / time, cpu_ns as f64 / 1e3 / count, p99_us, waited_ns as f64 / 1e9 / time]
    }
}

/// A server under load.
#[derive(Clone, Copy)]
pub struct Target {
    pub process: u32,
    pub address: SocketAddr,
    pub codec: Codec,
    pub limit: Limit,
}

impl Target {
    /// Asks for one key after the other, as long as there are any. All must be admitted.
    pub fn load(self, connections: usize, in_flight: usize, keys: Keys) -> Figures {
        let mut poll = Poll::new().unwrap();
        let mut lines: Vec<Line> = (0..connections).map(|_| Line::open(self)).collect();
        let mut run = Run { target: self, keys, meter: Meter::start(self.process), waiting: 0 };
        for (number, line) in lines.iter_mut().enumerate() {
            poll.registry().register(&mut line.stream, Token(number), Interest::READABLE).unwrap();
            (0..in_flight).for_each(|_| line.ask(&mut run));
            line.send();
        }
        let mut events = Events::with_capacity(256);
        while run.waiting > 0 {
            poll.poll(&mut events, Some(Duration::from_secs(10))).unwrap();
            assert!(!events.is_empty(), "{} does not answer", self.address);
            events.iter().for_each(|event| lines[event.token().0].turn(&mut run));
        }
        run.meter.figures()
    }
}

struct Run<'k> {
    target: Target,
    keys: Keys<'k>,
    meter: Meter,
    waiting: usize,
}

struct Line {
    stream: TcpStream,
    unread: Vec<u8>,
    out: Vec<u8>,
    asked: VecDeque<Instant>,
    questions: u64,
}

impl Line {
    fn open(target: Target) -> Line {
        let Client { stream, .. } = Client::open(target);
        stream.set_nonblocking(true).unwrap();
        let stream = TcpStream::from_std(stream);
        Line { stream, unread: Vec::new(), out: Vec::new(), asked: VecDeque::new(), questions: 0 }
    }

    fn ask(&mut self, run: &mut Run) {
        let now = Instant::now();
        let Some(key) = (run.keys)(now) else { return };
        self.questions += 1;
        (run.target.codec.write)(key, run.target.limit, self.questions, &mut self.out);
        self.asked.push_back(now);
        run.waiting += 1;
    }

    /// Reads all available answers, and asks again for each.
    fn turn(&mut self, run: &mut Run) {
        let mut bytes = [0; 16 * 1024];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => panic!("{} has closed a connection", run.target.address),
                Ok(count) => self.unread.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => panic!("{error}"),
            }
            let (unread, mut used) = (std::mem::take(&mut self.unread), 0);
            while let Some((length, is_admitted)) = (run.target.codec.read)(&unread[used..]) {
                assert!(is_admitted, "no load reaches its limit");
                used += length;
                run.meter.add(self.asked.pop_front().expect("one answer to a question").elapsed());
                run.waiting -= 1;
                self.ask(run);
            }
            self.unread = unread;
            self.unread.drain(..used);
            self.send();
        }
    }

    fn send(&mut self) {
        // A few kilobytes always fit the buffer of the socket.
        self.stream.write_all(&self.out).unwrap();
        self.out.clear();
    }
}

/// One connection with one question at a time.
pub struct Client {
    stream: net::TcpStream,
    target: Target,
    questions: u64,
}

impl Client {
    pub fn open(target: Target) -> Client {
        let stream = net::TcpStream::connect(target.address).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut client = Client { stream, target, questions: 0 };
        let mut greeting = Vec::new();
        (target.codec.greet)(&mut greeting);
        if !greeting.is_empty() {
            client.exchange(&greeting);
        }
        client
    }

    pub fn ask(&mut self, key: Key) -> bool {
        self.questions += 1;
        let mut out = Vec::new();
        (self.target.codec.write)(key, self.target.limit, self.questions, &mut out);
        self.exchange(&out)
    }

    fn exchange(&mut self, out: &[u8]) -> bool {
        self.stream.write_all(out).unwrap();
        let (mut unread, mut bytes) = (Vec::new(), [0; 4096]);
        loop {
            let count = self.stream.read(&mut bytes).unwrap();
            assert!(count > 0, "{} has closed a connection", self.target.address);
            unread.extend_from_slice(&bytes[..count]);
            if let Some((_, is_admitted)) = (self.target.codec.read)(&unread) {
                return is_admitted;
            }
        }
    }
}
