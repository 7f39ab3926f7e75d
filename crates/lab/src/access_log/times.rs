//! The time of a request in a line, and its duration.

use memchr::memchr;
use time::{Date, Month};

use crate::access_log::line::{Values, Wanted};

/// The notation of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimeForm {
    /// `06/Feb/2009:12:14:14.655`, which has no zone and is taken to be in UTC, or `06/Feb/2009:12:14:14 +0100`.
    Clf,
    /// `2009-02-06T12:14:14+01:00`
    Iso8601,
    /// A decimal number of units of this many nanoseconds each: `1233922454.655`.
    Decimal(u64),
    /// Any of these forms. The unit of a number follows from its size.
    Any,
}

const SECOND_NS: u64 = 1_000_000_000;
const SECONDS: TimeForm = TimeForm::Decimal(SECOND_NS);
const MILLISECONDS: TimeForm = TimeForm::Decimal(1_000_000);
const MICROSECONDS: TimeForm = TimeForm::Decimal(1_000);

/// Items with a time, best first: the time of the request, of its connection, or of its answer.
const TIMES: &[(&str, TimeForm)] = &[
    ("%tr", TimeForm::Clf),
    ("%trg", TimeForm::Clf),
    ("%trl", TimeForm::Clf),
    ("%[request_date(0,us)]", MICROSECONDS),
    ("%[request_date(0,ms)]", MILLISECONDS),
    ("%[request_date]", SECONDS),
    ("%t", TimeForm::Clf),
    ("%[accept_date(0,us)]", MICROSECONDS),
    ("%[accept_date(0,ms)]", MILLISECONDS),
    ("%[accept_date]", SECONDS),
    ("%Ts", SECONDS),
    ("%T", TimeForm::Clf),
    ("%Tl", TimeForm::Clf),
    ("%[date(0,us)]", MICROSECONDS),
    ("%[date(0,ms)]", MILLISECONDS),
    ("%[date]", SECONDS),
    ("$msec", SECONDS),
    ("$time_iso8601", TimeForm::Iso8601),
    ("$time_local", TimeForm::Clf),
    ("$time", TimeForm::Any),
    ("$start_time", TimeForm::Any),
    ("$start_local", TimeForm::Clf),
];

/// Items with a duration. The items that exclude the connection's idle time come first.
const DURATIONS: [&str; 6] = ["%Ta", "%Tu", "%Tt", "$request_time", "$request_ms", "$request_ns"];

/// How many of a duration item's units make a second, such as 1000 for milliseconds.
pub(super) fn parts(noun: &str) -> u64 {
    match noun {
        _ if noun.starts_with("%T") || noun.ends_with("_ms") => 1_000,
        _ if noun.ends_with("_ns") => SECOND_NS,
        _ => 1,
    }
}

/// The positions and the formats of the times in a line.
#[derive(Clone, Debug)]
pub(crate) struct Times {
    /// The item with the time.
    pub(super) noun: String,
    item: usize,
    form: TimeForm,
    /// Whether any time so far had a fraction of a second.
    is_fine: bool,
    /// Whether the time is that of the answer.
    is_of_end: bool,
    /// HAProxy's `%ms`, which completes a time in whole seconds.
    ms: Option<usize>,
    duration: Option<(usize, u64)>,
}

impl Times {
    /// `mapped` is the item that the operator has named. Returns None if no item in the format holds a time.
    pub(super) fn new(mapped: Option<&str>, wanted: &mut Wanted<'_>) -> Option<Times> {
        let mapped = mapped.map(|noun| (noun, TimeForm::Any));
        let (noun, item, form) = mapped
            .iter()
            .chain(TIMES.iter().filter(|_| mapped.is_none()))
            .find_map(|&(noun, form)| Some((noun, wanted.want(noun)?.0, form)))?;
        let is_of_end =
            ["$", "%[date"].iter().any(|of_end| noun.starts_with(of_end)) && !noun.starts_with("$start");
        let is_whole = matches!(noun, "%Ts" | "%T" | "%Tl");
        let ms = if is_whole { wanted.want("%ms").map(|(item, _)| item) } else { None };
        let duration =
            DURATIONS.iter().find_map(|noun| Some((wanted.want(noun)?.0, SECOND_NS / parts(noun))));
        Some(Times { noun: noun.to_owned(), item, form, is_fine: false, is_of_end, ms, duration })
    }

    /// Whether times have a zone. The times that HAProxy usually writes have none.
    pub(crate) fn has_zone(&self) -> bool {
        !matches!(&*self.noun, "%tr" | "%t")
    }

    /// Whether the format has no fractions of a second, or no time so far has had any.
    pub(crate) fn is_in_seconds(&self) -> bool {
        let is_fine =
            self.is_fine && self.form == TimeForm::Any || matches!(self.form, MILLISECONDS | MICROSECONDS);
        self.ms.is_none() && !is_fine && !matches!(&*self.noun, "%tr" | "%t" | "$msec")
    }

    pub(crate) fn has_duration(&self) -> bool {
        self.duration.is_some()
    }

    /// The time of the request in nanoseconds since 1970, and the request's duration.
    pub(super) fn read(&mut self, values: &Values<'_>) -> Option<(u64, Option<u64>)> {
        let mut at_ns = self.form.read(values.of(self.item)?)?;
        if let Some(ms) = self.ms {
            let ms_ns = decimal(values.of(ms)?, 1_000_000).filter(|&ns| ns < SECOND_NS)?;
            at_ns = at_ns.checked_add(ms_ns)?;
        }
        self.is_fine |= at_ns % SECOND_NS != 0;
        let duration_ns = self.duration.and_then(|(item, unit_ns)| {
            let text = values.of(item)?;
            // With `option logasap`, HAProxy writes a `+` before the duration so far.
            decimal(text.strip_prefix(b"+").unwrap_or(text), unit_ns)
        });
        if self.is_of_end {
            at_ns = at_ns.saturating_sub(duration_ns.unwrap_or(0));
        }
        Some((at_ns, duration_ns))
    }
}

impl TimeForm {
    /// A time in nanoseconds since 1970.
    pub(super) fn read(self, text: &[u8]) -> Option<u64> {
        let (minute, rest) = match self {
            TimeForm::Clf => text.split_at_checked("06/Feb/2009:12:14".len())?,
            TimeForm::Iso8601 => text.split_at_checked("2009-02-06T12:14".len())?,
            TimeForm::Decimal(unit_ns) => return decimal(text, unit_ns),
            TimeForm::Any => match text {
                [_, _, b'/', ..] => return TimeForm::Clf.read(text),
                [_, _, _, _, b'-', ..] => return TimeForm::Iso8601.read(text),
                _ => {
                    // Seconds have ten digits, milliseconds thirteen, and so on.
                    let digits = memchr(b'.', text).unwrap_or(text.len()).clamp(10, 19);
                    return decimal(text, SECOND_NS / 1_000u64.pow((digits as u32 - 8) / 3));
                }
            },
        };
        let zone = rest.iter().position(|byte| matches!(byte, b' ' | b'+' | b'-' | b'Z'));
        let (second, zone) = rest.split_at(zone.unwrap_or(rest.len()));
        // 60 is a leap second.
        let second_ns = decimal(second.strip_prefix(b":")?, SECOND_NS).filter(|&ns| ns < 61 * SECOND_NS)?;
        let start_s = u64::try_from(minute_start_s(minute)? - offset_s(zone)?).ok()?;
        start_s.checked_mul(SECOND_NS)?.checked_add(second_ns)
    }
}

/// The start of a minute like `06/Feb/2009:12:14` or `2009-02-06T12:14`, in seconds since 1970.
fn minute_start_s(text: &[u8]) -> Option<i64> {
    let (date, &[h, h2, b':', n, n2]) = text.split_last_chunk()? else { return None };
    let (century, year, month, day) = match *date {
        [d, d2, b'/', ref name @ .., b'/', y, y2, y3, y4, b':'] => {
            let month = (1..).zip(MONTHS).find_map(|(month, known)| (known == name).then_some(month));
            (pair(y, y2)?, pair(y3, y4)?, month?, pair(d, d2)?)
        }
        [y, y2, y3, y4, b'-', m, m2, b'-', d, d2, b'T' | b' '] => {
            (pair(y, y2)?, pair(y3, y4)?, pair(m, m2)?, pair(d, d2)?)
        }
        _ => return None,
    };
    let year = i32::from(century) * 100 + i32::from(year);
    let date = Date::from_calendar_date(year, Month::try_from(month).ok()?, day).ok()?;
    Some(date.with_hms(pair(h, h2)?, pair(n, n2)?, 0).ok()?.as_utc().unix_timestamp())
}

const MONTHS: [&[u8]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];

/// The offset of a zone from UTC: `+0100`, `+01:00`, `Z` or nothing.
fn offset_s(zone: &[u8]) -> Option<i64> {
    let (sign, hours, minutes) = match *zone.strip_prefix(b" ").unwrap_or(zone) {
        [] | [b'Z'] => return Some(0),
        [sign, h, h2, m, m2] | [sign, h, h2, b':', m, m2] => (sign, pair(h, h2)?, pair(m, m2)?),
        _ => return None,
    };
    let ahead_s = i64::from(hours) * 3_600 + i64::from(minutes) * 60;
    match sign {
        b'+' => Some(ahead_s),
        b'-' => Some(-ahead_s),
        _ => None,
    }
}

/// The number with these two digits.
fn pair(ten: u8, one: u8) -> Option<u8> {
    (ten.is_ascii_digit() && one.is_ascii_digit()).then(|| (ten - b'0') * 10 + one - b'0')
}

/// A decimal number of units of `unit_ns` nanoseconds each, in nanoseconds.
fn decimal(text: &[u8], unit_ns: u64) -> Option<u64> {
    let (whole, fraction) = match memchr(b'.', text) {
        Some(point) => (&text[..point], Some(&text[point + 1..])),
        None => (text, None),
    };
    let whole_ns = number(whole)?.checked_mul(unit_ns)?;
    let Some(fraction) = fraction else { return Some(whole_ns) };
    let parts = 10u64.checked_pow(fraction.len() as u32)?;
    whole_ns.checked_add(number(fraction)?.checked_mul(unit_ns)? / parts)
}

fn number(digits: &[u8]) -> Option<u64> {
    let add = |number: u64, &digit: &u8| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    };
    digits.iter().try_fold(0, add).filter(|_| !digits.is_empty())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use slowlane_core::base::{Timestamp, date::written};

    fn read(form: TimeForm, text: &str) -> Option<u64> {
        form.read(text.as_bytes())
    }

    #[test]
    fn one_moment_is_read_from_every_way_of_writing_it() {
        // date -u -d '2009-02-06 12:14:14' +%s
        let ns = 1_233_922_454_655_000_000;
        let second_ns = 1_233_922_454_000_000_000;
        assert_eq!(read(TimeForm::Clf, "06/Feb/2009:12:14:14.655"), Some(ns));
        assert_eq!(read(TimeForm::Clf, "06/Feb/2009:12:14:14 +0000"), Some(second_ns));
        assert_eq!(read(TimeForm::Clf, "06/Feb/2009:13:44:14 +0130"), Some(second_ns));
        assert_eq!(read(TimeForm::Clf, "06/Feb/2009:09:14:14 -0300"), Some(second_ns));
        assert_eq!(read(TimeForm::Iso8601, "2009-02-06T13:14:14+01:00"), Some(second_ns));
        assert_eq!(read(TimeForm::Iso8601, "2009-02-06T12:14:14.655Z"), Some(ns));
        assert_eq!(read(SECONDS, "1233922454"), Some(second_ns));
        assert_eq!(read(SECONDS, "1233922454.655"), Some(ns));
        assert_eq!(read(MILLISECONDS, "1233922454655"), Some(ns));
        assert_eq!(read(MICROSECONDS, "1233922454655000"), Some(ns));
        for text in
            ["06/Feb/2009:12:14:14.655", "2009-02-06 12:14:14.655", "1233922454.655", "1233922454655000000"]
        {
            assert_eq!(read(TimeForm::Any, text), Some(ns), "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "-",
            "06/Feb/2009",
            "06/Fab/2009:12:14:14.655",
            "06/Feb/2009:24:14:14.655",
            "06/Feb/2009:12:14:61.655",
            "06/Feb/2009:12:14:14.",
            "06/Feb/2009:12:14:14 0000",
            "06/Feb/1969:12:14:14.655",
            "06/Feb/9999:12:14:14.655",
            "32/Feb/2009:12:14:14.655",
            "06/Feb/2009:12:14:14x",
        ] {
            assert_eq!(read(TimeForm::Clf, text), None, "{text:?}");
        }
        for text in ["", "x", "1.", "-1", "99999999999999999999", "18446744074"] {
            assert_eq!(read(SECONDS, text), None, "{text:?}");
        }
        for text in ["2009-02-06", "2009-02-06_12:14:14", "2009-02-06T12:14:14+1"] {
            assert_eq!(read(TimeForm::Iso8601, text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn a_moment_is_read_as_it_is_written(at_s in 0u64..18_000_000_000) {
            let text = written(Timestamp::from_nanos(at_s * SECOND_NS)).replace(' ', "T");
            prop_assert_eq!(read(TimeForm::Iso8601, &text), Some(at_s * SECOND_NS));
        }

        #[test]
        fn any_bytes_are_a_time_or_none(text in prop::collection::vec(any::<u8>(), 0..40)) {
            for form in [TimeForm::Clf, TimeForm::Iso8601, SECONDS, MILLISECONDS] {
                let _ = form.read(&text);
            }
        }
    }
}
