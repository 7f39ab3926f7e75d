//! A sum that fades with time.

/// A sum of which the part e^(-t/memory) is left after a time t. Divided by its memory it is a rate.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Decayed {
    sum: f64,
    at_s: f64,
}

impl Decayed {
    pub(super) fn add(&mut self, amount: f64, now_s: f64, memory_s: f64) {
        *self = Decayed { sum: self.sum(now_s, memory_s) + amount, at_s: now_s.max(self.at_s) };
    }

    /// A sum of this moment.
    pub(super) fn new(sum: f64, at_s: f64) -> Decayed {
        Decayed { sum, at_s }
    }

    pub(super) fn sum(&self, now_s: f64, memory_s: f64) -> f64 {
        self.sum * (-(now_s - self.at_s).max(0.0) / memory_s).exp()
    }
}
