//! A lock-free histogram of delays.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use slowlane_core::base::histogram::{bin, bounds};

/// The number of buckets for each power of two: with 16, the error of a quantile is at most 6 %.
const PARTS: u64 = 16;

/// Delays above 2^20 ms, about 17 minutes, share the last bucket.
const OCTAVES: usize = 20;

const BUCKETS: usize = (OCTAVES - PARTS.ilog2() as usize + 1) * PARTS as usize;

/// The number of delays of each length. Counting a delay takes two atomic operations.
///
/// ```text
///  bucket   0    1   …   15     16  …   31      32  …      47      48  …
///  ms       1    2   …   16     17  …   32   33-34  …   63-64   65-68  …
/// ```
#[derive(Debug)]
pub struct Delays {
    buckets: [AtomicU64; BUCKETS],
    sum_us: AtomicU64,
}

impl Default for Delays {
    fn default() -> Delays {
        Delays { buckets: [const { AtomicU64::new(0) }; BUCKETS], sum_us: AtomicU64::new(0) }
    }
}

impl Delays {
    pub fn count(&self, delay: Duration) {
        self.buckets[bucket(delay)].fetch_add(1, Relaxed);
        self.sum_us.fetch_add(delay.as_micros() as u64, Relaxed);
    }

    /// The counts at this moment.
    pub fn counts(&self) -> DelayCounts {
        DelayCounts(std::array::from_fn(|bucket| self.buckets[bucket].load(Relaxed)))
    }
}

/// The bucket of a delay. Rounded up to whole milliseconds, the delay is above the bucket's lower bound and at most its
/// upper bound.
fn bucket(delay: Duration) -> usize {
    let above_ms = delay.as_nanos().div_ceil(1_000_000).saturating_sub(1);
    bin(above_ms.min((1 << OCTAVES) - 1) as u64, PARTS)
}

/// The number of delays in each bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DelayCounts([u64; BUCKETS]);

impl Default for DelayCounts {
    fn default() -> DelayCounts {
        DelayCounts([0; BUCKETS])
    }
}

impl DelayCounts {
    /// The delays counted after `earlier`.
    pub fn since(&self, earlier: &DelayCounts) -> DelayCounts {
        DelayCounts(std::array::from_fn(|bucket| self.0[bucket].saturating_sub(earlier.0[bucket])))
    }

    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The delay in milliseconds at a quantile (0 to 1); `None` without delays.
    ///
    /// ```
    /// use std::time::Duration;
    /// use slowlane::observe::delays::Delays;
    /// let delays = Delays::default();
    /// (1..=10).for_each(|ms| delays.count(Duration::from_millis(ms)));
    /// assert_eq!(delays.counts().quantile_ms(0.5), Some(5));
    /// assert_eq!(delays.counts().quantile_ms(0.99), Some(10));
    /// ```
    pub fn quantile_ms(&self, quantile: f64) -> Option<u64> {
        let total = self.total();
        let rank = ((total as f64 * quantile).ceil() as u64).clamp(1, total.max(1));
        let mut before = 0;
        for (bucket, &count) in self.0.iter().enumerate() {
            if before + count >= rank && count > 0 {
                let (low, high) = bounds(bucket, PARTS);
                // Assumes that delays are spread evenly over their bucket.
                return Some(low + ((high - low) * (rank - before)).div_ceil(count));
            }
            before += count;
        }
        None
    }
}

/// Exports one Prometheus bucket for each power of two.
impl Collector for Delays {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let counts = self.counts();
        let mut buckets: Vec<(f64, u64)> = Vec::new();
        let (mut sum, mut total) = (0, 0);
        for (bucket, count) in counts.0.into_iter().enumerate() {
            (sum, total) = (sum + count, total + count);
            let (_, high) = bounds(bucket, PARTS);
            if high.is_power_of_two() && high < 1 << OCTAVES {
                buckets.push((high as f64 / 1e3, std::mem::take(&mut sum)));
            }
        }
        buckets.push((f64::MAX, sum));
        let help = "Delays of requests";
        let mut metric =
            encoder.encode_descriptor("delay", help, Some(&Unit::Seconds), MetricType::Histogram)?;
        let seconds = self.sum_us.load(Relaxed) as f64 / 1e6;
        metric.encode_histogram::<NoLabelSet>(seconds, total, &buckets, None)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_delay_is_within_the_bounds_of_its_bucket(ms in 1u64..1 << OCTAVES) {
            let (low, high) = bounds(bucket(Duration::from_millis(ms)), PARTS);
            prop_assert!(low < ms && ms <= high, "{ms} in {low}..{high}");
            prop_assert!((high - low) * PARTS <= ms.max(PARTS), "{ms} in {low}..{high}");
        }

        #[test]
        fn buckets_are_in_the_order_of_their_delays(one_us in 0u64..1 << 40, other_us in 0u64..1 << 40) {
            let [one, other] = [one_us.min(other_us), one_us.max(other_us)].map(Duration::from_micros);
            prop_assert!(bucket(one) <= bucket(other));
            prop_assert!(bucket(other) < BUCKETS);
        }

        #[test]
        fn a_quantile_is_off_by_little(mut ms in prop::collection::vec(1u64..100_000, 1..200)) {
            let delays = Delays::default();
            ms.iter().for_each(|&ms| delays.count(Duration::from_millis(ms)));
            ms.sort_unstable();
            for quantile in [0.5, 0.99, 1.0] {
                let exact = ms[(ms.len() as f64 * quantile).ceil() as usize - 1] as f64;
                let reported = delays.counts().quantile_ms(quantile).unwrap() as f64;
                prop_assert!((reported - exact).abs() <= (exact / PARTS as f64).max(1.0), "{reported} for {exact}");
            }
        }
    }

    #[test]
    fn buckets_follow_each_other_without_a_gap() {
        for bucket in 1..BUCKETS {
            assert_eq!(bounds(bucket - 1, PARTS).1, bounds(bucket, PARTS).0);
        }
        assert_eq!(bounds(BUCKETS - 1, PARTS).1, 1 << OCTAVES);
    }

    #[test]
    fn counted_delays_are_exported() {
        let delays = std::sync::Arc::new(Delays::default());
        for ms in [1, 16, 17, 5_000, 10_000_000] {
            delays.count(Duration::from_millis(ms));
        }
        let mut registry = prometheus_client::registry::Registry::default();
        registry.register_collector(Box::new(delays));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            "delay_seconds_bucket{le=\"0.016\"} 2",
            "delay_seconds_bucket{le=\"0.032\"} 3",
            "delay_seconds_bucket{le=\"8.192\"} 4",
            "delay_seconds_bucket{le=\"+Inf\"} 5",
            "delay_seconds_count 5",
            "delay_seconds_sum 10005.034",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}:\n{text}");
        }
    }
}
