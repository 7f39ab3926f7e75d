//! The load: HAProxy's side of many connections, each with a number of NOTIFYs in flight.

use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use ::spop::{Ack, Action, Data, Frame, Kind, Notify};
use mio::{Events, Interest, Poll, Token};

use crate::Agent;
use crate::support::clients::WARM_UP_MAX;
use crate::support::connection::{self, Connection};
use crate::support::five_maps::{LINES, source};
use crate::support::{percentile, usage};

#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub connections: usize,
    pub in_flight: usize,
}

struct Line {
    stream: Connection,
    unread: Vec<u8>,
    out: Vec<u8>,
    /// The time of the question of each stream-id; `None` while it is free.
    asked: Vec<Option<Instant>>,
}

impl Load {
    /// Answers per second, p50 and p99 in µs, and µs of CPU per answer.
    pub fn run(self, agent: &Agent, time: Duration) -> [f64; 4] {
        let (name, process) = (agent.name, agent.process);
        let mut poll = Poll::new().unwrap();
        let mut lines: Vec<Line> = (0..self.connections).map(|_| Line::open(agent, self.in_flight)).collect();
        for (number, line) in lines.iter_mut().enumerate() {
            poll.registry().register(line.stream.socket(), Token(number), Interest::READABLE).unwrap();
        }
        let mut run = Run { rng: fastrand::Rng::with_seed(7), latencies: Vec::new() };
        for line in &mut lines {
            (0..self.in_flight).for_each(|id| line.ask(id, &mut run));
            line.send();
        }
        let mut events = Events::with_capacity(256);
        let (started, warm_up) = (Instant::now(), time.min(WARM_UP_MAX));
        let (mut counting, mut cpu_ns) = (None, 0);
        while started.elapsed() < warm_up + time {
            if counting.is_none() && started.elapsed() >= warm_up {
                (counting, cpu_ns) = (Some(Instant::now()), usage::cpu_ns(process));
                run.latencies.clear();
            }
            poll.poll(&mut events, Some(Duration::from_secs(5))).unwrap();
            assert!(!events.is_empty(), "{name} does not answer");
            for event in &events {
                lines[event.token().0].turn(&mut run);
            }
        }
        let cpu_ns = usage::cpu_ns(process) - cpu_ns;
        run.figures(counting.unwrap().elapsed(), cpu_ns)
    }
}

struct Run {
    rng: fastrand::Rng,
    latencies: Vec<u32>,
}

impl Run {
    fn figures(mut self, time: Duration, cpu_ns: u64) -> [f64; 4] {
        self.latencies.sort_unstable();
        let count = self.latencies.len() as f64;
        let [p50_us, p99_us] = [50, 99].map(|percent| percentile(&self.latencies, percent) / 1_000.0);
        [count / time.as_secs_f64(), p50_us, p99_us, cpu_ns as f64 / 1_000.0 / count]
    }
}

impl Line {
    /// Connects and greets.
    fn open(agent: &Agent, in_flight: usize) -> Line {
        Line {
            stream: connection::greeted(agent.address, agent.client.as_ref()),
            unread: Vec::new(),
            out: Vec::new(),
            asked: vec![None; in_flight],
        }
    }

    fn ask(&mut self, id: usize, run: &mut Run) {
        let source = source(run.rng.u32(0..LINES));
        let arguments: [(&[u8], Data); 4] = [
            (b"source", Data::Ipv4(source)),
            (b"website", Data::Str(b"www.shop.example")),
            (b"owner", Data::Str(b"acme")),
            (b"method", Data::Str(b"GET")),
        ];
        Notify::begin(&mut self.out, id as u64, 1).message(b"request", &arguments).finish();
        self.asked[id] = Some(Instant::now());
    }

    /// Reads all available answers, and asks again for each.
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
        // A few hundred bytes always fit the buffer of the socket.
        self.stream.write_all(&self.out).unwrap();
        self.out.clear();
    }
}

/// The stream-id of an ACK that sets a verdict.
fn checked(frame: Frame<'_>) -> usize {
    assert_eq!(frame.head.kind, Kind::ACK);
    let ack = Ack::decode(frame).unwrap();
    let is_verdict = |action| matches!(action, Ok(Action::SetVar { name: b"verdict", .. }));
    assert!(ack.actions().next().is_some_and(is_verdict), "an ACK without a verdict");
    ack.stream_id as usize
}
