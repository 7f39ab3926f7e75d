//! The outcome of a run: rates, delays, denials, settling time and fairness.

use std::ops::Range;

use serde::Serialize;

use crate::simulate::record::{Asked, BIN_NS, BINS_PER_S, PhaseSeen, Record, Tally};
use crate::simulate::{Scenario, Who};

/// The outcome of a scenario.
#[derive(Clone, Debug)]
pub struct SimulationOutcome {
    pub scenario: Scenario,
    pub phases: Vec<Phase>,
    pub(super) record: Record,
}

/// A part of the run with one number of clients. Its last three quarters are measured, or the part that the scenario
/// names.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Phase {
    pub clients: u32,
    /// The start and the end of the measured part.
    pub measured_s: [f64; 2],
    /// The figures of all requests, followed by the figures of each group if there are several groups.
    pub figures: Vec<Figures>,
    /// The relative error of the rate. None if the objective is 0.
    pub error: Option<f64>,
    /// Seconds until every later 1-s count is within 10 % of the rate, or within one request of it. None if never.
    pub settled_s: Option<f64>,
    /// Jain's fairness index over the sources: 1 if all sources get the same, 1/n if one of n gets everything. If the
    /// load is only an attacker, the index compares the fraction of its requests that each node admits.
    pub jain: Option<f64>,
    /// The relative difference between the objective and the fullest second. None if the run has no whole measured
    /// second, or if the objective is 0.
    pub worst: Option<f64>,
    /// The rate at which key updates reached the store of the nodes.
    pub messages_per_s: f64,
}

/// The figures of a group of requests.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// [`Figures::ALL`], or the name of the group.
    pub who: &'static str,
    /// The admitted rate, in the unit of the objective.
    pub rate_per_s: f64,
    pub let_through: u64,
    pub denied: u64,
    /// The number of requests whose clients disconnected before their turn. Such requests do not count as admitted.
    pub left: u64,
    pub p50_ms: Option<u64>,
    pub p99_ms: Option<u64>,
}

/// The allowed error of a 1-s count.
const TOLERANCE: f64 = 0.1;

/// The interval, in bins, between the starts of two successive 1-s windows in the search for the settling time.
const STEP_BINS: usize = 2;

/// If a node gets no more requests than this, the fraction of requests that it admits is noise.
const ASKED_MIN: u64 = 20;

impl SimulationOutcome {
    pub(super) fn new(scenario: &Scenario, record: Record) -> SimulationOutcome {
        let phases = record.phases.iter().enumerate();
        let phases = phases.map(|(number, seen)| Phase::new(scenario, &record, number, seen)).collect();
        SimulationOutcome { scenario: scenario.clone(), phases, record }
    }
}

impl Phase {
    fn new(scenario: &Scenario, record: &Record, number: usize, seen: &PhaseSeen) -> Phase {
        let load = &scenario.load;
        let counts = load.clients.counts();
        let phase = (seen.from_ns / record.phase_ns) as usize;
        let clients = counts[phase.min(counts.len() - 1)];
        let seconds = (seen.until_ns - seen.from_ns) as f64 / 1e9;
        let mut all = Tally::default();
        seen.tallies.iter().for_each(|tally| all.add(tally));
        let present: Vec<Who> = Who::ALL.into_iter().filter(|&who| load.has(who)).collect();
        let all = Figures::new(Figures::ALL, &all, seconds);
        let group = |&who: &Who| Figures::new(who.name(), &seen.tallies[who as usize], seconds);
        let groups = present.iter().filter(|_| present.len() > 1).map(group);
        let others = present.iter().filter(|&&who| who != Who::Client).flat_map(|&who| load.sources(who));
        let sources = (0..clients).chain(others).map(|source| seen.sources[source as usize]);
        let shares: Vec<f64> = match present[..] {
            [Who::Attacker] => shares_of_nodes(&seen.nodes),
            _ => sources.collect(),
        };
        let starts_ns = number.checked_sub(1).map_or(0, |before| record.phases[before].until_ns);
        Phase {
            clients,
            measured_s: [seen.from_ns, seen.until_ns].map(|at_ns| at_ns as f64 / 1e9),
            error: all.error(record.per_s),
            figures: [all].into_iter().chain(groups).collect(),
            settled_s: settled_s(record, starts_ns..seen.until_ns),
            jain: jain(&shares),
            worst: worst(record, seen.from_ns..seen.until_ns),
            messages_per_s: seen.messages as f64 / seconds,
        }
    }

    /// The figures of all requests.
    pub fn all(&self) -> Figures {
        self.figures[0]
    }
}

impl Figures {
    /// The name of all groups together.
    pub const ALL: &str = "all";

    fn new(who: &'static str, tally: &Tally, seconds: f64) -> Figures {
        Figures {
            who,
            rate_per_s: tally.units / seconds,
            let_through: tally.let_through,
            denied: tally.denied,
            left: tally.left,
            p50_ms: tally.percentile_ms(50),
            p99_ms: tally.percentile_ms(99),
        }
    }

    /// The relative error of the rate. None if the objective is 0.
    pub fn error(&self, objective_per_s: f64) -> Option<f64> {
        (objective_per_s > 0.0).then(|| self.rate_per_s / objective_per_s - 1.0)
    }
}

/// The seconds from the start of a phase until all later 1-s windows are within the tolerance.
fn settled_s(record: &Record, phase_ns: Range<u64>) -> Option<f64> {
    let first = phase_ns.start.div_ceil(STEP_BINS as u64 * BIN_NS) as usize * STEP_BINS;
    // A phase can be shorter than a bin.
    let bins = record.bins.get(first..(phase_ns.end / BIN_NS) as usize)?;
    let allowed = (record.per_s * TOLERANCE).max(1.0);
    let is_right = |window: &[f64]| (window.iter().sum::<f64>() - record.per_s).abs() <= allowed;
    let windows = bins.windows(BINS_PER_S).step_by(STEP_BINS);
    let settled = windows.clone().rposition(|window| !is_right(window)).map_or(0, |wrong| wrong + 1);
    (settled < windows.len()).then(|| {
        let starts_ns = (first + STEP_BINS * settled) as u64 * BIN_NS;
        (starts_ns - phase_ns.start) as f64 / 1e9
    })
}

/// (sum x)² / (n * sum x²): the index of R. Jain, D. Chiu and W. Hawe (DEC-TR-301, 1984).
fn jain(shares: &[f64]) -> Option<f64> {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    (shares.len() > 1 && sum > 0.0).then(|| sum * sum / (shares.len() as f64 * squares))
}

/// The fraction of requests that each busy node admits.
fn shares_of_nodes(nodes: &[Asked]) -> Vec<f64> {
    let busy = nodes.iter().filter(|node| node.all > ASKED_MIN);
    busy.map(|node| node.let_through as f64 / node.all as f64).collect()
}

/// The relative difference between the objective and the fullest second. Seconds may begin at any tenth of a second.
fn worst(record: &Record, measured_ns: Range<u64>) -> Option<f64> {
    let first = measured_ns.start.div_ceil(BIN_NS) as usize;
    let bins = record.bins.get(first..(measured_ns.end / BIN_NS) as usize)?;
    let most = bins.windows(BINS_PER_S).map(|window| window.iter().sum()).reduce(f64::max)?;
    (record.per_s > 0.0).then(|| most / record.per_s - 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jains_index_is_one_where_all_get_the_same() {
        assert_eq!(jain(&[5.0, 5.0, 5.0, 5.0]), Some(1.0));
        assert_eq!(jain(&[5.0, 0.0, 0.0, 0.0]), Some(0.25));
        assert_eq!(jain(&[3.0, 1.0]), Some(16.0 / 20.0));
        assert_eq!((jain(&[5.0]), jain(&[0.0, 0.0])), (None, None));
    }
}
