//! Keys that come and go beside the table: what a decision notices of the removal of those that are over.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use slowlane_core::base::Sample;
use slowlane_core::table::Sizing;

use crate::ENTRIES;
use crate::paced;
use crate::stores::{START, throttle_under};
use crate::support::effort::Effort;
use crate::support::usage::CpuTime;
use crate::support::{cores, five_maps, print as line};

/// A log of each key is of use for two seconds. More than half of the memory for auxiliary states is taken.
const SLO: &str = "burst=0 rate=10/s law=sliding-log";

/// Longer than an entry and its log live.
const WARM_UP: Duration = Duration::from_secs(10);

/// Of ten requests, this many are the first of their key.
const NEW_OF_TEN: u32 = 7;

pub fn print(effort: Effort) {
    let sizing = Sizing { entries_max: effort.count(ENTRIES), expire: Duration::from_secs(5) };
    let throttle = throttle_under("0.0.0.0/0", SLO, sizing);
    let (is_over, time, before) = (AtomicBool::new(false), effort.time * 10, CpuTime::now());
    paced::print("nothing at 100 k/s", &paced::run(Duration::ZERO, time, |_, _| {}));
    let begun = Instant::now();
    let times = thread::scope(|scope| {
        let sweep = || {
            while !is_over.load(Relaxed) {
                thread::sleep(Duration::from_secs(1).min(time));
                throttle.sweep(START + begun.elapsed());
            }
        };
        cores::on_second(|| scope.spawn(sweep));
        let times = paced::run(WARM_UP, time, |number, planned| {
            let source = number / 10 * NEW_OF_TEN + number % 10 % NEW_OF_TEN;
            throttle.decide_one(&five_maps::request(source), START + planned, Sample::MIDDLE);
        });
        is_over.store(true, Relaxed);
        times
    });
    paced::print("churn at 100 k/s", &times);
    let usage = throttle.aux_usage();
    line("churn, memory of auxiliary states", "slowlane decide", usage.bytes as f64 / 1e6, "MB", &[]);
    line("churn, fallbacks", "slowlane decide", usage.fallbacks as f64, "requests", &[]);
    line("churn, CPU that other machines took", "", before.stolen_since(), "%", &[]);
}
