//! The random number of a decision.

/// A uniform random number in `[0, 1)`.
///
/// The caller draws the sample and passes it in, so a law that uses chance is still a pure function.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Sample(f64);

impl Sample {
    /// The middle of the range. With this sample, a random factor like ±10 % is exactly 1.
    pub const MIDDLE: Sample = Sample(0.5);

    /// Uses the high 53 bits of `bits`, because an `f64` represents 53 bits exactly.
    ///
    /// ```
    /// use slowlane_core::base::Sample;
    /// assert_eq!(Sample::from_bits(1 << 63), Sample::MIDDLE);
    /// ```
    pub fn from_bits(bits: u64) -> Sample {
        const SCALE: f64 = 1.0 / (1u64 << 53) as f64;
        Sample((bits >> 11) as f64 * SCALE)
    }

    /// Whether an event with this probability happens.
    ///
    /// ```
    /// use slowlane_core::base::Sample;
    /// assert!(Sample::MIDDLE.is_below(0.6) && !Sample::MIDDLE.is_below(0.5));
    /// ```
    pub fn is_below(self, probability: f64) -> bool {
        self.0 < probability
    }

    /// A uniform random factor in `[1 - spread, 1 + spread)`.
    ///
    /// ```
    /// use slowlane_core::base::Sample;
    /// assert_eq!(Sample::from_bits(0).factor(0.1), 0.9);
    /// assert_eq!(Sample::MIDDLE.factor(0.1), 1.0);
    /// ```
    pub fn factor(self, spread: f64) -> f64 {
        1.0 + spread * (2.0 * self.0 - 1.0)
    }
}
