//! What is observed in a run, in memory that does not grow with the number of requests.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::simulate::{Scenario, Who};
use slowlane_core::base::Unit;
use slowlane_core::policy::Slo;

/// The length of a bin of a series: a tenth of a second.
pub(super) const BIN_NS: u64 = 1_000_000_000 / BINS_PER_S as u64;

pub(super) const BINS_PER_S: usize = 10;

/// The number of quarters of each phase that are not measured, because the law needs this time to settle.
const SETTLING_QUARTERS: u64 = 1;

/// Longer delays are stored in whole seconds.
const EXACT_MS_MAX: u64 = 60_000;

/// What is observed in a run. Times are in nanoseconds since the start of the run.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) phase_ns: u64,
    /// Whether the objective is a rate.
    pub(super) aims_at_rate: bool,
    /// The objective's rate, as written on its line and per second, and the objective's unit if it counts work.
    pub(super) rate: String,
    pub(super) per_s: f64,
    pub(super) unit: Option<Unit>,
    /// The number of requests that a simpler law judged, because auxiliary memory ran out.
    pub(super) fallbacks: u64,
    pub(super) phases: Vec<PhaseSeen>,
    /// The number of requests admitted in each bin, or the requests' work in the unit of the objective.
    pub(super) bins: Vec<f64>,
}

/// The measured part of a phase, or one of the measured parts that the scenario names.
#[derive(Clone, Debug)]
pub(super) struct PhaseSeen {
    pub(super) from_ns: u64,
    pub(super) until_ns: u64,
    pub(super) tallies: [Tally; Who::ALL.len()],
    /// The number of admitted requests, or the work of these requests, by source.
    pub(super) sources: Vec<f64>,
    /// Requests by node.
    pub(super) nodes: Vec<Asked>,
    /// The number of key updates that reached the store of the nodes.
    pub(super) messages: u64,
}

/// How many requests a node received, and how many of these it admitted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Asked {
    pub(super) all: u64,
    pub(super) let_through: u64,
}

/// Counts of one group.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    pub(super) let_through: u64,
    /// The admitted work, in the unit of the objective.
    pub(super) units: f64,
    pub(super) denied: u64,
    pub(super) left: u64,
    /// Admitted requests, by their delay in milliseconds.
    pub(super) delays: BTreeMap<u64, u64>,
}

impl Record {
    pub(super) fn new(scenario: &Scenario, slo: &Slo) -> Record {
        let load = &scenario.load;
        let phases = load.clients.counts().len() as u64;
        let end_ns = u64::from(scenario.seconds) * 1_000_000_000;
        let phase_ns = end_ns / phases;
        let sources = load.sources(Who::Crowd).end as usize;
        let nanos = |moment: Duration| moment.as_nanos() as u64;
        let settling_ns = phase_ns * SETTLING_QUARTERS / 4;
        let of_phase = |phase: u64| {
            let ends_ns = if phase + 1 == phases { end_ns } else { (phase + 1) * phase_ns };
            (phase * phase_ns + settling_ns, ends_ns)
        };
        let measured_ns: Vec<(u64, u64)> = match &scenario.measured[..] {
            [] => (0..phases).map(of_phase).collect(),
            named => named.iter().map(|span| (nanos(span.from), nanos(span.to))).collect(),
        };
        let seen = |(from_ns, until_ns)| PhaseSeen {
            from_ns,
            until_ns,
            tallies: Default::default(),
            sources: vec![0.0; sources],
            nodes: vec![Asked::default(); scenario.cluster.nodes as usize],
            messages: 0,
        };
        Record {
            phase_ns,
            aims_at_rate: !slo.law.counts_ends(),
            rate: slo.rate(),
            per_s: slo.units(slo.objective.rate.per_second()),
            unit: slo.unit().cloned(),
            fallbacks: 0,
            phases: measured_ns.into_iter().map(seen).collect(),
            bins: vec![0.0; (end_ns / BIN_NS) as usize],
        }
    }

    pub(super) fn phase_starts_ns(&self, phase: usize) -> u64 {
        phase as u64 * self.phase_ns
    }

    /// Counts a request admitted at this moment, after this delay. `units` is its cost: 1 unless work is counted.
    pub(super) fn let_through(&mut self, at_ns: u64, who: Who, source: u32, delay_ms: u64, units: f64) {
        if let Some(bin) = self.bins.get_mut((at_ns / BIN_NS) as usize) {
            *bin += units;
        }
        self.seen(at_ns, |seen| {
            seen.sources[source as usize] += units;
            let tally = &mut seen.tallies[who as usize];
            tally.let_through += 1;
            tally.units += units;
            *tally.delays.entry(kept_ms(delay_ms)).or_default() += 1;
        });
    }

    /// Counts a request that a node has judged.
    pub(super) fn asked(&mut self, at_ns: u64, node: u32, passes: bool) {
        self.seen(at_ns, |seen| {
            let asked = &mut seen.nodes[node as usize];
            asked.all += 1;
            asked.let_through += u64::from(passes);
        });
    }

    /// Calls `count` for the measured part that contains a moment, if there is one.
    pub(super) fn seen(&mut self, at_ns: u64, count: impl FnOnce(&mut PhaseSeen)) {
        let part = self.phases.partition_point(|seen| seen.until_ns <= at_ns);
        if let Some(seen) = self.phases.get_mut(part).filter(|seen| seen.from_ns <= at_ns) {
            count(seen);
        }
    }
}

fn kept_ms(delay_ms: u64) -> u64 {
    if delay_ms <= EXACT_MS_MAX { delay_ms } else { delay_ms - delay_ms % 1_000 }
}

impl Tally {
    pub(super) fn add(&mut self, other: &Tally) {
        self.let_through += other.let_through;
        self.units += other.units;
        self.denied += other.denied;
        self.left += other.left;
        for (&ms, count) in &other.delays {
            *self.delays.entry(ms).or_default() += count;
        }
    }

    /// The delay that `percent` percent of the admitted requests did not exceed.
    pub(super) fn percentile_ms(&self, percent: u64) -> Option<u64> {
        let rank = (self.let_through * percent).div_ceil(100);
        let mut below = 0;
        self.delays.iter().find_map(|(&ms, count)| {
            below += count;
            (below >= rank).then_some(ms)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_use_the_nearest_rank() {
        let mut tally = Tally { let_through: 200, ..Tally::default() };
        tally.delays = BTreeMap::from([(1, 100), (2, 97), (700, 3)]);
        assert_eq!([50, 51, 98, 99].map(|percent| tally.percentile_ms(percent)), [1, 2, 2, 700].map(Some));
        assert_eq!(Tally::default().percentile_ms(50), None);
        assert_eq!([kept_ms(60_000), kept_ms(61_999)], [60_000, 61_000]);
    }
}
