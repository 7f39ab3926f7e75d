//! What a decision costs in process, with the codec around it and without, at 100 thousand and a million keys.
//!
//! `cargo bench --bench decide [-- SECONDS]`. A full policy as in the bench `spop`: four fields, five lookups in maps of
//! 100,000 lines, of which the third answers. Sources are drawn evenly; a batch of 64 questions is made, and
//! then timed from its bytes to the bytes of its answers.

use std::hint::black_box;
use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use slowlane::draw::Draw;
use slowlane::haproxy::{self, Id, Question};
use slowlane::policy::{Layout, Policy};
use slowlane::request::{Request, Value};
use slowlane::spop::{Connection, Data, Frame, HaproxyHello, Notify, Step};
use slowlane::table::Sizing;
use slowlane::throttle::{DOCKET_MAX, Docket, Throttle};
use slowlane::time::Timestamp;

const BATCH: usize = 64;

/// Lines in each map but that of the sources.
const LINES: u32 = 100_000;

fn main() {
    let seconds = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(3.0);
    let time = Duration::from_secs_f64(seconds);
    println!("{:<10} {:>9} {:>16} {:>26}", "law", "keys", "decision ns", "codec and decision ns");
    for keys in [100_000, 1_000_000] {
        for law in ["pace", "adaptive", "token-bucket", "sliding-window"] {
            let mut agent = Agent::new(law, keys);
            let (decision, whole) = (agent.decisions(time), agent.answers(time));
            println!("{law:<14} {keys:>9} {decision:>12.0} {whole:>26.0}");
        }
    }
}

struct Agent {
    throttle: Throttle,
    connection: Connection,
    dice: fastrand::Rng,
    keys: u32,
    now: Timestamp,
    out: Vec<u8>,
}

impl Agent {
    fn new(law: &str, keys: u32) -> Agent {
        let mut hello = Vec::new();
        let offered = HaproxyHello {
            supported_versions: b"2.0",
            frame_bytes_max: 16_380,
            capabilities: b"pipelining",
            engine_id: None,
            healthcheck: false,
        };
        offered.encode(&mut hello);
        let (mut connection, mut out) = (Connection::new(16_380), Vec::new());
        connection.receive(Frame::cut(&hello, 16_380).unwrap().unwrap().0, &mut out);
        let sizing = Sizing { entries_max: keys + keys / 4, expire: Duration::from_secs(600) };
        let throttle = Throttle::new(policy(law, keys), sizing, 0);
        let now = Timestamp::from_millis(1_700_000_000_000);
        let agent =
            Agent { throttle, connection, dice: fastrand::Rng::with_seed(7), keys, now, out: Vec::new() };
        for number in 0..keys {
            agent.throttle.decide(&request(number), now, Draw::MIDDLE);
        }
        agent
    }

    /// Nanoseconds for each decision.
    fn decisions(&mut self, time: Duration) -> f64 {
        let mut spent = Duration::ZERO;
        let mut count = 0u32;
        while spent < time {
            let numbers: [u32; BATCH] = std::array::from_fn(|_| self.dice.u32(0..self.keys));
            self.now = self.now + Duration::from_micros(50);
            let start = cpu_time();
            for number in numbers {
                black_box(self.throttle.decide(&request(number), self.now, Draw::MIDDLE));
            }
            spent += cpu_time() - start;
            count += BATCH as u32;
        }
        spent.as_nanos() as f64 / f64::from(count)
    }

    /// Nanoseconds for each NOTIFY, from its bytes to those of its ACK.
    fn answers(&mut self, time: Duration) -> f64 {
        let mut spent = Duration::ZERO;
        let mut count = 0u32;
        let mut bytes = Vec::new();
        while spent < time {
            bytes.clear();
            for _ in 0..BATCH {
                self.ask(&mut bytes);
            }
            self.now = self.now + Duration::from_micros(50);
            let start = cpu_time();
            self.answer(&bytes);
            spent += cpu_time() - start;
            black_box(&self.out);
            count += BATCH as u32;
        }
        spent.as_nanos() as f64 / f64::from(count)
    }

    fn ask(&mut self, bytes: &mut Vec<u8>) {
        let source = source(self.dice.u32(0..self.keys));
        let arguments: [(&[u8], Data<'_>); 4] = [
            (b"source", Data::Ipv4(source)),
            (b"website", Data::Str(b"shop.example")),
            (b"owner", Data::Str(b"acme")),
            (b"method", Data::Str(b"GET")),
        ];
        Notify::begin(bytes, self.dice.u64(0..100_000), 1).message(b"request", &arguments).finish();
    }

    fn answer(&mut self, mut bytes: &[u8]) {
        self.out.clear();
        let sitting = self.throttle.sit();
        let (mut ids, mut docket) = (Vec::with_capacity(DOCKET_MAX), Docket::default());
        while let Some((frame, length)) = Frame::cut(bytes, 16_380).unwrap() {
            let mut has_room = true;
            if let Step::Notify(notify) = self.connection.receive(frame, &mut self.out) {
                let mut filing = sitting.file(&mut docket);
                let asked = haproxy::question(&notify, |name, value| filing.field(name, value));
                assert_eq!(asked, Ok(Question::Verdict));
                ids.push(Id::of(&notify));
                has_room = sitting.enter(&mut docket);
            }
            bytes = &bytes[length..];
            if !has_room || bytes.is_empty() {
                sitting.decide(
                    &docket,
                    self.now,
                    || Draw::MIDDLE,
                    |number, decision| {
                        haproxy::answer_verdict(ids[number], decision, &mut self.out);
                    },
                );
                ids.clear();
                docket.clear();
            }
        }
    }
}

/// What this thread has run: others on the machine have no part in it, but for its caches.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn source(number: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0a00_0000 + number)
}

fn request(number: u32) -> Request<'static> {
    let mut request = Request::new();
    request.push(b"source", Value::Address(source(number).into()));
    request.push(b"website", Value::Text(b"shop.example"));
    request.push(b"owner", Value::Text(b"acme"));
    request.push(b"method", Value::Text(b"GET"));
    request
}

fn policy(law: &str, keys: u32) -> Policy {
    let line = |number: u32, rest: &str, id: u32| format!("{}{rest} {id}\n", source(number));
    let read = |path: &Path| match path.to_str() {
        Some("slo.map") => Ok(format!("0 burst=9 rate=9/s\n3001 burst=1000 rate=1000/s law={law}\n")),
        Some("source+website.map") => Ok((0..LINES).map(|n| line(n, "+elsewhere.example", 0)).collect()),
        Some("source+owner.map") => Ok((0..LINES).map(|n| line(n, "+nobody", 0)).collect()),
        Some("source.map") => Ok((0..keys).map(|n| line(n, "", 3001)).collect()),
        Some("website.map") => Ok((0..LINES).map(|n| format!("site-{n}.example 0\n")).collect()),
        Some("owner.map") => Ok((0..LINES).map(|n| format!("owner-{n}.example 0\n")).collect()),
        _ => Err(io::ErrorKind::NotFound.into()),
    };
    Policy::parse(Path::new(""), &Layout::default(), |path| read(path).map(String::into_bytes)).unwrap()
}
