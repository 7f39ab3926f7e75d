//! Keys that come and go beside the table: what a decision notices of the removal of those that are over.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use slowlane_core::base::Sample;
use slowlane_core::table::Sizing;

use crate::ENTRIES;
use crate::stores::{START, throttle_under};
use crate::support::effort::Effort;
use crate::support::histogram::Histogram;
use crate::support::{cpu_time, five_maps, print as line};

/// A log of each key is of use for two seconds. More than half of the memory for auxiliary states is taken.
const SLO: &str = "burst=0 rate=10/s law=sliding-log";

/// The time between two new keys. The time is real, since a sweep once a second meets the requests of that second.
const PAUSE: Duration = Duration::from_micros(14);

pub fn print(effort: Effort) {
    let sizing = Sizing { entries_max: effort.count(ENTRIES), expire: Duration::from_secs(5) };
    let throttle = throttle_under("0.0.0.0/0", SLO, sizing);
    let (is_over, begun, time) = (AtomicBool::new(false), Instant::now(), effort.time * 10);
    let mut times = [(); 2].map(|()| Histogram::new());
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                thread::sleep(Duration::from_secs(1).min(time));
                throttle.sweep(START + begun.elapsed());
            }
        });
        for source in 0..(time.as_nanos() / PAUSE.as_nanos()) as u32 {
            while begun.elapsed() < PAUSE * source {
                spin_loop();
            }
            let (request, now) = (five_maps::request(source), START + begun.elapsed());
            let (cpu_before, start) = (cpu_time(), Instant::now());
            throttle.decide_one(&request, now, Sample::MIDDLE);
            let took = [start.elapsed(), cpu_time() - cpu_before];
            times.iter_mut().zip(took).for_each(|(times, took)| times.add(took.as_nanos() as u64));
        }
        is_over.store(true, Relaxed);
    });
    let usage = throttle.aux_usage();
    line("churn, memory of auxiliary states", "slowlane decide", usage.bytes as f64 / 1e6, "MB", &[]);
    line("churn, fallbacks", "slowlane decide", usage.fallbacks as f64, "requests", &[]);
    for (clock, times) in ["", ", CPU"].into_iter().zip(&times) {
        for (name, percent) in [("p50", 50.0), ("p99.9", 99.9), ("p99.99", 99.99), ("longest", 100.0)] {
            let ns = times.percentile_ns(percent) as f64;
            line(&format!("churn, one decision, {name}{clock}"), "slowlane decide", ns, "ns", &[]);
        }
    }
}
