//! The variable-length integer of SPOP and of HAProxy's peers protocol (SPOE.txt 3.1).
//!
//! ```text
//!   from          0   1 byte    XXXXXXXX
//!   from        240   2 bytes   1111XXXX 0XXXXXXX
//!   from       2288   3 bytes   1111XXXX 1XXXXXXX 0XXXXXXX
//!   from     264432   4 bytes   1111XXXX 1XXXXXXX 1XXXXXXX 0XXXXXXX
//!   …                 …         each additional byte carries 7 more bits
//!   to   2^64 - 1    10 bytes
//! ```
//! The lowest bits come first. The numbers of each length begin where the numbers of the next shorter length
//! end, so every number has exactly one encoding.

use crate::ReadError;

/// The maximum number of bytes that encode a `u64`.
pub const BYTES_MAX: usize = 10;

/// Numbers below this take a single byte.
const ONE_BYTE_END: u64 = 0xf0;

/// Any byte after the first ends the number if the byte is below this value.
const LAST_BYTE_END: u64 = 0x80;

/// Appends `value`.
///
/// ```
/// use spop::varint;
/// let mut out = Vec::new();
/// varint::encode(239, &mut out);
/// varint::encode(240, &mut out);
/// assert_eq!(out, [0xef, 0xf0, 0x00]);
/// ```
#[inline]
pub fn encode(value: u64, out: &mut Vec<u8>) {
    if value < ONE_BYTE_END {
        out.push(value as u8);
    } else {
        encode_long(value, out);
    }
}

/// Encodes a number of two bytes or more. Room for the longest encoding is reserved at once, not byte by byte.
fn encode_long(value: u64, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0; BYTES_MAX]);
    let bytes = out.last_chunk_mut().expect("the room was just added");
    let length = write_long(value, bytes);
    out.truncate(start + length);
}

/// Writes `value` at the start of `bytes`, and returns the number of bytes written.
#[inline(always)]
pub(crate) fn write(value: u64, bytes: &mut [u8; BYTES_MAX]) -> usize {
    if value < ONE_BYTE_END {
        bytes[0] = value as u8;
        return 1;
    }
    write_long(value, bytes)
}

#[inline]
fn write_long(value: u64, bytes: &mut [u8; BYTES_MAX]) -> usize {
    let rest = (value - ONE_BYTE_END) >> 4;
    if rest < LAST_BYTE_END {
        [bytes[0], bytes[1]] = [(value | ONE_BYTE_END) as u8, rest as u8];
        return 2;
    }
    if rest < FIRST_OF_LENGTH[3] {
        let last = (rest - LAST_BYTE_END) >> 7;
        [bytes[0], bytes[1], bytes[2]] =
            [(value | ONE_BYTE_END) as u8, (rest | LAST_BYTE_END) as u8, last as u8];
        return 3;
    }
    write_longer(value, rest, bytes)
}

/// Writes all bytes at once. The bytes after the first are digits in base 128, lowest first, and all but the
/// last have bit 7 set.
#[inline(never)]
fn write_longer(value: u64, rest: u64, bytes: &mut [u8; BYTES_MAX]) -> usize {
    let estimate = (u64::BITS - (rest | 1).leading_zeros()).div_ceil(7) as usize;
    // The numbers of a length begin where the numbers of the next shorter length end.
    let later = if rest < FIRST_OF_LENGTH[estimate] { estimate - 1 } else { estimate };
    let digits = rest - FIRST_OF_LENGTH[later];
    let is_followed = (1_u128 << (8 * (later - 1))) as u64;
    let marks = is_followed.wrapping_sub(1) & 0x8080_8080_8080_8080;
    bytes[0] = (value | ONE_BYTE_END) as u8;
    bytes[1..9].copy_from_slice(&(spread(digits) | marks).to_le_bytes());
    bytes[9] = (digits >> 56) as u8;
    1 + later
}

/// The smallest `rest` that needs each number of bytes after the first: for n bytes, the sum of 128^k for 0 < k < n.
const FIRST_OF_LENGTH: [u64; BYTES_MAX] = {
    let mut first = [0; BYTES_MAX];
    let mut later = 2;
    while later < BYTES_MAX {
        first[later] = first[later - 1] + (1 << (7 * (later - 1)));
        later += 1;
    }
    first
};

/// Spreads the lowest 56 bits over eight bytes, seven bits in each.
#[inline(always)]
const fn spread(bits: u64) -> u64 {
    let bits = bits & 0x0000_0000_0FFF_FFFF | (bits & 0x00FF_FFFF_F000_0000) << 4;
    let bits = bits & 0x0000_3FFF_0000_3FFF | (bits & 0x0FFF_C000_0FFF_C000) << 2;
    bits & 0x007F_007F_007F_007F | (bits & 0x3F80_3F80_3F80_3F80) << 1
}

/// The number at the start of `bytes`, and its length in bytes, at most [`BYTES_MAX`].
///
/// Numbers of more than 64 bits are an error, unlike in HAProxy's own decoder, which has no limit. A byte
/// after the tenth would have a weight of at least 2^67.
///
/// ```
/// use spop::varint;
/// assert_eq!(varint::decode(&[0xf0, 0x00, 0x55]), Ok((240, 2)));
/// ```
///
/// # Errors
/// The bytes end within the number, or the number has more than 64 bits.
#[inline(always)]
pub fn decode(bytes: &[u8]) -> Result<(u64, usize), ReadError> {
    match bytes {
        [] => Err(ReadError::Truncated),
        &[first, ..] if u64::from(first) < ONE_BYTE_END => Ok((u64::from(first), 1)),
        &[first, ref more @ ..] => decode_long(first, more),
    }
}

fn decode_long(first: u8, more: &[u8]) -> Result<(u64, usize), ReadError> {
    let mut value = u64::from(first);
    let mut weight = 16_u64;
    for (index, &byte) in more.iter().enumerate() {
        let byte = u64::from(byte);
        let part = byte.checked_mul(weight).ok_or(ReadError::VarintRange)?;
        value = value.checked_add(part).ok_or(ReadError::VarintRange)?;
        if byte < LAST_BYTE_END {
            return Ok((value, index + 2));
        }
        weight <<= 7;
    }
    Err(ReadError::Truncated)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MAX_BYTES: [u8; 10] = [0xff, 0xf0, 0xfe, 0xfe, 0xfe, 0xfe, 0xfe, 0xfe, 0xfe, 0x0e];

    fn encoded(value: u64) -> Vec<u8> {
        let mut out = Vec::new();
        encode(value, &mut out);
        out
    }

    #[test]
    fn the_bytes_are_haproxys() {
        let table: [(u64, &[u8]); 18] = [
            (0, &[0x00]),
            (239, &[0xef]),
            (240, &[0xf0, 0x00]),
            (255, &[0xff, 0x00]),
            (256, &[0xf0, 0x01]),
            (2287, &[0xff, 0x7f]),
            (2288, &[0xf0, 0x80, 0x00]),
            (4660, &[0xf4, 0x94, 0x01]),
            (16380, &[0xfc, 0xf0, 0x06]),
            (264431, &[0xff, 0xff, 0x7f]),
            (264432, &[0xf0, 0x80, 0x80, 0x00]),
            (33818863, &[0xff, 0xff, 0xff, 0x7f]),
            (33818864, &[0xf0, 0x80, 0x80, 0x80, 0x00]),
            (4294967295, &[0xff, 0xf0, 0xfe, 0xfe, 0x7e]),
            (4328786159, &[0xff, 0xff, 0xff, 0xff, 0x7f]),
            (4328786160, &[0xf0, 0x80, 0x80, 0x80, 0x80, 0x00]),
            (i64::MAX as u64, &[0xff, 0xf0, 0xfe, 0xfe, 0xfe, 0xfe, 0xfe, 0xfe, 0xfe, 0x06]),
            (u64::MAX, &MAX_BYTES),
        ];
        for (value, bytes) in table {
            assert_eq!(encoded(value), bytes, "{value}");
            assert_eq!(decode(bytes), Ok((value, bytes.len())), "{value}");
        }
    }

    #[test]
    fn each_length_begins_where_the_one_below_it_ends() {
        let minima = [
            240,
            2_288,
            264_432,
            33_818_864,
            4_328_786_160,
            554_084_600_048,
            70_922_828_777_712,
            9_078_122_083_518_704,
            1_161_999_626_690_365_680,
        ];
        for (index, minimum) in minima.into_iter().enumerate() {
            assert_eq!(encoded(minimum).len(), index + 2);
            assert_eq!(encoded(minimum - 1).len(), index + 1);
        }
    }

    #[test]
    fn one_more_than_the_greatest_number_is_refused() {
        let mut bytes = MAX_BYTES;
        bytes[9] += 1;
        assert_eq!(decode(&bytes), Err(ReadError::VarintRange));
    }

    #[test]
    fn no_number_is_longer_than_ten_bytes() {
        let mut bytes = [0x80; 64];
        bytes[0] = 0xf0;
        assert_eq!(decode(&bytes), Err(ReadError::VarintRange));
        assert_eq!(decode(&bytes[..9]), Err(ReadError::Truncated));
    }

    /// Numbers of 0 to 64 bits, each length equally likely.
    fn any_magnitude() -> impl Strategy<Value = u64> {
        (any::<u64>(), 0_u32..64).prop_map(|(value, shift)| value >> shift)
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(value in any_magnitude()) {
            let bytes = encoded(value);
            prop_assert!(bytes.len() <= BYTES_MAX);
            prop_assert_eq!(decode(&bytes), Ok((value, bytes.len())));
            for end in 0..bytes.len() {
                prop_assert_eq!(decode(&bytes[..end]), Err(ReadError::Truncated));
            }
        }

        #[test]
        fn what_is_read_writes_back_to_the_same_bytes(bytes in prop::collection::vec(0xe0_u8.., 0..12), last: u8) {
            let bytes = [&bytes[..], &[last & 0x7f]].concat();
            if let Ok((value, length)) = decode(&bytes) {
                prop_assert_eq!(encoded(value), &bytes[..length]);
            }
        }
    }
}
