//! Dates of the Gregorian calendar, in UTC.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::Duration;

use time::UtcDateTime;

use crate::base::{Period, Timestamp};

const DAY_S: u64 = 86_400;

/// The wall clock's offset from the process's clock, in nanoseconds. The process updates the offset when the
/// wall clock is set, so moments stay comparable, and only the calendar follows the wall clock.
#[derive(Clone, Copy, Debug)]
pub struct WallShift(&'static AtomicI64);

/// The offset in a process whose wall clock is never set.
static NEVER_SET: AtomicI64 = AtomicI64::new(0);

impl WallShift {
    pub const fn of(cell: &'static AtomicI64) -> WallShift {
        WallShift(cell)
    }

    /// Converts a moment on the process's clock to wall-clock time.
    pub fn wall(self, moment: Timestamp) -> Timestamp {
        moment.shifted(self.0.load(Relaxed))
    }
}

impl Default for WallShift {
    fn default() -> WallShift {
        WallShift(&NEVER_SET)
    }
}

/// The current offset is not part of a setting, so all values are equal.
impl PartialEq for WallShift {
    fn eq(&self, _: &WallShift) -> bool {
        true
    }
}

impl Eq for WallShift {}

/// A calendar in UTC, divided into periods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calendar {
    pub period: Period,
    pub shift: WallShift,
}

impl Calendar {
    /// A calendar of a wall clock that is never set.
    pub fn of(period: Period) -> Calendar {
        Calendar { period, shift: WallShift::default() }
    }

    /// The period that contains a moment on the process's clock: the period's bounds on the process's clock,
    /// and its start on the wall clock, which stays the same when the wall clock is set.
    pub fn around(self, now: Timestamp) -> (Range<Timestamp>, Timestamp) {
        // The offset is read only once, because it may change at any time.
        let shift = self.shift.0.load(Relaxed);
        let span = around(self.period, now.shifted(shift));
        let own = |wall: Timestamp| wall.shifted(shift.saturating_neg());
        (own(span.start)..own(span.end), span.start)
    }
}

/// The calendar second, minute, hour, day or month that contains a moment, in UTC. Other periods are counted
/// from the beginning of 1970.
///
/// ```
/// use slowlane_core::base::{Period, Timestamp, date::around, date::written};
/// let now = Timestamp::from_millis(951_782_400_007); // 29 February 2000
/// let month = around(Period::Month, now);
/// assert_eq!(written(month.start), "2000-02-01 00:00:00");
/// assert_eq!(written(month.end), "2000-03-01 00:00:00");
/// assert_eq!(written(around(Period::Day, now).end), "2000-03-01 00:00:00");
/// ```
pub fn around(period: Period, now: Timestamp) -> Range<Timestamp> {
    let now_s = now.since_epoch().as_secs();
    let (passed_s, length_s) = match period {
        Period::Month => {
            let date = utc(now).date();
            let days_passed = u64::from(date.day() - 1);
            (days_passed * DAY_S + now_s % DAY_S, u64::from(date.month().length(date.year())) * DAY_S)
        }
        _ => (now_s % period.seconds(), period.seconds()),
    };
    let start = Timestamp::default() + Duration::from_secs(now_s - passed_s);
    start..start + Duration::from_secs(length_s)
}

/// A moment in the notation of RFC 3339, to the millisecond.
///
/// ```
/// use slowlane_core::base::{Timestamp, Utc};
/// assert_eq!(Utc(Timestamp::from_millis(951_782_400_007)).to_string(), "2000-02-29T00:00:00.007Z");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Utc(pub Timestamp);

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = utc(self.0);
        let ((hour, minute, second), ms) = (at.as_hms(), self.0.since_epoch().subsec_millis());
        write!(f, "{}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z", at.date())
    }
}

/// A moment to the second, for people: `2009-02-06 12:14:14`.
pub fn written(at: Timestamp) -> String {
    let at = utc(at);
    let (hour, minute, second) = at.as_hms();
    format!("{} {hour:02}:{minute:02}:{second:02}", at.date())
}

/// The calendar second that contains a moment.
fn utc(at: Timestamp) -> UtcDateTime {
    let second = UtcDateTime::from_unix_timestamp(at.since_epoch().as_secs() as i64);
    second.expect("timestamps end in the year 2554, and the calendar in the year 9999")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn moments_are_written_as_the_calendar_has_them() {
        let reported = |seconds: u64| Utc(Timestamp::from_millis(seconds * 1000)).to_string();
        assert_eq!(reported(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(reported(951_782_399), "2000-02-28T23:59:59.000Z");
        assert_eq!(reported(951_782_400), "2000-02-29T00:00:00.000Z");
        assert_eq!(reported(1_709_251_199), "2024-02-29T23:59:59.000Z");
        assert_eq!(reported(1_735_689_599), "2024-12-31T23:59:59.000Z");
        assert_eq!(reported(4_107_542_400), "2100-03-01T00:00:00.000Z");
        assert_eq!(written(Timestamp::from_millis(1_233_922_454_655)), "2009-02-06 12:14:14");
    }

    proptest! {
        /// Wherever the wall clock is, the period is that of the wall, and contains the moment.
        #[test]
        fn a_period_follows_the_wall_clock(ms in 0u64..8_000_000_000_000, shift_ms in -8_000_000_000_000i64..8_000_000_000_000) {
            let shift = WallShift::of(Box::leak(Box::new(AtomicI64::new(shift_ms * 1_000_000))));
            let now = Timestamp::from_millis(ms);
            prop_assume!(ms.checked_add_signed(shift_ms).is_some());
            for period in [Period::Second, Period::Minute, Period::Hour, Period::Day, Period::Month, Period::Seconds(604_800)] {
                let (span, start) = Calendar { period, shift }.around(now);
                prop_assert_eq!(start, around(period, shift.wall(now)).start);
                prop_assert!(span.contains(&now), "{period:?}");
                prop_assert_eq!(shift.wall(span.end), around(period, shift.wall(now)).end);
            }
        }

        #[test]
        fn every_moment_is_within_its_period_and_periods_have_no_gaps(ms in 0u64..18_000_000_000_000) {
            let now = Timestamp::from_millis(ms);
            for period in [Period::Second, Period::Minute, Period::Hour, Period::Day, Period::Month, Period::Seconds(604_800)] {
                let span = around(period, now);
                prop_assert!(span.contains(&now), "{period:?}");
                prop_assert_eq!(around(period, span.end).start, span.end, "{:?}", period);
                prop_assert_eq!(around(period, span.start), span, "{:?}", period);
            }
        }
    }
}
