//! The outcome of a run: rates, delays, refusals, and how soon and how evenly.

use std::ops::Range;

use crate::base::units::Rate;
use crate::tools::simulate::load::{Phases, Who};
use crate::tools::simulate::record::{BIN_NS, Bin, Record, Seen, Shown, Tally};
use crate::tools::simulate::scenario::Scenario;

/// What a scenario came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    pub law: String,
    pub clients: Phases,
    pub seconds: u32,
    pub rate: Rate,
    /// Its objective is a rate, which it can be held against.
    pub aims_at_rate: bool,
    /// Requests that the law had no room to remember, judged by the simpler one.
    pub fallbacks: u64,
    pub phases: Vec<Phase>,
    /// Per fifth of a second: how many were let through, and for how many milliseconds these waited in all.
    pub(super) series: Vec<(u32, u64)>,
    /// The series are of the clients' requests only.
    pub(super) is_of_clients: bool,
}

/// A part of the run with one number of clients; of its time the last three quarters are measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    pub clients: u32,
    pub measured_s: Range<f64>,
    pub all: Figures,
    /// Where more than one group asks, the figures of each.
    pub groups: Vec<(Who, Figures)>,
    /// After how many seconds every 1-s count is within 10 % of the rate, or one request of it; None: never.
    pub settled_s: Option<f64>,
    /// Jain's index of fairness over the sources: 1 where all get the same, 1/n where one of n gets all.
    pub jain: Option<f64>,
}

/// What became of the requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    pub rate_per_s: f64,
    pub let_through: u64,
    pub denied: u64,
    /// Their clients had left before their turn; they are not among those let through.
    pub left: u64,
    pub p50_ms: Option<u64>,
    pub p99_ms: Option<u64>,
}

/// How far a count of one second may be off the rate.
const TOLERANCE: f64 = 0.1;

const BINS_PER_S: usize = (1_000_000_000 / BIN_NS) as usize;

impl Outcome {
    pub(super) fn new(scenario: &Scenario, record: &Record) -> Outcome {
        let phases = record.phases.iter().enumerate();
        Outcome {
            law: scenario.law.clone(),
            clients: scenario.load.clients.clone(),
            seconds: scenario.seconds,
            rate: scenario.rate,
            aims_at_rate: record.aims_at_rate,
            fallbacks: record.fallbacks,
            phases: phases.map(|(number, seen)| Phase::new(scenario, record, number, seen)).collect(),
            series: record.bins.iter().map(|bin| (bin.shown, bin.shown_delay_ms)).collect(),
            is_of_clients: record.shown() == Shown::Clients,
        }
    }
}

impl Phase {
    fn new(scenario: &Scenario, record: &Record, number: usize, seen: &Seen) -> Phase {
        let load = &scenario.load;
        let clients = load.clients.counts()[number];
        let seconds = (seen.until_ns - seen.from_ns) as f64 / 1e9;
        let mut all = Tally::default();
        seen.tallies.iter().for_each(|tally| all.add(tally));
        let present: Vec<Who> = Who::ALL.into_iter().filter(|&who| load.has(who)).collect();
        let group = |&who: &Who| (who, Figures::new(&seen.tallies[who as usize], seconds));
        let groups = if present.len() > 1 { present.iter().map(group).collect() } else { Vec::new() };
        let others = present.iter().filter(|&&who| who != Who::Client).map(|&who| load.source(who, 0));
        let shares: Vec<u64> =
            (0..clients).chain(others).map(|source| seen.sources[source as usize]).collect();
        let starts_ns = record.phase_starts_ns(number);
        Phase {
            clients,
            measured_s: seen.from_ns as f64 / 1e9..seen.until_ns as f64 / 1e9,
            all: Figures::new(&all, seconds),
            groups,
            settled_s: settled_s(record, starts_ns..seen.until_ns, scenario.rate),
            jain: jain(&shares),
        }
    }

    pub fn group(&self, who: Who) -> Option<&Figures> {
        self.groups.iter().find(|(group, _)| *group == who).map(|(_, figures)| figures)
    }
}

impl Figures {
    fn new(tally: &Tally, seconds: f64) -> Figures {
        Figures {
            rate_per_s: tally.let_through as f64 / seconds,
            let_through: tally.let_through,
            denied: tally.denied,
            left: tally.left,
            p50_ms: tally.percentile_ms(50),
            p99_ms: tally.percentile_ms(99),
        }
    }

    /// How far the rate is off the objective, as a part of that; None for an objective of 0.
    pub fn error(&self, objective: Rate) -> Option<f64> {
        (!objective.is_zero()).then(|| self.rate_per_s / objective.per_second() - 1.0)
    }

    /// How many of the requests were denied, as a part of them all.
    pub fn denied_share(&self) -> Option<f64> {
        self.share(self.denied)
    }

    pub fn left_share(&self) -> Option<f64> {
        self.share(self.left)
    }

    fn share(&self, count: u64) -> Option<f64> {
        let asked = self.let_through + self.denied + self.left;
        (asked > 0).then(|| count as f64 / asked as f64)
    }
}

/// The start of the first of the 1-s windows that are all right until the end of the phase.
fn settled_s(record: &Record, phase_ns: Range<u64>, rate: Rate) -> Option<f64> {
    let first = phase_ns.start.div_ceil(BIN_NS) as usize;
    // A phase may be shorter than a bin.
    let bins = record.bins.get(first..(phase_ns.end / BIN_NS) as usize)?;
    let is_right = |window: &[_]| is_within(window, rate.per_second());
    let windows = bins.windows(BINS_PER_S);
    let settled = windows.clone().rposition(|window| !is_right(window)).map_or(0, |wrong| wrong + 1);
    (settled < windows.len()).then(|| {
        let starts_ns = (first + settled) as u64 * BIN_NS;
        (starts_ns - phase_ns.start) as f64 / 1e9
    })
}

fn is_within(window: &[Bin], rate_per_s: f64) -> bool {
    let count: u32 = window.iter().map(|bin| bin.all).sum();
    (f64::from(count) - rate_per_s).abs() <= (rate_per_s * TOLERANCE).max(1.0)
}

/// (sum x)² / (n * sum x²), of R. Jain, D. Chiu and W. Hawe (DEC-TR-301, 1984).
fn jain(shares: &[u64]) -> Option<f64> {
    let sum: f64 = shares.iter().map(|&share| share as f64).sum();
    let squares: f64 = shares.iter().map(|&share| share as f64 * share as f64).sum();
    (shares.len() > 1 && sum > 0.0).then(|| sum * sum / (shares.len() as f64 * squares))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jains_index_is_one_where_all_get_the_same() {
        assert_eq!(jain(&[5, 5, 5, 5]), Some(1.0));
        assert_eq!(jain(&[5, 0, 0, 0]), Some(0.25));
        assert_eq!(jain(&[3, 1]), Some(16.0 / 20.0));
        assert_eq!((jain(&[5]), jain(&[0, 0])), (None, None));
    }
}
