//! A running estimate of a quantile of recent costs.
//!
//! ```text
//! q, the estimate, on a logarithmic scale
//! cost > q: q += p * step;     else q -= (1 - p) * step
//! step = 1 / sqrt(n) octaves for the n-th cost, at least 1/32
//! ```
//! The estimate settles where the share p of all costs lies below q. The step never falls below 1/32, so the estimate
//! follows when costs change: at p = 0.9, it doubles within 36 larger costs. With larger steps, crowds would pass and
//! wait in turn. The state takes eight bytes. H. Robbins and S. Monro, "A stochastic approximation method", 1951; for
//! streams: Q. Ma, S. Muthukrishnan and M. Sandler, "Frugal streaming for estimating quantiles", 2013.

use serde::{Deserialize, Serialize};

/// The smallest step. With steps of a quarter of an octave, fifty clients used only 97 % of their rate.
const STEP_LAST: f32 = 1.0 / 32.0;

/// An estimate of the p-quantile of recent costs.
///
/// ```
/// use slowlane_core::base::Quantile;
/// let mut quantile = Quantile::default();
/// assert_eq!(quantile.cost(), None);
/// for _ in 0..1_000 {
///     (1..=100).for_each(|cost| quantile.observe(cost, 0.9));
/// }
/// assert!((70..=110).contains(&quantile.cost().unwrap()));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantile {
    log2: f32,
    /// The number of costs seen so far.
    seen: u32,
}

impl Quantile {
    /// Takes a cost into account. `p` is between 0 and 1.
    pub fn observe(&mut self, cost: u32, p: f32) {
        let log2 = (cost.max(1) as f32).log2();
        if self.seen == 0 {
            (self.log2, self.seen) = (log2, 1);
            return;
        }
        self.seen = self.seen.saturating_add(1);
        let step = (self.seen as f32).sqrt().recip().max(STEP_LAST);
        self.log2 += if log2 > self.log2 { p * step } else { (p - 1.0) * step };
        self.log2 = self.log2.clamp(0.0, 32.0);
    }

    /// The same estimate, set to adapt as fast as after its first cost.
    pub fn restarted(self) -> Quantile {
        Quantile { seen: self.seen.min(1), ..self }
    }

    /// The estimate. None before the first cost.
    pub fn cost(&self) -> Option<u32> {
        (self.seen > 0).then(|| self.log2.exp2().round() as u32)
    }

    /// The estimate as one number, for an atomic.
    pub fn to_bits(self) -> u64 {
        u64::from(self.log2.to_bits()) << 32 | u64::from(self.seen)
    }

    /// The estimate with these [bits](Quantile::to_bits).
    pub fn from_bits(bits: u64) -> Quantile {
        Quantile { log2: f32::from_bits((bits >> 32) as u32), seen: bits as u32 }
    }

    /// Whether [`observe`](Quantile::observe) can produce this estimate.
    pub fn is_sound(&self) -> bool {
        (0.0..=32.0).contains(&self.log2)
    }
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::*;

    /// A normal deviate, by Box and Muller.
    fn normal(rng: &mut Rng) -> f64 {
        (-2.0 * (1.0 - rng.f64()).ln()).sqrt() * (std::f64::consts::TAU * rng.f64()).cos()
    }

    #[test]
    fn the_share_of_costs_below_the_estimate_is_that_of_the_quantile() {
        for (p, seed) in [(0.5, 1), (0.9, 2), (0.99, 3)] {
            let (mut quantile, mut rng, mut below) = (Quantile::default(), Rng::with_seed(seed), 0);
            for _ in 0..20_000 {
                let cost = (1e5 * normal(&mut rng).exp()) as u32;
                below += u32::from(quantile.cost().is_some_and(|estimate| cost <= estimate));
                quantile.observe(cost, p);
            }
            let share = f64::from(below) / 20_000.0;
            assert!((share - f64::from(p)).abs() < 0.01, "{p}: {share}");
        }
    }

    #[test]
    fn it_follows_a_change_and_no_cost_breaks_it() {
        let mut quantile = Quantile::default();
        (0..100).for_each(|_| quantile.observe(1_000, 0.9));
        (0..400).for_each(|_| quantile.observe(1_000_000, 0.9));
        let estimate = quantile.cost().unwrap();
        assert!((800_000..1_300_000).contains(&estimate), "{estimate}");
        for cost in [0, u32::MAX, 0, u32::MAX, 1] {
            (0..1_000).for_each(|_| quantile.observe(cost, 0.99));
            assert!(quantile.is_sound() && Quantile::from_bits(quantile.to_bits()) == quantile);
        }
        assert!(!Quantile { log2: f32::NAN, seen: 1 }.is_sound());
    }
}
