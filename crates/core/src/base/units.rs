//! Quantities in config and policy files: `50/s`, `500ms`, `10`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;

/// The error for text that is not a quantity. Its message gives the expected form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum UnitError {
    #[error("expected a whole number per period (s, m, h, d or month), like 50/s; for 1.5/s, write 90/m")]
    Rate,
    #[error("expected a rate of at most {RATE_MAX_PER_S}/s")]
    RateRange,
    #[error("expected a whole number and a unit (us, ms, s, m, h or d), like 5s")]
    Duration,
    #[error("expected a duration of at most {} days", DURATION_MAX.as_secs() / 86_400)]
    DurationRange,
}

/// The highest rate. Its slot is 1 µs, so rounding the slot to 1 ns causes an error of at most 0.1 %.
pub const RATE_MAX_PER_S: u64 = 1_000_000;

/// The longest duration. More than a year is probably a mistake.
pub const DURATION_MAX: Duration = Duration::from_secs(366 * 86_400);

/// The units of duration, with the number of microseconds in each.
const UNITS: [(&str, u64); 6] = [
    ("us", 1),
    ("ms", 1_000),
    ("s", 1_000_000),
    ("m", 60_000_000),
    ("h", 3_600_000_000),
    ("d", 86_400_000_000),
];

/// The period over which a rate counts requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Period {
    Second,
    Minute,
    Hour,
    Day,
    /// A month: thirty days, except where a law counts by the calendar.
    Month,
    /// Any other number of seconds, such as `7d`.
    Seconds(u32),
}

impl Period {
    const NAMED: [(&'static str, Period); 5] = [
        ("s", Period::Second),
        ("m", Period::Minute),
        ("h", Period::Hour),
        ("d", Period::Day),
        ("month", Period::Month),
    ];

    /// The period with this name, or with this duration, such as `7d`, which must be a whole number of seconds.
    pub fn named(name: &str) -> Option<Period> {
        let known = Period::NAMED.iter().find(|(known, _)| *known == name);
        known.map(|&(_, period)| period).or_else(|| Period::lasting(duration(name).ok()?))
    }

    fn lasting(duration: Duration) -> Option<Period> {
        let seconds = u32::try_from(duration.as_secs()).ok().filter(|&seconds| seconds > 0)?;
        let is_whole = duration.subsec_nanos() == 0;
        let mut named = [Period::Second, Period::Minute, Period::Hour, Period::Day].into_iter();
        let known = named.find(|period| period.seconds() == u64::from(seconds));
        is_whole.then(|| known.unwrap_or(Period::Seconds(seconds)))
    }

    pub const fn seconds(self) -> u64 {
        match self {
            Period::Second => 1,
            Period::Minute => 60,
            Period::Hour => 3_600,
            Period::Day => 86_400,
            Period::Month => 30 * 86_400,
            Period::Seconds(seconds) => seconds as u64,
        }
    }
}

/// The notation of a period in a rate, like `h` or `7d`.
impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Period::NAMED.iter().find(|(_, period)| period == self) {
            Some((name, _)) => f.write_str(name),
            None => f.write_str(&written(Duration::from_secs(self.seconds()))),
        }
    }
}

/// The text of [`Rate::UNLIMITED`].
pub const UNLIMITED: &str = "unlimited";

/// A number of requests per period: 0, from 1 in 366 days to 1,000,000 per second, or unlimited.
///
/// ```
/// use slowlane_core::base::Rate;
/// let rate: Rate = "50/s".parse().unwrap();
/// assert_eq!(rate.slot().as_millis(), 20);
/// assert_eq!("90/m".parse::<Rate>().unwrap().per_second(), 1.5);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    count: u64,
    period: Period,
}

impl Rate {
    /// A rate of this many requests per period.
    ///
    /// # Errors
    /// [`UnitError::RateRange`] for a rate above [`RATE_MAX_PER_S`].
    pub const fn new(count: u64, period: Period) -> Result<Rate, UnitError> {
        if count > RATE_MAX_PER_S * period.seconds() {
            return Err(UnitError::RateRange);
        }
        Ok(Rate { count, period })
    }

    /// Any number of requests.
    pub const UNLIMITED: Rate = Rate { count: u64::MAX, period: Period::Second };

    /// No requests.
    pub const ZERO: Rate = Rate { count: 0, period: Period::Second };

    pub(crate) const ONE_PER_SECOND: Rate = Rate { count: 1, period: Period::Second };

    pub const fn is_zero(self) -> bool {
        self.count == 0
    }

    pub const fn is_unlimited(self) -> bool {
        self.count == u64::MAX
    }

    /// The duration of the period in which the rate was given; a month counts as 30 days.
    pub const fn period(self) -> Duration {
        Duration::from_secs(self.period.seconds())
    }

    /// The period in which the rate was given, as written: a month, not 30 days.
    pub const fn named_period(self) -> Period {
        self.period
    }

    /// The number of requests that the rate allows in a window, rounded down.
    ///
    /// ```
    /// use std::time::Duration;
    /// use slowlane_core::base::Rate;
    /// let rate: Rate = "90/m".parse().unwrap();
    /// assert_eq!(rate.requests_in(Duration::from_secs(10)), 15);
    /// ```
    pub const fn requests_in(self, window: Duration) -> u128 {
        self.count as u128 * window.as_nanos() / self.period().as_nanos()
    }

    pub fn per_second(self) -> f64 {
        if self.is_unlimited() {
            return f64::INFINITY;
        }
        self.count as f64 / self.period.seconds() as f64
    }

    /// The slot: 1 / rate, to the nearest nanosecond. At a rate of 0 it is 584 years.
    pub const fn slot(self) -> Duration {
        if self.count == 0 {
            return Duration::from_nanos(u64::MAX);
        }
        let period_ns = self.period.seconds() * 1_000_000_000;
        Duration::from_nanos((period_ns + self.count / 2) / self.count)
    }
}

impl FromStr for Rate {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Rate, UnitError> {
        let (count, period) = text.split_once('/').ok_or(UnitError::Rate)?;
        Rate::new(digits(count).ok_or(UnitError::Rate)?, Period::named(period).ok_or(UnitError::Rate)?)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_unlimited() {
            return f.write_str(UNLIMITED);
        }
        write!(f, "{}/{}", self.count, self.period)
    }
}

/// Reads a duration in HAProxy's notation, up to [`DURATION_MAX`].
///
/// The unit is required, because a bare number means milliseconds to HAProxy, but seconds to nginx.
///
/// ```
/// use std::time::Duration;
/// use slowlane_core::base::units::duration;
/// assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
/// assert_eq!(duration("5m"), Ok(Duration::from_secs(300)));
/// assert!(duration("5").is_err());
/// ```
///
/// # Errors
/// The text has no unit, an unknown unit or no whole number; or the duration is too long.
pub fn duration(text: &str) -> Result<Duration, UnitError> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit()).ok_or(UnitError::Duration)?;
    let (count, unit) = text.split_at(unit_at);
    let (_, unit_us) = UNITS.iter().find(|(name, _)| *name == unit).ok_or(UnitError::Duration)?;
    let us = digits(count).ok_or(UnitError::Duration)?.saturating_mul(*unit_us);
    let duration = Duration::from_micros(us);
    if duration > DURATION_MAX { Err(UnitError::DurationRange) } else { Ok(duration) }
}

/// The text of a duration, in the largest unit that needs no fraction.
///
/// ```
/// use slowlane_core::base::units::{duration, written};
/// assert_eq!(written(duration("90s").unwrap()), "90s");
/// assert_eq!(written(duration("1440m").unwrap()), "1d");
/// assert_eq!(written(duration("0s").unwrap()), "0s");
/// ```
pub fn written(duration: Duration) -> String {
    let us = duration.as_micros();
    match UNITS.iter().rev().find(|&&(_, unit_us)| us > 0 && us.is_multiple_of(unit_us.into())) {
        Some((unit, unit_us)) => format!("{}{unit}", us / u128::from(*unit_us)),
        None => "0s".into(),
    }
}

/// The text of a remaining time, in at most two units.
///
/// ```
/// use slowlane_core::base::units::left;
/// assert_eq!([59, 61, 7_200, 90_000].map(left), ["59s", "1m1s", "2h", "1d1h"]);
/// ```
pub fn left(seconds: u64) -> String {
    let (days, hours, minutes, seconds) =
        (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    let both = |high: u64, low: u64, [one, other]: [&str; 2]| match low {
        0 => format!("{high}{one}"),
        low => format!("{high}{one}{low}{other}"),
    };
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => both(minutes, seconds, ["m", "s"]),
        (0, ..) => both(hours, minutes, ["h", "m"]),
        _ => both(days, hours, ["d", "h"]),
    }
}

/// Reads decimal digits and nothing else. Leading zeros are allowed, as in HAProxy.
pub(crate) fn whole(text: &str) -> Option<u32> {
    digits(text)?.try_into().ok()
}

/// Reads decimal digits, without sign or space. A number that is too large becomes the largest one.
fn digits(text: &str) -> Option<u64> {
    let only_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    only_digits.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_read_back_as_they_were_written() {
        for text in [
            "0/s",
            "1/d",
            "50/s",
            "90/m",
            "1000000/s",
            "7/h",
            "9/month",
            "10/7d",
            "1/366d",
            "10/90s",
            "3/36h",
        ] {
            assert_eq!(text.parse::<Rate>().unwrap().to_string(), text);
        }
        let same = [("10/1m", "10/m"), ("10/60s", "10/m"), ("10/24h", "10/d"), ("10/180s", "10/3m")];
        for (text, shorter) in same {
            assert_eq!(text.parse::<Rate>().unwrap().to_string(), shorter);
        }
    }

    #[test]
    fn what_is_no_rate_is_refused() {
        for text in [
            "", "50", "5x/s", "/s", "50/", "50/w", "5/0s", "5/100ms", "5/1500ms", "5/367d", "5/2month",
            "-1/s", "+1/s", " 1/s", "1.5/s", "50/s ",
        ] {
            assert_eq!(text.parse::<Rate>(), Err(UnitError::Rate), "{text:?}");
        }
        for text in ["1000001/s", "99999999999999999999/d"] {
            assert_eq!(text.parse::<Rate>(), Err(UnitError::RateRange), "{text:?}");
        }
    }

    #[test]
    fn a_slot_is_the_nearest_nanosecond() {
        assert_eq!("3/s".parse::<Rate>().unwrap().slot().as_nanos(), 333_333_333);
        assert_eq!("600001/s".parse::<Rate>().unwrap().slot().as_nanos(), 1_667);
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in ["", "5", "s", "5 s", "5S", "5sec", "-5s", "1.5s", "5ms5"] {
            assert_eq!(duration(text), Err(UnitError::Duration), "{text:?}");
        }
        assert_eq!(duration("367d"), Err(UnitError::DurationRange));
        assert_eq!(duration("99999999999999999999s"), Err(UnitError::DurationRange));
        assert_eq!(duration("250us"), Ok(Duration::from_micros(250)));
    }
}
