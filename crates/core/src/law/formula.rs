//! The notation for numbers and times in explanations, descriptions and warnings.

use std::time::Duration;

use crate::base::{Rate, units::written};

/// How an explanation writes the numbers of an SLO.
#[derive(Clone, Debug, PartialEq)]
pub struct Scale {
    /// The rate as the SLO line writes it.
    pub rate: String,
    /// The amount that a law counts as one, in the unit of the SLO.
    pub grain: f64,
}

impl Scale {
    /// The scale of an SLO that counts requests.
    pub fn of(rate: Rate) -> Scale {
        Scale { rate: rate.to_string(), grain: 1.0 }
    }

    /// A count in the unit of the SLO.
    pub(crate) fn count(&self, counted: impl Into<f64>) -> String {
        number(counted.into() * self.grain)
    }
}

/// At most three decimals, without trailing zeros: `31`, `0.5`, `9.921`.
pub(crate) fn number(value: f64) -> String {
    trimmed(format!("{value:.3}"))
}

/// A time to the microsecond: `620 ms`, `1.24 s`.
pub(super) fn time(ns: u64) -> String {
    match ns {
        ..1_000_000_000 => trimmed(format!("{:.3}", ns as f64 / 1e6)) + " ms",
        _ => trimmed(format!("{:.6}", ns as f64 / 1e9)) + " s",
    }
}

/// A time in the notation of an SLO line: `5s`.
pub(super) fn option(ns: u64) -> String {
    written(Duration::from_nanos(ns))
}

/// The sign of a comparison: `a <= b`, or `a > b`.
pub(super) fn compared(is_within: bool) -> &'static str {
    if is_within { "<=" } else { ">" }
}

fn trimmed(decimal: String) -> String {
    let trimmed = decimal.trim_end_matches('0').trim_end_matches('.');
    if matches!(trimmed, "-0" | "") { "0".into() } else { trimmed.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!(
            [31.0, 0.5, 9.9207, 0.0, -0.0001, 100.0].map(number),
            ["31", "0.5", "9.921", "0", "0", "100"]
        );
        assert_eq!(
            [620_000_000, 1_240_000_000, 0, 19_400_123].map(time),
            ["620 ms", "1.24 s", "0 ms", "19.4 ms"]
        );
        assert_eq!(option(5_000_000_000), "5s");
    }
}
