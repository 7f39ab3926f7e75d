//! The end of a certificate's validity.

use std::time::Duration;

use der::asn1::{AnyRef, GeneralizedTime, UtcTime};
use der::{Decode, SliceReader, Tag, Tagged};

/// The moment after which a certificate is no longer valid, since 1970 (RFC 5280, 4.1). None: it cannot be read.
pub(super) fn not_after(certificate: &[u8]) -> Option<Duration> {
    let mut certificate = sequence(&mut SliceReader::new(certificate).ok()?)?;
    let mut parts = sequence(&mut certificate)?;
    // The version stands in front of the other parts, unless it is the first one.
    let has_version = part(&mut parts)?.tag().is_context_specific();
    // The serial number, the algorithm of the signature and the issuer come before the validity.
    for _ in 0..2 + usize::from(has_version) {
        part(&mut parts)?;
    }
    let mut validity = sequence(&mut parts)?;
    let _not_before = part(&mut validity)?;
    let end = part(&mut validity)?;
    match end.tag() {
        Tag::UtcTime => Some(end.decode_as::<UtcTime>().ok()?.to_unix_duration()),
        Tag::GeneralizedTime => Some(end.decode_as::<GeneralizedTime>().ok()?.to_unix_duration()),
        _ => None,
    }
}

fn part<'a>(reader: &mut SliceReader<'a>) -> Option<AnyRef<'a>> {
    AnyRef::decode(reader).ok()
}

fn sequence<'a>(reader: &mut SliceReader<'a>) -> Option<SliceReader<'a>> {
    let part = part(reader).filter(|part| part.tag() == Tag::Sequence)?;
    SliceReader::new(part.value()).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SEQUENCE: u8 = 0x30;
    const UTC_TIME: u8 = 0x17;
    const GENERALIZED_TIME: u8 = 0x18;
    const VERSION: u8 = 0xa0;

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
