//! The unit in which an SLO counts the work of requests.

use std::fmt;
use std::time::Duration;

use crate::base::quota::{QuotaUnit, UNIT_BYTES_MAX};
use crate::base::{Amount, Ending, units};

/// The unit of an SLO that counts work instead of requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Seconds of the application's time.
    Seconds,
    /// Bytes sent to the client.
    Bytes,
    /// A unit that the operator has named, such as `tokens`.
    Named(String),
}

/// The maximum length of a unit's name, in bytes.
const NAME_BYTES_MAX: usize = UNIT_BYTES_MAX;

/// The units of size, with the number of bytes in each.
const BYTES: [(&str, u64); 9] = [
    ("B", 1),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

impl Unit {
    /// The unit with this name. None if the text is not a valid name.
    ///
    /// ```
    /// use slowlane_core::base::Unit;
    /// assert_eq!(Unit::named("bytes"), Some(Unit::Bytes));
    /// assert_eq!(Unit::named("tokens"), Some(Unit::Named("tokens".into())));
    /// assert_eq!(Unit::named("10 tokens"), None);
    /// ```
    pub fn named(name: &str) -> Option<Unit> {
        let is_name = name.starts_with(|letter: char| letter.is_ascii_lowercase())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
            && name.len() <= NAME_BYTES_MAX;
        match name {
            "seconds" => Some(Unit::Seconds),
            "bytes" => Some(Unit::Bytes),
            name => is_name.then(|| Unit::Named(name.into())),
        }
    }

    /// The unit's name in the `RateLimit-Policy` header, which has its own name for bytes.
    pub(crate) fn quota_unit(&self) -> QuotaUnit {
        let name = if *self == Unit::Bytes { "content-bytes" } else { self.name() };
        QuotaUnit::from(name).expect("unit names are short")
    }

    pub fn name(&self) -> &str {
        match self {
            Unit::Seconds => "seconds",
            Unit::Bytes => "bytes",
            Unit::Named(name) => name,
        }
    }

    /// Whether a proxy knows the cost only after sending the whole response.
    pub const fn is_of_stream(&self) -> bool {
        matches!(self, Unit::Seconds | Unit::Bytes)
    }

    /// Reads an amount in the notation of an SLO line: a duration, a size, or a number.
    ///
    /// ```
    /// use slowlane_core::base::{Amount, Unit};
    /// assert_eq!(Unit::Seconds.read("500ms"), Some(Amount::from_micros(500_000)));
    /// assert_eq!(Unit::Bytes.read("10MB"), Amount::read(b"10000000").ok());
    /// assert_eq!(Unit::Bytes.read("1KiB"), Amount::read(b"1024").ok());
    /// assert_eq!(Unit::named("tokens").unwrap().read("0.5"), Amount::read(b"0.5").ok());
    /// ```
    pub fn read(&self, text: &str) -> Option<Amount> {
        match self {
            Unit::Seconds => {
                let duration = units::duration(text).ok()?;
                Some(Amount::from_micros(u64::try_from(duration.as_micros()).ok()?))
            }
            Unit::Bytes => {
                let unit_at = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
                let (count, unit) = text.split_at(unit_at);
                let known = BYTES.iter().find(|(name, _)| *name == unit);
                let bytes = if unit.is_empty() { 1 } else { known?.1 };
                let micros = count.parse::<u64>().ok()?.checked_mul(bytes)?.checked_mul(Amount::UNIT)?;
                (micros <= Amount::MAX.micros()).then_some(Amount::from_micros(micros))
            }
            Unit::Named(_) => Amount::read(text.as_bytes()).ok(),
        }
    }

    /// A description of the notation that [`read`](Unit::read) expects.
    pub const fn expected(&self) -> &'static str {
        match self {
            Unit::Seconds => "a duration, like 20s or 500ms",
            Unit::Bytes => "a size, like 10MB, 512KiB or 1000",
            Unit::Named(_) => "a number, like 1000 or 0.5",
        }
    }

    /// The amount in this unit that a proxy reports when a request ends: the unit's measure, or else the cost.
    pub fn of(&self, ending: &Ending) -> Option<Amount> {
        let own = match self {
            Unit::Seconds => ending.seconds,
            Unit::Bytes => ending.bytes,
            Unit::Named(_) => None,
        };
        own.or(ending.cost)
    }

    /// An amount with its unit. Seconds and bytes are written in the largest unit that needs no fraction.
    ///
    /// ```
    /// use slowlane_core::base::{Amount, Unit};
    /// assert_eq!(Unit::Bytes.text(Amount::read(b"20000000").unwrap()), "20MB");
    /// assert_eq!(Unit::Seconds.text(Amount::from_micros(1_500_000)), "1500ms");
    /// assert_eq!(Unit::named("tokens").unwrap().text(Amount::read(b"7").unwrap()), "7 tokens");
    /// ```
    pub fn text(&self, amount: Amount) -> String {
        match self {
            Unit::Seconds => units::written(Duration::from_micros(amount.micros())),
            Unit::Bytes => {
                let bytes = amount.micros() / Amount::UNIT;
                let fits = |(_, size): &&(&str, u64)| bytes > 0 && bytes.is_multiple_of(*size);
                let (name, size) = BYTES[..5].iter().rev().find(fits).unwrap_or(&BYTES[0]);
                format!("{}{name}", bytes / size)
            }
            Unit::Named(name) => format!("{amount} {name}"),
        }
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_amount_of_its_unit_is_refused() {
        for (unit, texts) in [
            ("seconds", &["", "5", "-5s", "5 s", "1.5s", "10MB", "400d"][..]),
            (
                "bytes",
                &[
                    "",
                    "MB",
                    "10mb",
                    "10M",
                    "-1B",
                    "1.5MB",
                    "10 MB",
                    "5s",
                    "9999999TB",
                    "99999999999999999999",
                ],
            ),
            ("tokens", &["", "5s", "-5", "1e3", "1,000", "1099511627777"]),
        ] {
            let unit = Unit::named(unit).unwrap();
            for text in texts {
                assert_eq!(unit.read(text), None, "{unit}: {text:?}");
            }
        }
        for name in ["", "5", "Tokens", "-x", "a b", "a.b", "ünits", &"x".repeat(33)] {
            assert_eq!(Unit::named(name), None, "{name:?}");
        }
    }

    #[test]
    fn an_end_reports_the_measure_of_the_unit_or_a_bare_cost() {
        let [cost, seconds, bytes] = [1, 2, 3].map(|units| Some(Amount::from_micros(units * Amount::UNIT)));
        let all = Ending { cost, seconds, bytes };
        let of = |ending: &Ending| {
            ["seconds", "bytes", "tokens"].map(|name| Unit::named(name).unwrap().of(ending))
        };
        assert_eq!(of(&all), [seconds, bytes, cost]);
        assert_eq!(of(&Ending { cost, ..Ending::default() }), [cost; 3]);
        assert_eq!(of(&Ending { cost: None, ..all }), [seconds, bytes, None]);
    }
}
