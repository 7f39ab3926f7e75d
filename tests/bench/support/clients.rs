//! HTTP clients in a closed loop: each asks again after its answer.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use super::{connection, percentile};

/// The longest warm-up of a run.
pub const WARM_UP_MAX: Duration = Duration::from_millis(500);

/// The longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The address, the number of clients, and the required start of each answer. Answers have no body.
#[derive(Clone, Copy, Debug)]
pub struct Clients {
    pub address: SocketAddr,
    pub count: usize,
    pub answer: &'static str,
}

/// The figures of one run.
#[derive(Clone, Copy, Debug)]
pub struct Ran<const N: usize> {
    pub per_second: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    /// The CPU time per request of each process, in µs.
    pub cpu_us: [f64; N],
}

impl Clients {
    /// Runs the clients. `write` appends a request, and `cpu_ns` gives the CPU time of each process.
    pub fn run<const N: usize>(
        self,
        time: Duration,
        write: impl FnMut(&mut Vec<u8>),
        cpu_ns: impl Fn() -> [u64; N],
    ) -> Ran<N> {
        let mut poll = Poll::new().unwrap();
        let mut lines: Vec<Line> = (0..self.count).map(|_| Line::open(self)).collect();
        let mut run = Run { clients: self, write, latencies: Vec::new() };
        for (number, line) in lines.iter_mut().enumerate() {
            poll.registry().register(&mut line.stream, Token(number), Interest::READABLE).unwrap();
            line.ask(&mut run);
        }
        let mut events = Events::with_capacity(256);
        let (started, warm_up) = (Instant::now(), time.min(WARM_UP_MAX));
        let (mut counting, mut cpu_before) = (None, [0; N]);
        while started.elapsed() < warm_up + time {
            if counting.is_none() && started.elapsed() >= warm_up {
                (counting, cpu_before) = (Some(Instant::now()), cpu_ns());
                run.latencies.clear();
            }
            poll.poll(&mut events, Some(PATIENCE)).unwrap();
            assert!(!events.is_empty(), "{} does not answer", self.address);
            for event in &events {
                lines[event.token().0].turn(&mut run);
            }
        }
        let cpu_after = cpu_ns();
        let time = counting.expect("the time is not over before it begins").elapsed();
        figures(run.latencies, time, std::array::from_fn(|place| cpu_after[place] - cpu_before[place]))
    }
}

fn figures<const N: usize>(mut latencies_us: Vec<f64>, time: Duration, cpu_ns: [u64; N]) -> Ran<N> {
    assert!(!latencies_us.is_empty(), "nothing was answered");
    latencies_us.sort_by(f64::total_cmp);
    let count = latencies_us.len() as f64;
    Ran {
        per_second: count / time.as_secs_f64(),
        p50_us: percentile(&latencies_us, 50),
        p99_us: percentile(&latencies_us, 99),
        cpu_us: cpu_ns.map(|ns| ns as f64 / 1_000.0 / count),
    }
}

struct Run<W> {
    clients: Clients,
    write: W,
    latencies: Vec<f64>,
}

struct Line {
    stream: TcpStream,
    unread: Vec<u8>,
    out: Vec<u8>,
    asked: Instant,
}

impl Line {
    fn open(clients: Clients) -> Line {
        let stream = connection::open(clients.address);
        Line { stream, unread: Vec::new(), out: Vec::new(), asked: Instant::now() }
    }

    fn ask<W: FnMut(&mut Vec<u8>)>(&mut self, run: &mut Run<W>) {
        self.out.clear();
        (run.write)(&mut self.out);
        self.asked = Instant::now();
        // A short request always fits the buffer of the socket.
        self.stream.write_all(&self.out).unwrap();
    }

    /// Reads the answer if it is complete, and asks again.
    fn turn<W: FnMut(&mut Vec<u8>)>(&mut self, run: &mut Run<W>) {
        let mut bytes = [0; 4096];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => panic!("{} has closed a connection", run.clients.address),
                Ok(count) => self.unread.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => panic!("{error}"),
            }
            if self.unread.ends_with(b"\r\n\r\n") {
                run.latencies.push(self.asked.elapsed().as_secs_f64() * 1_000_000.0);
                self.check(run.clients.answer);
                self.unread.clear();
                // There is only one request in flight.
                return self.ask(run);
            }
        }
    }

    fn check(&self, answer: &str) {
        let is_right = self.unread.starts_with(answer.as_bytes());
        assert!(is_right, "no {answer:?} but {:?}", String::from_utf8_lossy(&self.unread));
    }
}
