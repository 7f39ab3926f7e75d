//! Replacing a policy while a thread decides: the times of decisions, and the thread that frees old policies.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use slowlane::observe::clock::Clock;
use slowlane_core::base::Sample;
use slowlane_core::policy::{Method, Policy};
use slowlane_core::table::Sizing;
use slowlane_core::throttle::Throttle;
use tempfile::TempDir;

use crate::LINES;
use crate::kind::{self, Asked};
use crate::support::effort::Effort;
use crate::support::histogram::Histogram;
use crate::support::print as line;

const METHOD: Method = Method::Str;

/// The number of requests, generated before and used in turn.
const REQUESTS: u32 = 4_096;

/// The fewest loads of a run, however short it is.
const LOADS_MIN: u32 = 3;

/// The load beside the decisions.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Beside {
    Nothing,
    /// Policies are loaded, but never put in force: only memory bandwidth is shared.
    Loads,
    Swaps,
}

struct Bench {
    throttle: Throttle,
    folder: TempDir,
    requests: Vec<Asked>,
}

pub fn print(effort: Effort) {
    let lines = effort.count(LINES);
    let bench = Bench::new(lines);
    let mut subjects =
        [("alone", Beside::Nothing), ("beside loads", Beside::Loads), ("with swaps", Beside::Swaps)];
    let mut swaps = Swaps::default();
    let figures = effort.in_turns(&mut subjects, |&mut (_, beside)| {
        let times = bench.run(beside, effort.time, &mut swaps);
        let ns = [50.0, 99.0, 99.9].map(|percent| times.percentile_ns(percent));
        [ns[0], ns[1], ns[2], times.max_ns()].map(|ns| ns as f64 / 1e3)
    });
    for ((name, _), figures) in subjects.iter().zip(&figures) {
        for (what, us) in ["p50", "p99", "p99.9", "longest"].into_iter().zip(figures) {
            line(&format!("decision, {what}, {lines} lines"), name, *us, "µs", &[]);
        }
    }
    let [alone, loads, swapped] = [0, 1, 2].map(|place| figures[place][2]);
    line("decision, p99.9, more than alone", "with swaps", swapped - alone, "µs", &[]);
    line("decision, p99.9, more than beside loads", "with swaps", swapped - loads, "µs", &[]);
    swaps.print();
}

impl Bench {
    fn new(lines: u32) -> Bench {
        let folder = tempfile::tempdir().unwrap();
        kind::write(folder.path(), METHOD, lines);
        let sizing = Sizing { entries_max: 100_000, expire: Duration::from_secs(30) };
        let throttle = Throttle::new(kind::read(folder.path(), METHOD), sizing, 0);
        let requests = (0..REQUESTS).map(|number| Asked::hit(METHOD, number * (lines / REQUESTS)));
        Bench { throttle, folder, requests: requests.collect() }
    }

    /// The time of each decision.
    fn run(&self, beside: Beside, time: Duration, swaps: &mut Swaps) -> Histogram {
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let decisions = scope.spawn(|| self.decide_until(&is_over));
            let others = scope.spawn(|| self.load(beside, time, swaps));
            others.join().expect("what is loaded is without a fault");
            is_over.store(true, Relaxed);
            decisions.join().expect("no decision fails")
        })
    }

    /// Runs in its own thread, like a reload.
    fn load(&self, beside: Beside, time: Duration, swaps: &mut Swaps) {
        let start = Instant::now();
        let mut loads = 0;
        while start.elapsed() < time || beside != Beside::Nothing && loads < LOADS_MIN {
            match beside {
                Beside::Nothing => thread::sleep(time),
                Beside::Loads => drop(kind::read(self.folder.path(), METHOD)),
                Beside::Swaps => swaps.swap(&self.throttle, kind::read(self.folder.path(), METHOD)),
            }
            loads += 1;
        }
    }

    fn decide_until(&self, is_over: &AtomicBool) -> Histogram {
        let (clock, mut times) = (Clock::start(), Histogram::new());
        for asked in self.requests.iter().cycle() {
            let (request, now) = (asked.request(), clock.now());
            let start = Instant::now();
            let decision = self.throttle.decide_one(&request, now, Sample::MIDDLE);
            times.add(start.elapsed().as_nanos() as u64);
            assert_eq!(decision.slo.number(), 1, "under each policy the line is there");
            if is_over.load(Relaxed) {
                break;
            }
        }
        times
    }
}

/// Counts of old policies.
#[derive(Default)]
struct Swaps {
    count: u32,
    /// The number of policies freed by the reloading thread, not by the deciding one.
    freed: u32,
    longest: Duration,
    longest_free: Duration,
}

impl Swaps {
    /// Replaces a policy like a reload, and frees the old one after its last use.
    fn swap(&mut self, throttle: &Throttle, policy: Policy) {
        let start = Instant::now();
        let old = throttle.replace(policy);
        self.longest = self.longest.max(start.elapsed());
        while Arc::strong_count(&old) > 1 {
            thread::sleep(Duration::from_millis(1));
        }
        let start = Instant::now();
        let ours = Arc::into_inner(old);
        self.count += 1;
        self.freed += u32::from(ours.is_some());
        drop(ours);
        self.longest_free = self.longest_free.max(start.elapsed());
    }

    fn print(&self) {
        let [longest, longest_free] = [self.longest, self.longest_free].map(|time| time.as_secs_f64() * 1e6);
        line("swaps", "with swaps", f64::from(self.count), "policies", &[]);
        line("old ones freed by the thread that swaps", "with swaps", f64::from(self.freed), "policies", &[]);
        line("longest swap", "with swaps", longest, "µs", &[]);
        line("longest time to free an old one", "with swaps", longest_free, "µs", &[]);
    }
}
