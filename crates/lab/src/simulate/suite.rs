//! The suite of the manual: one SLO under many loads, on one to 300 nodes, at the worst of several seeds.

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::simulate::{Cluster, Load, Scenario, ScenarioError, Skew, Span};
use slowlane_core::base::Rate;

const NODES: [u32; 6] = [1, 3, 10, 35, 100, 300];
const RATES: [u32; 6] = [1, 10, 50, 500, 2_000, 20_000];

/// From this rate on, ten seconds are enough.
const HIGH: u32 = 500;

/// A load of the suite.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    clients: &'static str,
    /// The rate of requests whose sender waits for no answer, in tenths of the SLO's.
    open: u32,
    is_spread: bool,
    skew: Option<Skew>,
}

const fn closed(name: &'static str, clients: &'static str, is_spread: bool, skew: Option<Skew>) -> Case {
    Case { name, clients, open: 0, is_spread, skew }
}

const fn open(name: &'static str, open: u32, skew: Option<Skew>) -> Case {
    Case { name, clients: "0", open, is_spread: true, skew }
}

const CASES: [Case; 8] = [
    closed("400 clients", "400", false, None),
    closed("40 clients", "40", false, None),
    closed("400 clients, any node", "400", true, None),
    closed("40 clients, any node", "40", true, None),
    closed("400 clients, Zipf", "400", false, Some(Skew::Zipf)),
    open("3 x the rate", 30, None),
    open("3 x the rate, Zipf", 30, Some(Skew::Zipf)),
    open("0.9 x the rate", 9, None),
];

impl Case {
    fn scenario(&self, rate: u32, nodes: u32, round_trip: Duration, seed: u64) -> Scenario {
        let (seconds, from_s) = if rate < HIGH { (130, 30) } else { (20, 10) };
        let span = |from_s, to_s| Span { from: Duration::from_secs(from_s), to: Duration::from_secs(to_s) };
        let cluster =
            Cluster { round_trip, is_spread: self.is_spread, skew: self.skew, ..Cluster::new(nodes) };
        Scenario {
            law: "pace".into(),
            options: vec![],
            rate: per_day(u64::from(rate) * 86_400),
            burst: rate.max(10),
            load: Load {
                clients: self.clients.parse().expect("a number of clients"),
                attack: (self.open > 0).then(|| per_day(u64::from(rate * self.open) * 8_640)),
                ..Load::default()
            },
            cluster: (nodes > 1).then_some(cluster),
            seconds,
            measured: vec![span(from_s, seconds.into())],
            seed,
        }
    }

    /// The worst of all seeds: the error of the mean and of the fullest second. Below the rate, requests refused and
    /// the 99th percentile of the delay.
    fn cell(&self, rate: u32, nodes: u32, round_trip: Duration, seeds: u64) -> Result<String, ScenarioError> {
        let (mut error, mut worst, mut denied, mut p99_ms) = (0.0_f64, f64::NEG_INFINITY, 0.0_f64, 0);
        for seed in 1..=seeds {
            let scenario = self.scenario(rate, nodes, round_trip, seed);
            let phase = scenario.run(|_| ())?.phases.remove(0);
            let of_seed = phase.all.error(scenario.rate).unwrap_or_default();
            error = if of_seed.abs() > error.abs() { of_seed } else { error };
            worst = worst.max(phase.worst.unwrap_or_default());
            let all = (phase.all.denied + phase.all.let_through).max(1);
            denied = denied.max(phase.all.denied as f64 / all as f64);
            p99_ms = p99_ms.max(phase.all.p99_ms.unwrap_or_default());
        }
        Ok(match self.open {
            9 => format!("{:.1} %, {p99_ms} ms", 100.0 * denied),
            _ => format!("{:+.1}, {:+.0}", 100.0 * error + 0.0, 100.0 * worst + 0.0),
        })
    }
}

/// The suite as a table in Markdown. `progress` gets the finished and all cells.
///
/// # Errors
/// A scenario exceeds a limit.
pub fn suite(
    round_trip: Duration,
    seeds: u64,
    progress: impl Fn(usize, usize) + Sync,
) -> Result<String, ScenarioError> {
    let all: Vec<(Case, u32, u32)> = CASES
        .into_iter()
        .flat_map(|case| RATES.map(|rate| NODES.map(|nodes| (case, rate, nodes))))
        .flatten()
        .collect();
    let (next, cells) = (AtomicUsize::new(0), Mutex::new(vec![String::new(); all.len()]));
    let work = || -> Result<(), ScenarioError> {
        loop {
            let place = next.fetch_add(1, Relaxed);
            let Some(&(case, rate, nodes)) = all.get(place) else { return Ok(()) };
            let cell = case.cell(rate, nodes, round_trip, seeds)?;
            cells.lock().unwrap_or_else(PoisonError::into_inner)[place] = cell;
            progress(place, all.len());
        }
    };
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        running.into_iter().try_for_each(|thread| thread.join().expect("a run does not panic"))
    })?;
    let cells = cells.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut text = format!("| load | rate |{}\n", NODES.map(|nodes| format!(" {nodes} |")).concat());
    text += &format!("| --- | --- |{}\n", " --- |".repeat(NODES.len()));
    for (row, cells) in all.chunks(NODES.len()).zip(cells.chunks(NODES.len())) {
        let (case, rate, _) = row[0];
        text += &format!("| {} | {rate}/s | {} |\n", case.name, cells.join(" | "));
    }
    Ok(text)
}

fn per_day(requests: u64) -> Rate {
    format!("{requests}/d").parse().expect("a rate")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cell_is_a_scenario_and_says_the_worst_of_its_seeds() {
        for (case, rate, nodes) in CASES.into_iter().flat_map(|case| RATES.map(|rate| (case, rate, 300))) {
            assert_eq!(
                case.scenario(rate, nodes, Duration::from_millis(50), 1).check(),
                Ok(()),
                "{}",
                case.name
            );
        }
        // 40 clients at 1/s on three nodes, and nine tenths of 10/s on one.
        let cell = |case: &Case, rate, nodes| case.cell(rate, nodes, Duration::from_millis(50), 2).unwrap();
        assert_eq!(cell(&CASES[1], 1, 3), "+0.0, +0");
        assert_eq!(cell(&CASES[7], 50, 1), "0.0 %, 0 ms");
    }
}
