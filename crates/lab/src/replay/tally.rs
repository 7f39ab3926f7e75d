//! Counts of verdicts and a histogram of delays, in constant memory.

use slowlane_core::base::verdict::Verdict;

/// Bins per power of two. A percentile is off by a 64th at most, and exact up to 128 ms.
const BINS_PER_DOUBLING: u64 = 64;

/// Counts of verdicts.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    pub(super) requests: u64,
    pub(super) delayed: u64,
    pub(super) denied: u64,
    delay_ms: u64,
    longest_ms: u64,
    /// Delayed requests by the length of their delay.
    bins: Vec<u32>,
}

/// The figures of a tally. Delays are over delayed requests only.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    pub requests: u64,
    pub delayed: u64,
    pub denied: u64,
    pub mean_ms: Option<f64>,
    pub p50_ms: Option<u64>,
    pub p99_ms: Option<u64>,
    pub max_ms: Option<u64>,
}

impl Figures {
    /// Requests that passed, at once or after a delay.
    pub fn let_through(&self) -> u64 {
        self.requests - self.denied
    }

    pub fn passed(&self) -> u64 {
        self.requests - self.denied - self.delayed
    }
}

impl Tally {
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
                let bin = bin(ms);
                if self.bins.len() <= bin {
                    self.bins.resize(bin + 1, 0);
                }
                self.bins[bin] = self.bins[bin].saturating_add(1);
            }
        }
    }

    pub(super) fn figures(&self) -> Figures {
        let is_any = self.delayed > 0;
        Figures {
            requests: self.requests,
            delayed: self.delayed,
            denied: self.denied,
            mean_ms: is_any.then(|| self.delay_ms as f64 / self.delayed as f64),
            p50_ms: self.percentile_ms(50),
            p99_ms: self.percentile_ms(99),
            max_ms: is_any.then_some(self.longest_ms),
        }
    }

    fn percentile_ms(&self, percent: u64) -> Option<u64> {
        let rank = (self.delayed * percent).div_ceil(100);
        let mut below = 0;
        let found = self.bins.iter().position(|&count| {
            below += u64::from(count);
            count > 0 && below >= rank
        });
        found.map(|bin| value(bin).min(self.longest_ms))
    }
}

fn bin(ms: u64) -> usize {
    let doublings = (ms / BINS_PER_DOUBLING).checked_ilog2().map_or(0, u64::from);
    (doublings * BINS_PER_DOUBLING + (ms >> doublings)) as usize
}

/// The longest delay that a bin counts.
fn value(bin: usize) -> u64 {
    let bin = bin as u64;
    let doublings = (bin / BINS_PER_DOUBLING).saturating_sub(1);
    ((bin - doublings * BINS_PER_DOUBLING + 1) << doublings) - 1
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn delays_are_over_delayed_requests() {
        let mut tally = Tally::default();
        for ms in 1..=100 {
            tally.count(Verdict::Delay(Duration::from_millis(ms)));
        }
        tally.count(Verdict::Pass);
        tally.count(Verdict::Deny { retry_after_s: 1 });
        let figures = tally.figures();
        assert_eq!((figures.requests, figures.passed(), figures.let_through()), (102, 1, 101));
        assert_eq!(
            (figures.mean_ms, figures.p50_ms, figures.p99_ms, figures.max_ms),
            (Some(50.5), Some(50), Some(99), Some(100))
        );
        assert_eq!(Tally::default().figures(), Figures::default());
    }

    proptest! {
        #[test]
        fn a_bin_is_close_to_the_delays_in_it(ms in 0u64..1 << 40) {
            let value = value(bin(ms));
            prop_assert!(value >= ms && value - ms <= ms / 64, "{ms}: {value}");
            prop_assert!(ms >= 128 || value == ms);
        }
    }
}
