//! The pauses between attempts to reach the store.

use std::time::Duration;

/// The first pause. A store that restarts is back within a second.
const FIRST: Duration = Duration::from_millis(50);

/// The longest pause: all nodes notice within this time that a store is back.
const LONGEST: Duration = Duration::from_millis(250);

/// Pauses that double, each shortened by up to a half at random, so that nodes do not all reconnect at once.
#[derive(Debug, Default)]
pub(super) struct Pauses(u32);

impl Pauses {
    /// The next pause, for random numbers from 0 to 1.
    pub(super) fn next(&mut self, rng: f64) -> Duration {
        let whole = FIRST.saturating_mul(1 << self.0.min(16)).min(LONGEST);
        self.0 = self.0.saturating_add(1);
        whole.mul_f64(1.0 - rng / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_quarter_of_a_second() {
        let mut pauses = Pauses::default();
        let ms: Vec<u128> = (0..6).map(|_| pauses.next(0.0).as_millis()).collect();
        assert_eq!(ms, [50, 100, 200, 250, 250, 250]);
        assert_eq!(pauses.next(1.0).as_millis(), 125);
        pauses = Pauses::default();
        assert_eq!(pauses.next(0.0).as_millis(), 50);
    }
}
