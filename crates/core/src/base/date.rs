//! Dates of the Gregorian calendar, in UTC.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use crate::base::time::Timestamp;
use crate::base::units::Period;

/// A day of the calendar, from 1970 on.
///
/// ```
/// use slowlane_core::base::date::Date;
/// let leap_day = Date::new(2000, 2, 29).unwrap();
/// assert_eq!(leap_day.days(), 11_016);
/// assert_eq!(Date::of_days(11_016), leap_day);
/// assert_eq!(Date::new(1969, 12, 31), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Date {
    pub year: u32,
    pub month: u32,
    pub day: u32,
}

/// The last year whose nanoseconds fit a [`Timestamp`].
pub const YEAR_MAX: u32 = 2553;

/// The Gregorian calendar repeats itself after 400 years.
const DAYS_OF_400_YEARS: u32 = 146_097;

/// Days from 1 March of the year 0 to 1 January 1970.
const UNTIL_1970: u32 = 719_468;

impl Date {
    /// The day of a year (1970 to [`YEAR_MAX`]), month (1 to 12) and day (1 to 31); `None` outside these ranges.
    ///
    /// Every month may have 31 days: 30 February is 2 March, or 1 March in a leap year.
    pub fn new(year: u32, month: u32, day: u32) -> Option<Date> {
        let is_one =
            (1970..=YEAR_MAX).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
        is_one.then_some(Date { year, month, day })
    }

    /// Days since 1 January 1970, by Howard Hinnant's `days_from_civil`.
    pub fn days(self) -> u32 {
        // Years that begin in March: the leap day is then the last day of the year.
        let (year, month) = match self.month {
            3.. => (self.year, self.month - 3),
            _ => (self.year - 1, self.month + 9),
        };
        let of_years = year * 365 + year / 4 - year / 100 + year / 400;
        let of_months = (month * 153 + 2) / 5;
        of_years + of_months + self.day - 1 - UNTIL_1970
    }

    /// The inverse of [`Date::days`], by Howard Hinnant's `civil_from_days`.
    pub fn of_days(days: u32) -> Date {
        let days = days + UNTIL_1970;
        let (era, day) = (days / DAYS_OF_400_YEARS, days % DAYS_OF_400_YEARS);
        let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let day = day - (153 * month + 2) / 5 + 1;
        let (month, of_next_year) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
        Date { year: era * 400 + year + of_next_year, month, day }
    }
}

/// `2009-02-06`.
impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

/// The second, minute, hour, day or month of the calendar around a moment, in UTC.
///
/// ```
/// use slowlane_core::base::{date::{around, written}, time::Timestamp, units::Period};
/// let now = Timestamp::from_millis(951_782_400_007); // 29 February 2000
/// let month = around(Period::Month, now);
/// assert_eq!(written(month.start), "2000-02-01 00:00:00");
/// assert_eq!(written(month.end), "2000-03-01 00:00:00");
/// assert_eq!(written(around(Period::Day, now).end), "2000-03-01 00:00:00");
/// ```
pub fn around(period: Period, now: Timestamp) -> Range<Timestamp> {
    let now_s = now.as_nanos() / 1_000_000_000;
    let (start_s, end_s) = match period {
        Period::Month => {
            let date = Date::of_days((now_s / 86_400) as u32);
            let (year, month) =
                if date.month == 12 { (date.year + 1, 1) } else { (date.year, date.month + 1) };
            let first = |year, month| u64::from(Date { year, month, day: 1 }.days()) * 86_400;
            (first(date.year, date.month), first(year, month))
        }
        _ => {
            let start_s = now_s - now_s % period.seconds();
            (start_s, start_s + period.seconds())
        }
    };
    let at = |seconds| Timestamp::default() + Duration::from_secs(seconds);
    at(start_s)..at(end_s)
}

/// A moment in the notation of RFC 3339, in milliseconds.
///
/// ```
/// use slowlane_core::base::{date::Utc, time::Timestamp};
/// assert_eq!(Utc(Timestamp::from_millis(951_782_400_007)).to_string(), "2000-02-29T00:00:00.007Z");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Utc(pub Timestamp);

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (date, [hour, minute, second]) = split(self.0);
        let ms = self.0.as_nanos() / 1_000_000 % 1_000;
        write!(f, "{date}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
    }
}

/// A moment to the second, for people: `2009-02-06 12:14:14`.
pub fn written(at: Timestamp) -> String {
    let (date, [hour, minute, second]) = split(at);
    format!("{date} {hour:02}:{minute:02}:{second:02}")
}

/// The date and the time of day.
fn split(at: Timestamp) -> (Date, [u64; 3]) {
    let at_s = at.as_nanos() / 1_000_000_000;
    (Date::of_days((at_s / 86_400) as u32), [at_s / 3_600 % 24, at_s / 60 % 60, at_s % 60])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn days_are_counted_over_leap_years() {
        // date -u -d DATE +%s, divided by 86400
        for ((year, month, day), want) in
            [((1970, 1, 1), 0), ((2000, 2, 29), 11_016), ((2000, 3, 1), 11_017), ((2100, 3, 1), 47_541)]
        {
            assert_eq!(Date::new(year, month, day).map(Date::days), Some(want), "{year}-{month}-{day}");
        }
    }

    #[test]
    fn moments_are_written_as_the_calendar_has_them() {
        let told = |seconds: u64| Utc(Timestamp::from_millis(seconds * 1000)).to_string();
        assert_eq!(told(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(told(951_782_399), "2000-02-28T23:59:59.000Z");
        assert_eq!(told(951_782_400), "2000-02-29T00:00:00.000Z");
        assert_eq!(told(1_709_251_199), "2024-02-29T23:59:59.000Z");
        assert_eq!(told(1_735_689_599), "2024-12-31T23:59:59.000Z");
        assert_eq!(told(4_107_542_400), "2100-03-01T00:00:00.000Z");
        assert_eq!(written(Timestamp::from_millis(1_233_922_454_655)), "2009-02-06 12:14:14");
    }

    proptest! {
        #[test]
        fn every_moment_is_within_its_period_and_periods_have_no_gaps(ms in 0u64..18_000_000_000_000) {
            let now = Timestamp::from_millis(ms);
            for period in [Period::Second, Period::Minute, Period::Hour, Period::Day, Period::Month] {
                let span = around(period, now);
                prop_assert!(span.contains(&now), "{period:?}");
                prop_assert_eq!(around(period, span.end).start, span.end, "{:?}", period);
                prop_assert_eq!(around(period, span.start), span, "{:?}", period);
            }
        }

        #[test]
        fn a_day_reads_back_as_it_was_counted(days in 0u32..213_000) {
            let date = Date::of_days(days);
            prop_assert_eq!(date.days(), days);
            prop_assert_eq!(Date::new(date.year, date.month, date.day), Some(date));
        }
    }
}
