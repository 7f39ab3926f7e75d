//! Counts of verdicts and a histogram of delays, in constant memory.

use serde::Serialize;

use crate::columns::{ReportCell, or_none};
use slowlane_core::base::histogram::{bin, bounds};
use slowlane_core::base::{Amount, Kind, Verdict};

/// The number of bins per power of two. A percentile is off by at most a 64th of its value, and exact up to 128 ms.
const BINS_PER_DOUBLING: u64 = 64;

/// Counts of verdicts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ReplayCounts {
    pub requests: u64,
    pub delayed: u64,
    pub denied: u64,
    /// The sum of the delays.
    pub delay_ms: u64,
    pub longest_ms: u64,
}

impl ReplayCounts {
    pub(super) fn count(&mut self, verdict: Verdict) {
        self.requests += 1;
        match verdict {
            Verdict::Pass => {}
            Verdict::Deny { .. } => self.denied += 1,
            Verdict::Delay(_) => {
                let ms = verdict.delay_ms();
                self.delayed += 1;
                self.delay_ms = self.delay_ms.saturating_add(ms);
                self.longest_ms = self.longest_ms.max(ms);
            }
        }
    }

    /// The mean over delayed requests.
    pub fn mean_ms(&self) -> Option<f64> {
        (self.delayed > 0).then(|| self.delay_ms as f64 / self.delayed as f64)
    }

    pub fn max_ms(&self) -> Option<u64> {
        (self.delayed > 0).then_some(self.longest_ms)
    }

    pub(crate) fn cells(&self) -> [ReportCell; 5] {
        [
            ("requests", self.requests.to_string()),
            ("delayed", self.delayed.to_string()),
            ("denied", self.denied.to_string()),
            ("mean ms", or_none(self.mean_ms().map(|ms| format!("{ms:.1}")))),
            ("max ms", or_none(self.max_ms())),
        ]
    }
}

/// The work of requests under an SLO with a unit. If a request has no measure, its reservation counts instead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkDone {
    /// Millionths of the unit, by verdict.
    micros: [u128; 3],
    /// The number of requests without a measure.
    pub unmeasured: u64,
}

impl WorkDone {
    pub(super) fn count(&mut self, verdict: Verdict, amount: Amount) {
        self.micros[verdict.kind().index()] += u128::from(amount.micros());
    }

    /// The work, in units, of all requests with these verdicts.
    pub fn of(&self, kinds: &[Kind]) -> f64 {
        let micros: u128 = kinds.iter().map(|kind| self.micros[kind.index()]).sum();
        micros as f64 / Amount::UNIT as f64
    }

    /// The work requested, used, delayed and denied.
    pub(super) fn figures(&self) -> [f64; 4] {
        [&Kind::ALL[..], &[Kind::Pass, Kind::Delay], &[Kind::Delay], &[Kind::Deny]]
            .map(|kinds| self.of(kinds))
    }
}

/// Counts of verdicts, and counts of delayed requests by the length of the delay.
#[derive(Clone, Debug, Default)]
pub struct ReplayTally {
    pub counts: ReplayCounts,
    /// The work, under an SLO with a unit.
    pub work: WorkDone,
    pub(super) bins: Vec<u32>,
}

impl ReplayTally {
    pub(super) fn count(&mut self, verdict: Verdict) {
        self.counts.count(verdict);
        if let Verdict::Delay(_) = verdict {
            let bin = bin(verdict.delay_ms(), BINS_PER_DOUBLING);
            if self.bins.len() <= bin {
                self.bins.resize(bin + 1, 0);
            }
            self.bins[bin] = self.bins[bin].saturating_add(1);
        }
    }

    /// This percentile of the delay, over delayed requests.
    pub(super) fn percentile_ms(&self, percent: u64) -> Option<u64> {
        let rank = (self.counts.delayed * percent).div_ceil(100);
        let mut below = 0;
        let found = self.bins.iter().position(|&count| {
            below += u64::from(count);
            count > 0 && below >= rank
        });
        found.map(|bin| (bounds(bin, BINS_PER_DOUBLING).1 - 1).min(self.counts.longest_ms))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn delays_are_over_delayed_requests() {
        let mut tally = ReplayTally::default();
        for ms in 1..=100 {
            tally.count(Verdict::Delay(Duration::from_millis(ms)));
        }
        tally.count(Verdict::Pass);
        tally.count(Verdict::Deny { retry_after_s: 1 });
        let counts = tally.counts;
        assert_eq!((counts.requests, counts.delayed, counts.denied), (102, 100, 1));
        assert_eq!((counts.mean_ms(), counts.max_ms()), (Some(50.5), Some(100)));
        assert_eq!([50, 99].map(|percent| tally.percentile_ms(percent)), [Some(50), Some(99)]);
        assert_eq!(
            (ReplayTally::default().percentile_ms(50), ReplayCounts::default().max_ms()),
            (None, None)
        );
    }

    proptest! {
        #[test]
        fn a_bin_is_close_to_the_delays_in_it(ms in 0u64..1 << 40) {
            let value = bounds(bin(ms, BINS_PER_DOUBLING), BINS_PER_DOUBLING).1 - 1;
            prop_assert!(value >= ms && value - ms <= ms / 64, "{ms}: {value}");
            prop_assert!(ms >= 128 || value == ms);
        }
    }
}
