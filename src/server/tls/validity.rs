//! The end of a certificate's validity.

use std::time::Duration;

use time::{Date, Month};

/// Tags of DER (X.690).
const SEQUENCE: u8 = 0x30;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// The version stands in front of the other parts, unless it is the first one.
const VERSION: u8 = 0xa0;

/// The moment after which a certificate is no longer valid, since 1970 (RFC 5280, 4.1). None: it cannot be read.
pub(super) fn not_after(certificate: &[u8]) -> Option<Duration> {
    let certificate = Part::first(certificate)?.within(SEQUENCE)?;
    let mut parts = Part::first(certificate)?.within(SEQUENCE)?;
    if parts.first() == Some(&VERSION) {
        parts = Part::first(parts)?.rest;
    }
    // The serial number, the algorithm of the signature and the issuer come before the validity.
    for _ in 0..3 {
        parts = Part::first(parts)?.rest;
    }
    let validity = Part::first(parts)?.within(SEQUENCE)?;
    Part::first(Part::first(validity)?.rest)?.time()
}

/// A value of DER, and the bytes behind it.
struct Part<'a> {
    tag: u8,
    value: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Part<'a> {
    fn first(bytes: &'a [u8]) -> Option<Part<'a>> {
        let (&[tag, short], rest) = bytes.split_first_chunk()?;
        let (length, rest) = match short {
            0..=0x7f => (usize::from(short), rest),
            // A certificate of more than 16 MB is none.
            0x81..=0x83 => {
                let (length, rest) = rest.split_at_checked(usize::from(short & 0x7f))?;
                (length.iter().fold(0, |sum, &byte| sum << 8 | usize::from(byte)), rest)
            }
            _ => return None,
        };
        let (value, rest) = rest.split_at_checked(length)?;
        Some(Part { tag, value, rest })
    }

    fn within(self, tag: u8) -> Option<&'a [u8]> {
        (self.tag == tag).then_some(self.value)
    }

    /// `YYMMDDHHMMSSZ`, where years from 50 on are of the 20th century, or `YYYYMMDDHHMMSSZ` (RFC 5280, 4.1.2.5).
    fn time(self) -> Option<Duration> {
        let digits = self.value.strip_suffix(b"Z")?;
        let (century, digits) = match (self.tag, digits.len()) {
            (UTC_TIME, 12) if digits[0] >= b'5' => (19, digits),
            (UTC_TIME, 12) => (20, digits),
            (GENERALIZED_TIME, 14) => (pair(digits)?, &digits[2..]),
            _ => return None,
        };
        let numbers: Vec<u8> = digits.chunks_exact(2).map(pair).collect::<Option<_>>()?;
        let &[year, month, day, hour, minute, second] = &numbers[..] else { return None };
        let year = i32::from(century) * 100 + i32::from(year);
        let date = Date::from_calendar_date(year, Month::try_from(month).ok()?, day).ok()?;
        let end_s = date.with_hms(hour, minute, second).ok()?.as_utc().unix_timestamp();
        u64::try_from(end_s).ok().map(Duration::from_secs)
    }
}

/// The number that two digits are.
fn pair(digits: &[u8]) -> Option<u8> {
    let &[ten, one, ..] = digits else { return None };
    (ten.is_ascii_digit() && one.is_ascii_digit()).then(|| (ten - b'0') * 10 + one - b'0')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn part(tag: u8, value: &[u8]) -> Vec<u8> {
        let mut bytes = vec![tag];
        match u8::try_from(value.len()) {
            Ok(length @ 0..=0x7f) => bytes.push(length),
            Ok(length) => bytes.extend([0x81, length]),
            Err(_) => bytes.extend([0x82, (value.len() >> 8) as u8, value.len() as u8]),
        }
        bytes.extend(value);
        bytes
    }

    /// A certificate as far as its validity.
    fn certificate(version: &[u8], issuer: &[u8], end: Vec<u8>) -> Vec<u8> {
        let validity = part(SEQUENCE, &[part(UTC_TIME, b"000101000000Z"), end].concat());
        let parts = [version, &part(0x02, &[1]), &part(SEQUENCE, &[]), &part(SEQUENCE, issuer), &validity];
        part(SEQUENCE, &part(SEQUENCE, &parts.concat()))
    }

    fn ends(tag: u8, time: &[u8]) -> Option<u64> {
        let version = part(VERSION, &part(0x02, &[2]));
        not_after(&certificate(&version, &[0; 300], part(tag, time))).map(|end| end.as_secs())
    }

    #[test]
    fn both_notations_of_a_time_are_read() {
        assert_eq!(ends(UTC_TIME, b"700102000001Z"), Some(86_401));
        assert_eq!(ends(UTC_TIME, b"490101000000Z"), ends(GENERALIZED_TIME, b"20490101000000Z"));
        assert_eq!(ends(GENERALIZED_TIME, b"20000229123456Z"), Some(951_827_696));
        assert!(ends(GENERALIZED_TIME, b"99991231235959Z").unwrap() > 18_000_000_000);
        for wrong in [&b""[..], b"Z", b"7001020000Z", b"700102000001", b"70010200000xZ", b"701302000001Z"] {
            assert_eq!(ends(UTC_TIME, wrong), None, "{}", wrong.escape_ascii());
        }
        let first_version = certificate(&[], b"", part(UTC_TIME, b"700102000001Z"));
        assert_eq!(not_after(&first_version), Some(Duration::from_secs(86_401)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = not_after(&bytes);
        }

        #[test]
        fn a_certificate_that_is_cut_off_has_no_end(at in 0usize..340) {
            let whole = certificate(&[], &[7; 290], part(UTC_TIME, b"700102000001Z"));
            prop_assert_eq!(not_after(&whole[..at.min(whole.len() - 1)]), None);
        }
    }
}
