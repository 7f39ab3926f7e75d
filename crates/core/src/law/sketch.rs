//! The `sketch` law: `sliding-window` on estimated counts, for an unbounded number of keys.
//!
//! ```text
//! N        = rate * window
//! columns  = 10 / error, rounded up to a power of two;  rows = decimal digits of 1 / (1 - confidence), rounded up
//! prev, curr: the smallest of the key's cells in all rows, for the previous window and for this one
//! estimate = prev * (window - age) / window + curr
//! estimate + cost > N: deny;                  else add cost to the key's cells
//! ```
//! A key has no row in the table: all keys of an SLO share one sketch of 8 * columns * rows bytes
//! ([`table::Sketch`](crate::table::Sketch)). Counts are never too low, so the law admits no request that
//! `sliding-window` would refuse. With a probability of `confidence`, each count is too high by at most error * total,
//! where the total is the sum over all keys in that window. With the usual e / error columns, a sketch would need more
//! than twice as many rows, and each row costs another memory access.
//!
//! Source: Cormode and Muthukrishnan, "An Improved Data Stream Summary" (2005), applied to two windows as in pingora's
//! `Rate`.
//!
//! With `beyond=also`, the sketch is the first of two stages: requests within the rate pass, and the SLOs that `also=`
//! adds judge the requests beyond it. In this mode, the sketch counts every request, even those beyond the rate.

use std::time::Duration;

use crate::base::Timestamp;
use crate::law::sliding_window::SlidingWindow;
use crate::law::{
    Admission, Arrival, AuxState, Judgement, Objective, OptionError, Options, Rule, Scale, Window,
};
use crate::table::{COLUMN_BITS_MAX, COUNT_MAX, Entry, ROWS_MAX, Seen, Shape};

const ERROR_DEFAULT: f64 = 0.001;

/// An error above half of all requests would be useless as a bound.
const ERROR_MAX: f64 = 0.5;

/// At this error, a row has 10 / error = 2 million columns, so a column's number fits in 21 bits.
const ERROR_MIN: f64 = 0.000_005;

const CONFIDENCE_DEFAULT: f64 = 0.99;
const CONFIDENCE_MIN: f64 = 0.5;
/// This confidence takes six rows.
const CONFIDENCE_MAX: f64 = 0.999_999;

/// The probability that one row errs by more than `error`. By Markov's inequality, it is at most a tenth, because a row
/// has 10 / error columns.
const ROW_ERRS: f64 = 0.1;

/// The maximum memory of one sketch. A larger sketch would fit in no cache and take milliseconds to clear.
const BYTES_MAX: usize = 16 << 20;

/// The `sketch` law for one objective.
///
/// ```
/// use slowlane_core::{law::{Law, Objective, Options}};
/// let objective = Objective { burst: 0, rate: "100/m".parse().unwrap() };
/// let law = Law::new("sketch", objective, Options::default()).unwrap();
/// // 10 / 0.001 columns are rounded up to 16,384; a confidence of 0.99 takes two rows.
/// assert_eq!(law.sketched().unwrap().shape.bytes(), 2 * 16_384 * 8);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sketch {
    pub(super) counts: SlidingWindow,
    pub shape: Shape,
    pub error: f64,
    pub confidence: f64,
    /// Whether the SLOs that `also=` adds judge the requests beyond the rate.
    pub is_first_stage: bool,
}

impl Sketch {
    /// The name of the law in the registry.
    pub const NAME: &'static str = "sketch";

    /// The sketch of a rate of 0, under which nothing is counted.
    pub(super) const CLOSED: Sketch = Sketch {
        counts: SlidingWindow::new(Window::new(0, 1_000_000_000)),
        shape: Shape { rows: 1, column_bits: 0 },
        error: ERROR_DEFAULT,
        confidence: CONFIDENCE_DEFAULT,
        is_first_stage: false,
    };

    pub(super) fn from_options(objective: Objective, options: &mut Options) -> Result<Sketch, OptionError> {
        let counts = SlidingWindow::from_options(objective, options)?;
        let error = options.number("error", ERROR_MIN..=ERROR_MAX)?.unwrap_or(ERROR_DEFAULT);
        let confidence = options.number("confidence", CONFIDENCE_MIN..=CONFIDENCE_MAX)?;
        let confidence = confidence.unwrap_or(CONFIDENCE_DEFAULT);
        let is_first_stage = options.choice("beyond", ["deny", "also"])? == Some("also");
        let shape = shape(error, confidence);
        if shape.bytes() > BYTES_MAX {
            let (error, confidence) = (error.to_string(), confidence.to_string());
            return Err(OptionError::Memory {
                error,
                confidence,
                bytes: shape.bytes(),
                bytes_max: BYTES_MAX,
            });
        }
        if counts.window.limit > COUNT_MAX {
            let (window, rate) = (counts.window.duration(), objective.rate);
            return Err(Window::too_long(window, rate, COUNT_MAX, " or law=sliding-window"));
        }
        Ok(Sketch { counts, shape, error, confidence, is_first_stage })
    }

    /// The length of one window.
    pub fn period(&self) -> Duration {
        self.counts.window.duration()
    }

    /// Judges a request by the counts of its key.
    #[inline]
    pub fn judge_seen(&self, seen: &Seen, cost: u32) -> Judgement {
        match (cost, self.counts.window.limit) {
            (_, 0) => Judgement::never(0),
            (0, _) => Judgement::uncounted(),
            _ => self.counts.judge_counts(&mut { *seen }, cost),
        }
    }

    /// A row with these counts, and the time to which they apply, for an explanation.
    pub fn row(&self, seen: &Seen) -> (Entry, Timestamp) {
        let mut entry = Entry::default();
        SlidingWindow::store(seen, &mut entry.state);
        (entry, Timestamp::from_nanos(seen.window * self.counts.window.window_ns + seen.age_ns))
    }
}

/// The smallest number of rows that meets the confidence, and the number of columns for the error.
fn shape(error: f64, confidence: f64) -> Shape {
    // A confidence is a decimal fraction, which binary numbers only approximate.
    let rows = ((1.0 - confidence).log(ROW_ERRS) - 1e-6).ceil() as u32;
    let columns = (1.0 / (ROW_ERRS * error) - 1e-6).ceil() as u64;
    let column_bits = columns.next_power_of_two().ilog2();
    Shape { rows: rows.clamp(1, ROWS_MAX), column_bits: column_bits.min(COLUMN_BITS_MAX) }
}

/// If its counts are in a row of the table instead of a sketch, the law judges as `sliding-window` does.
impl Rule for Sketch {
    fn judge(&self, entry: &mut Entry, aux: Option<&mut AuxState>, arrival: &Arrival) -> Judgement {
        self.counts.judge(entry, aux, arrival)
    }

    fn explain(&self, scale: &Scale, entry: &Entry, aux: Option<&AuxState>, arrival: &Arrival) -> String {
        let Sketch { error, confidence, .. } = self;
        let formula = self.counts.explain(scale, entry, aux, arrival);
        format!("{formula}; prev and curr are estimates with error {error} and confidence {confidence}")
    }

    fn take_back(&self, entry: &mut Entry, aux: Option<&mut AuxState>, gone: &Admission) {
        self.counts.take_back(entry, aux, gone);
    }

    /// Counts are meaningless in a sketch with different windows or columns.
    fn state_shape(&self) -> u64 {
        let Shape { rows, column_bits } = self.shape;
        // A window of 366 days, in nanoseconds, leaves nine of 64 bits unused.
        self.counts.state_shape() << 8 | u64::from(rows << 5 | column_bits)
    }

    fn memory(&self) -> Duration {
        self.counts.memory()
    }

    fn window(&self) -> Option<&Window> {
        Some(&self.counts.window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_follows_error_and_confidence() {
        let of = |error, confidence| {
            let Shape { rows, column_bits } = shape(error, confidence);
            (rows, 1 << column_bits)
        };
        assert_eq!(of(0.001, 0.99), (2, 16_384));
        assert_eq!([of(0.01, 0.9), of(0.01, 0.91), of(0.01, 0.999)], [(1, 1_024), (2, 1_024), (3, 1_024)]);
        assert_eq!(of(0.001, CONFIDENCE_MAX), (ROWS_MAX, 16_384));
        assert_eq!(of(ERROR_MIN, CONFIDENCE_MIN), (1, 1 << COLUMN_BITS_MAX));
        assert_eq!(of(ERROR_MAX, CONFIDENCE_MIN), (1, 32));
    }
}
