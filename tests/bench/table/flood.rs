//! A flood of keys that are used once: its cost, and the throttled keys that survive it.

use std::process;
use std::time::{Duration, Instant};

use slowlane_core::base::{Key, Sample, Timestamp, Verdict};
use slowlane_core::table::Sizing;
use slowlane_core::throttle::Throttle;

use crate::ENTRIES;
use crate::stores::{START, throttle_under};
use crate::support::effort::Effort;
use crate::support::histogram::Histogram;
use crate::support::usage::resident_bytes;
use crate::support::{five_maps, print as line};

/// Keys of the flood per entry of the table: 50 million for a table of a million.
const FLOOD_PER_ENTRY: u32 = 50;

/// The virtual time in which the flood fills the table once. Keys that are not used in this time are lost.
const TURNOVER: Duration = Duration::from_secs(1);

/// Throttled keys of each kind.
const THROTTLED: u32 = 1_000;

/// The time between requests of a key, for each kind. All are faster than their rate of 1/s.
const EVERY_MS: [u64; 3] = [100, 500, 900];

const SLO: &str = "burst=1 rate=1/s law=pace";

/// The first source of the flood. The throttled sources are below.
const FLOOD_FIRST: u32 = 1 << 20;

pub fn print(effort: Effort) {
    let entries = effort.count(ENTRIES);
    let sizing = Sizing { entries_max: entries, expire: Duration::from_secs(30) };
    let mut flood = Flood {
        throttle: throttle_under("0.0.0.0/0", SLO, sizing),
        throttled: EVERY_MS.map(Throttled::new).into(),
        pause: TURNOVER / entries,
        now: START,
        next: FLOOD_FIRST,
        times: Histogram::new(),
    };
    flood.run(entries);
    flood.times = Histogram::new();
    let before = resident_bytes(process::id());
    flood.run(entries * FLOOD_PER_ENTRY);
    let after = resident_bytes(process::id());

    let times = &flood.times;
    line("flood", "slowlane decide", times.count() as f64, "keys", &[]);
    line("flood, resident before", "slowlane decide", before as f64 / 1e6, "MB", &[]);
    line(
        "flood, resident after",
        "slowlane decide",
        after as f64 / 1e6,
        "MB",
        &[("before", before as f64 / 1e6)],
    );
    for (name, percent) in [("p50", 50.0), ("p99", 99.0), ("p99.9", 99.9)] {
        let ns = times.percentile_ns(percent) as f64;
        line(&format!("flood, one decision, {name}"), "slowlane decide", ns, "ns", &[]);
    }
    line("flood, one decision, longest", "slowlane decide", times.max_ns() as f64, "ns", &[]);
    for throttled in &flood.throttled {
        throttled.print(&flood.throttle, flood.now);
    }
}

struct Flood {
    throttle: Throttle,
    throttled: Vec<Throttled>,
    /// The time between two keys of the flood.
    pause: Duration,
    now: Timestamp,
    next: u32,
    times: Histogram,
}

impl Flood {
    /// Sends requests of `count` new keys.
    fn run(&mut self, count: u32) {
        for _ in 0..count {
            self.now = self.now + self.pause;
            let request = five_maps::request(self.next);
            let start = Instant::now();
            self.throttle.decide_one(&request, self.now, Sample::MIDDLE);
            self.times.add(start.elapsed().as_nanos() as u64);
            self.next += 1;
            for throttled in &mut self.throttled {
                throttled.ask(&self.throttle, self.now);
            }
        }
    }
}

/// Keys that all ask at the same interval.
struct Throttled {
    every: Duration,
    /// The number of the first source.
    first: u32,
    next: usize,
    next_at: Timestamp,
    keys: Vec<Asked>,
}

#[derive(Clone, Copy, Default)]
struct Asked {
    key: Option<Key>,
    count: u32,
    /// The number of requests that passed: their keys should be in debt, so their entries were lost.
    passed: u32,
}

impl Throttled {
    fn new(every_ms: u64) -> Throttled {
        let every = Duration::from_millis(every_ms);
        let first = every_ms as u32 * THROTTLED;
        Throttled { every, first, next: 0, next_at: START, keys: vec![Asked::default(); THROTTLED as usize] }
    }

    /// Sends the requests that are due.
    fn ask(&mut self, throttle: &Throttle, now: Timestamp) {
        while self.next_at <= now {
            let request = five_maps::request(self.first + self.next as u32);
            let decision = throttle.decide_one(&request, now, Sample::MIDDLE);
            let asked = &mut self.keys[self.next];
            asked.key = Some(decision.key);
            asked.count += 1;
            asked.passed += u32::from(decision.verdict == Verdict::Pass);
            self.next = (self.next + 1) % self.keys.len();
            self.next_at = self.next_at + self.every / THROTTLED;
        }
    }

    fn print(&self, throttle: &Throttle, now: Timestamp) {
        let is_kept = |asked: &&Asked| {
            let found = asked.key.and_then(|key| throttle.table().get(key, now));
            found.is_some_and(|(entry, _)| entry.http_req_cnt == asked.count)
        };
        let kept = self.keys.iter().filter(is_kept).count();
        let forgiven: u32 = self.keys.iter().map(|asked| asked.passed.saturating_sub(1)).sum();
        let what = format!("flood, asked every {} ms: kept", self.every.as_millis());
        line(&what, "slowlane decide", kept as f64, &format!("of {THROTTLED}"), &[]);
        let what = format!("flood, asked every {} ms: forgiven", self.every.as_millis());
        line(&what, "slowlane decide", f64::from(forgiven), "requests", &[]);
    }
}
