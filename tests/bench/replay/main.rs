//! The time to replay a log on one core, beside the time to read its lines only.
//!
//! `cargo bench --bench replay [-- SECONDS]`: ten million lines (2.4 GB) of HAProxy's httplog behind a syslog prefix, or
//! half a million if SECONDS is less than 0.5. They are generated while they are read, with 131,072 sources and 1,000
//! websites. Each website has an SLO, and a seventh of the lines is out of order.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests and benches are the world outside"
)]
#![allow(unreachable_pub, reason = "nothing here is reachable from outside, and pub(crate) is noise")]

#[path = "../support/mod.rs"]
mod support;

use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use slowlane_core::policy::{Layout, Policy};
use slowlane_core::table::Sizing;
use slowlane_core::throttle::Throttle;
use slowlane_lab::access_log::{Choice, Lines};
use slowlane_lab::replay::{Input, ReplaySettings, Subject, replay};
use support::effort::Effort;
use support::{cpu_time, print};

const LINES: u32 = 10_000_000;

/// Lines that are generated once and repeated with other times.
const BLOCK: u64 = 50_000;

/// The time between two requests.
const GAP_US: u64 = 360;

fn main() {
    let lines = u64::from(Effort::from_arguments(10.0).count(LINES));
    let block = Block::new();
    let (making, _) = timed(|| {
        let mut log = block.log(lines);
        let mut buffer = vec![0; 256 << 10];
        while log.read(&mut buffer).is_ok_and(|count| count > 0) {}
    });
    let (reading, count) = timed(|| {
        let mut log = Lines::new(block.log(lines));
        while log.next().is_some() {}
        log.number()
    });
    assert_eq!(count, lines);
    let whats: [(&str, &[&str]); 2] =
        [("one policy", &[""]), ("one policy against another", &["", "law=fair"])];
    // All rates include the time to generate the lines: subtracting it would make them inexact.
    let rate = |time: Duration| lines as f64 / time.as_secs_f64();
    print("lines made and read", "and left", rate(reading), "lines/s", &[]);
    for (what, laws) in whats {
        let subjects: Vec<Subject> = laws.iter().map(|law| subject(law)).collect();
        let settings = ReplaySettings {
            format: Choice::Any,
            mappings: vec!["website=%[capture.req.hdr(0)]".parse().expect("a right one")],
            measures: Vec::new(),
            reorder: Duration::from_secs(60),
            seed: 1,
            top: 20,
        };
        let inputs = vec![Input { name: "log".to_owned(), bytes: Box::new(block.log(lines)) }];
        let (time, outcome) = timed(|| replay(inputs, &subjects, &settings, |_| ()).expect("a known format"));
        assert_eq!(outcome.requests(), lines);
        let seconds = time.saturating_sub(making).as_secs_f64();
        print("lines replayed", what, rate(time), "lines/s", &[("reading only", rate(reading))]);
        print(&format!("{lines} lines"), what, seconds, "s of CPU", &[]);
    }
}

fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let start = cpu_time();
    let result = work();
    (cpu_time() - start, result)
}

fn subject(law: &str) -> Subject {
    let slo_map = format!("0 burst=10000 rate=5000/s\n2001 burst=10 rate=2/s {law}\n3001 burst=2 rate=1/s\n");
    let read = |path: &Path| match path.to_str() {
        Some("slo.map") => Ok(slo_map.clone().into_bytes()),
        Some("website.map") => {
            Ok((0..1_000).map(|number| format!("shop{number}.example 2001\n")).collect::<String>().into())
        }
        Some("source.map") => Ok("10.0.0.0/20 3001\n".into()),
        _ => Err(io::ErrorKind::NotFound.into()),
    };
    let policy = Policy::parse(Path::new(""), &Layout::default(), read).expect("a right policy");
    let sizing = Sizing { entries_max: 1_000_000, expire: Duration::from_secs(30) };
    Subject { name: "policy".to_owned(), throttle: Throttle::new(policy, sizing, 64 << 20) }
}

/// An endless log; the times are written into its lines when they are read.
#[derive(Clone)]
struct Block {
    text: std::sync::Arc<[u8]>,
    /// For each line, the place of its time, and the milliseconds since the start of the block.
    times: std::sync::Arc<[(usize, u64)]>,
}

impl Block {
    fn new() -> Block {
        let mut rng = fastrand::Rng::with_seed(7);
        let (mut text, mut times) = (Vec::new(), Vec::new());
        for number in 0..BLOCK {
            let late = if number % 7 == 0 { rng.u64(0..300) } else { 0 };
            let ip = rng.u32(0..1 << 17);
            let (port, shop, ms, item) =
                (1_024 + number % 30_000, rng.u32(0..1_000), number % 64, number % 60_000);
            text.extend_from_slice(
                format!(
                    "Feb  6 12:14:14 lb1 haproxy[14389]: 10.{}.{}.{}:{port} [06/Feb/2009:",
                    ip >> 16,
                    ip >> 8 & 255,
                    ip & 255
                )
                .as_bytes(),
            );
            times.push((text.len(), number.saturating_sub(late) * GAP_US / 1_000));
            text.extend_from_slice(
                format!(
                    "12:14:14.655] www~ app/app{} 0/0/1/{ms}/{ms} 200 {item} - - ---- 120/118/9/2/0 0/0 \
                     {{shop{shop}.example|Mozilla/5.0 (X11; Linux x86_64)}} \"GET /catalog/item/{item}?ref=mail HTTP/1.1\"\n",
                    number & 7
                )
                .as_bytes(),
            );
        }
        Block { text: text.into(), times: times.into() }
    }

    fn log(&self, lines: u64) -> Log {
        Log { block: self.clone(), bytes: Vec::new(), at: 0, blocks: 0, left: lines }
    }
}

struct Log {
    block: Block,
    bytes: Vec<u8>,
    at: usize,
    blocks: u64,
    left: u64,
}

impl Log {
    fn make(&mut self) {
        self.bytes.clear();
        self.bytes.extend_from_slice(&self.block.text);
        let begins_ms = self.blocks * BLOCK * GAP_US / 1_000;
        for &(at, ms) in self.block.times.iter() {
            let ms = begins_ms + ms;
            let time = format!(
                "{:02}:{:02}:{:02}.{:03}",
                ms / 3_600_000,
                ms / 60_000 % 60,
                ms / 1_000 % 60,
                ms % 1_000
            );
            self.bytes[at..at + time.len()].copy_from_slice(time.as_bytes());
        }
        if self.left < BLOCK {
            let ends =
                self.bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').nth(self.left as usize - 1);
            let length = ends.map_or(0, |(at, _)| at + 1);
            self.bytes.truncate(length);
        }
        self.left = self.left.saturating_sub(BLOCK);
        self.blocks += 1;
        self.at = 0;
    }
}

impl Read for Log {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at == self.bytes.len() {
            if self.left == 0 {
                return Ok(0);
            }
            self.make();
        }
        let count = buffer.len().min(self.bytes.len() - self.at);
        buffer[..count].copy_from_slice(&self.bytes[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}
