//! The times that proxies write into their logs, as nanoseconds since 1970.

use slowlane_core::base::date::Date;

/// How a time is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimeForm {
    /// `06/Feb/2009:12:14:14.655`, without a zone and taken for UTC, or `06/Feb/2009:12:14:14 +0100`.
    Clf,
    /// `2009-02-06T12:14:14+01:00`
    Iso8601,
    /// `1233922454` or `1233922454.655`
    Seconds,
    Milliseconds,
    Microseconds,
}

const SECOND_NS: u64 = 1_000_000_000;

/// The length of `06/Feb/2009:12:14`, which is mostly the same as in the previous line.
const MINUTE_BYTES: usize = 17;

/// Reads times. It remembers the date of the last minute.
#[derive(Debug, Default)]
pub(super) struct Calendar {
    minute: [u8; MINUTE_BYTES],
    minute_s: u64,
}

impl Calendar {
    pub(super) fn read(&mut self, form: TimeForm, text: &[u8]) -> Option<u64> {
        match form {
            TimeForm::Clf => self.clf(text),
            TimeForm::Iso8601 => iso8601(text),
            TimeForm::Seconds => decimal(text, SECOND_NS),
            TimeForm::Milliseconds => decimal(text, 1_000_000),
            TimeForm::Microseconds => decimal(text, 1_000),
        }
    }

    fn clf(&mut self, text: &[u8]) -> Option<u64> {
        let (minute, rest) = text.split_first_chunk::<MINUTE_BYTES>()?;
        if *minute != self.minute {
            self.minute_s = clf_minute(minute)?;
            self.minute = *minute;
        }
        let (seconds, rest) = rest.split_first_chunk::<3>()?;
        if seconds[0] != b':' {
            return None;
        }
        let whole_s = self.minute_s + second(&seconds[1..])?;
        match rest {
            [] => Some(whole_s * SECOND_NS),
            [b'.', fraction @ ..] => Some(whole_s * SECOND_NS + nanos(fraction)?),
            [b' ', zone @ ..] => Some(without_zone(whole_s, zone)? * SECOND_NS),
            _ => None,
        }
    }
}

fn clf_minute(text: &[u8; MINUTE_BYTES]) -> Option<u64> {
    let &[d, d2, b'/', m, m2, m3, b'/', y, y2, y3, y4, b':', h, h2, b':', n, n2] = text else { return None };
    let days = days(number(&[y, y2, y3, y4])?, month(&[m, m2, m3])?, number(&[d, d2])?)?;
    Some(days * 86_400 + time_of_day(number(&[h, h2])?, number(&[n, n2])?)?)
}

fn iso8601(text: &[u8]) -> Option<u64> {
    let (head, rest) = text.split_first_chunk::<19>()?;
    let &[y, y2, y3, y4, b'-', m, m2, b'-', d, d2, b'T', h, h2, b':', n, n2, b':', s, s2] = head else {
        return None;
    };
    let days = days(number(&[y, y2, y3, y4])?, number(&[m, m2])?, number(&[d, d2])?)?;
    let time = time_of_day(number(&[h, h2])?, number(&[n, n2])?)?;
    let whole_s = days * 86_400 + time + second(&[s, s2])?;
    let (fraction_ns, zone) = match rest {
        [b'.', fraction @ ..] => {
            let digits = fraction.iter().take_while(|byte| byte.is_ascii_digit()).count();
            (nanos(&fraction[..digits])?, &fraction[digits..])
        }
        zone => (0, zone),
    };
    Some(without_zone(whole_s, zone)? * SECOND_NS + fraction_ns)
}

/// The same moment in UTC; a zone is `+0100`, `+01:00`, `Z` or nothing.
fn without_zone(local_s: u64, zone: &[u8]) -> Option<u64> {
    let (sign, hours, minutes) = match *zone {
        [] | [b'Z'] => return Some(local_s),
        [sign, h, h2, m, m2] | [sign, h, h2, b':', m, m2] => (sign, number(&[h, h2])?, number(&[m, m2])?),
        _ => return None,
    };
    let offset_s = u64::from(hours * 3_600 + minutes * 60);
    match sign {
        b'+' => local_s.checked_sub(offset_s),
        b'-' => Some(local_s + offset_s),
        _ => None,
    }
}

fn month(name: &[u8; 3]) -> Option<u32> {
    const NAMES: &[u8; 36] = b"JanFebMarAprMayJunJulAugSepOctNovDec";
    (1..).zip(NAMES.as_chunks::<3>().0).find_map(|(month, given)| (given == name).then_some(month))
}

fn time_of_day(hours: u32, minutes: u32) -> Option<u64> {
    (hours < 24 && minutes < 60).then(|| u64::from(hours * 3_600 + minutes * 60))
}

/// A second of a minute: 60 is a leap second.
fn second(digits: &[u8]) -> Option<u64> {
    number(digits).filter(|&seconds| seconds <= 60).map(u64::from)
}

/// Days since 1970-01-01 in the Gregorian calendar.
fn days(year: u32, month: u32, day: u32) -> Option<u64> {
    Some(Date::new(year, month, day)?.days().into())
}

/// A number of a few digits, and nothing else.
fn number(digits: &[u8]) -> Option<u32> {
    digits
        .iter()
        .try_fold(0, |number, &byte| byte.is_ascii_digit().then(|| number * 10 + u32::from(byte - b'0')))
}

/// The digits after a point.
fn nanos(fraction: &[u8]) -> Option<u64> {
    let is_digits = !fraction.is_empty() && fraction.len() <= 9 && fraction.iter().all(u8::is_ascii_digit);
    let number = || fraction.iter().fold(0, |number, &byte| number * 10 + u64::from(byte - b'0'));
    is_digits.then(|| number() * 10u64.pow(9 - fraction.len() as u32))
}

/// A decimal number of units, `unit_ns` nanoseconds each.
pub(super) fn decimal(text: &[u8], unit_ns: u64) -> Option<u64> {
    let point = text.iter().position(|&byte| byte == b'.');
    let (whole, fraction) = text.split_at(point.unwrap_or(text.len()));
    if whole.is_empty() || whole.len() > 19 || !whole.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let whole = whole.iter().fold(0u64, |number, &byte| number * 10 + u64::from(byte - b'0'));
    let fraction_ns = if fraction.is_empty() { 0 } else { nanos(&fraction[1..])? / (SECOND_NS / unit_ns) };
    whole.checked_mul(unit_ns)?.checked_add(fraction_ns)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use slowlane_core::base::date::written;
    use slowlane_core::base::time::Timestamp;

    fn read(form: TimeForm, text: &str) -> Option<u64> {
        Calendar::default().read(form, text.as_bytes())
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
        assert_eq!(read(TimeForm::Seconds, "1233922454"), Some(second_ns));
        assert_eq!(read(TimeForm::Seconds, "1233922454.655"), Some(ns));
        assert_eq!(read(TimeForm::Milliseconds, "1233922454655"), Some(ns));
        assert_eq!(read(TimeForm::Microseconds, "1233922454655000"), Some(ns));
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
            assert_eq!(read(TimeForm::Seconds, text), None, "{text:?}");
        }
        for text in ["2009-02-06", "2009-02-06 12:14:14", "2009-02-06T12:14:14+1"] {
            assert_eq!(read(TimeForm::Iso8601, text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn a_calendar_that_has_read_others_reads_the_same(
            texts in prop::collection::vec("[0-3][0-9]/(Jan|Feb|Dec)/20[0-9]{2}:[0-2][0-9]:[0-5][0-9]:[0-5][0-9].[0-9]{3}", 1..9)
        ) {
            let mut calendar = Calendar::default();
            for text in &texts {
                prop_assert_eq!(calendar.read(TimeForm::Clf, text.as_bytes()), read(TimeForm::Clf, text));
            }
        }

        #[test]
        fn a_moment_is_read_as_it_is_written(at_s in 0u64..18_000_000_000) {
            let text = written(Timestamp::from_nanos(at_s * SECOND_NS)).replace(' ', "T");
            prop_assert_eq!(read(TimeForm::Iso8601, &text), Some(at_s * SECOND_NS));
        }

        #[test]
        fn any_bytes_are_a_time_or_none(text in prop::collection::vec(any::<u8>(), 0..40)) {
            for form in [TimeForm::Clf, TimeForm::Iso8601, TimeForm::Seconds, TimeForm::Milliseconds] {
                Calendar::default().read(form, &text);
            }
        }
    }
}
