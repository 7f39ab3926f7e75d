//! The cost of very many held answers, and their lateness.
//!
//! `cargo bench --bench holds [-- SECONDS]`. Clients ask 20,000 questions per second for this time. Then all are held, and
//! the memory is measured. Then the answers fall due, at the same rate. The lateness of an answer is the time that the
//! client measured minus the delay. For comparison, the same run asks as many questions without a hold.
//!
//! Target, with the 100,000 answers of the default 5 s: 100 MB in all, and 99 % at most 2 ms late.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests and benches are the world outside"
)]
#![allow(unreachable_pub, reason = "nothing here is reachable from outside, and pub(crate) is noise")]

mod load;
#[path = "../support/mod.rs"]
mod support;

use std::time::Instant;

use load::{DUE_AFTER, Load, PER_SECOND};
use support::effort::Effort;
use support::programs::slowlane::Slowlane;
use support::{cores, percentile, print, print_each, usage};

/// Held answers per connection: as many as HAProxy 3.1 and later asks for on one, and many more.
const SHAPES: [usize; 2] = [20, 1_000];

fn main() {
    let effort = Effort::from_arguments(5.0);
    cores::stay_on_last();
    load::raise_file_limit();
    let answers = (effort.seconds() * PER_SECOND).ceil() as usize;
    for per_connection in SHAPES {
        let connections = answers.div_ceil(per_connection);
        println!("{answers} answers on {connections} connections, {PER_SECOND}/s");
        let load = Load { answers, connections };
        let medians = effort.in_turns(&mut [false, true], |is_held| measure(load, effort, *is_held));
        print_figures(&medians[0], &medians[1]);
    }
}

/// The figures of one run: memory in MB, held answers, lateness in ms, CPU time in µs.
const FIGURES: usize = 8;

/// One run, with its own daemon: a daemon keeps some of the memory of earlier holds.
fn measure(load: Load, effort: Effort, is_held: bool) -> [f64; FIGURES] {
    let slowlane = cores::on_first(|| Slowlane::with_config(&[("slo.map", SLO_MAP)], &config(load, effort)));
    let process = slowlane.process.id();
    let resident_mb = || usage::resident_bytes(process) as f64 / 1e6;
    let idle_mb = resident_mb();
    let mut lines = load.connect(slowlane.spop);
    let connected_mb = resident_mb();
    let cpu_before = usage::cpu_ns(process);
    let (mut held, mut held_mb) = (0.0, 0.0);
    let late_ms = load.run(&mut lines, effort.time, is_held, || {
        held = most_held(&slowlane, load);
        held_mb = resident_mb();
    });
    let cpu_ns = usage::cpu_ns(process) - cpu_before;
    assert_eq!(slowlane.metric("slowlane_holds_refused_total", ""), 0.0, "there was no room for some");
    let cpu_us = cpu_ns as f64 / 1_000.0 / load.answers as f64;
    let late_ms = [50, 99, 100].map(|percent| percentile(&late_ms, percent));
    [idle_mb, connected_mb, held, held_mb, late_ms[0], late_ms[1], late_ms[2], cpu_us]
}

/// The number of held answers after the daemon has read all questions, as far as it does in time.
fn most_held(slowlane: &Slowlane, load: Load) -> f64 {
    let deadline = Instant::now() + DUE_AFTER / 2;
    loop {
        let held = slowlane.metric("slowlane_holds", "");
        if held == load.answers as f64 || Instant::now() > deadline {
            return held;
        }
    }
}

const SLO_MAP: &str = "0 burst=10000 rate=5000/s\n";

/// The config for so many holds: the most at once, and the longest.
fn config(load: Load, effort: Effort) -> String {
    let longest = effort.time * 2 + DUE_AFTER * 2;
    format!(
        "[spop]\nconnections_max = {}\n[hold]\nmax = {}\nlongest = \"{}s\"\n",
        load.connections.max(20_000),
        load.answers,
        longest.as_secs() + 1
    )
}

fn print_figures(at_once: &[f64; FIGURES], held: &[f64; FIGURES]) {
    let [idle_mb, connected_mb, answers, held_mb, ..] = *held;
    print("resident, idle", "slowlane", idle_mb, "MB", &[]);
    print("resident, connected", "slowlane", connected_mb, "MB", &[]);
    print("held at the same time", "slowlane", answers, "answers", &[]);
    print("resident, all are held", "slowlane", held_mb, "MB", &[]);
    print("memory of an answer", "held", (held_mb - connected_mb) * 1e6 / answers, "bytes", &[]);
    let figures = [("late, p50", "ms"), ("late, p99", "ms"), ("late, most", "ms"), ("CPU per answer", "µs")];
    let medians = [at_once, held].map(|medians| std::array::from_fn(|place| medians[4 + place]));
    print_each(figures, &["answered at once", "held"], &medians);
}
