//! One draw of the dice: the chance that a law may use.

/// A number drawn evenly from `[0, 1)`.
///
/// The dice are thrown at the edge and the draw is handed down, so a law with chance in it is still a
/// pure function.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Draw(f64);

impl Draw {
    /// The middle of the range: a jitter of ±10 % drawn here changes nothing.
    pub const MIDDLE: Draw = Draw(0.5);

    /// Takes the 53 high bits of `bits`, as many as an `f64` holds exactly.
    pub fn from_bits(bits: u64) -> Draw {
        const SCALE: f64 = 1.0 / (1u64 << 53) as f64;
        Draw((bits >> 11) as f64 * SCALE)
    }

    /// A factor evenly drawn from `[1 - spread, 1 + spread)`.
    ///
    /// ```
    /// use slowlane::base::draw::Draw;
    /// assert_eq!(Draw::from_bits(0).factor(0.1), 0.9);
    /// assert_eq!(Draw::MIDDLE.factor(0.1), 1.0);
    /// ```
    pub fn factor(self, spread: f64) -> f64 {
        1.0 + spread * (2.0 * self.0 - 1.0)
    }
}
