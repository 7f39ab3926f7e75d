//! Typed data: the values of arguments, variables and KV-LIST items. Also KV-LIST items, each a name and a value.
//!
//! ```text
//!  bit  7 6 5 4   3 2 1 0
//!      ├─flags──┼──type──┤ data …        the one flag in use: bit 4 of a BOOL is its value
//! ```

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::{Cursor, Error, cursor, varint};

const TYPE_MASK: u8 = 0x0f;
const FLAG_TRUE: u8 = 0x10;

const NULL: u8 = 0;
const BOOL: u8 = 1;
const INT32: u8 = 2;
const UINT32: u8 = 3;
const INT64: u8 = 4;
const UINT64: u8 = 5;
const IPV4: u8 = 6;
const IPV6: u8 = 7;
const STR: u8 = 8;
const BIN: u8 = 9;

/// TYPED-DATA (SPOE.txt 3.1), borrowed from its frame.
///
/// HAProxy sends NULL (no value), BOOL, INT64, IPV4, IPV6, STR and BIN. Hellos and disconnects also contain
/// UINT32. To send a number to HAProxy, use INT64: HAProxy reads integers of all types as 64 bits.
///
/// ```
/// use spop::Data;
/// let mut out = Vec::new();
/// Data::Str(b"pass").encode(&mut out);
/// assert_eq!(out, b"\x08\x04pass");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)] // For copies in whole words: with a tag of one byte, reading a NOTIFY takes 25 % longer.
pub enum Data<'a> {
    Null,
    Bool(bool),
    Int32(i32),
    Uint32(u32),
    Int64(i64),
    Uint64(u64),
    Ipv4(Ipv4Addr),
    Ipv6(Ipv6Addr),
    /// Text, which need not be UTF-8.
    Str(&'a [u8]),
    Bin(&'a [u8]),
}

impl<'a> Data<'a> {
    /// The value as a signed number, if it is an integer of any type; otherwise `None`.
    ///
    /// HAProxy's integers are signed. A UINT64 above `i64::MAX` is read as `i64::MAX`, not as a negative number.
    ///
    /// ```
    /// use spop::Data;
    /// assert_eq!(Data::Int32(-5).to_i64(), Some(-5));
    /// assert_eq!(Data::Uint64(u64::MAX).to_i64(), Some(i64::MAX));
    /// assert_eq!(Data::Str(b"5").to_i64(), None);
    /// ```
    pub fn to_i64(self) -> Option<i64> {
        match self {
            Data::Int32(value) => Some(i64::from(value)),
            Data::Uint32(value) => Some(i64::from(value)),
            Data::Int64(value) => Some(value),
            Data::Uint64(value) => Some(i64::try_from(value).unwrap_or(i64::MAX)),
            _ => None,
        }
    }

    /// The bytes of the value, if it is a STR or a BIN; otherwise `None`.
    pub fn to_bytes(self) -> Option<&'a [u8]> {
        match self {
            Data::Str(bytes) | Data::Bin(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Appends the type byte and the value. A negative INT32 is extended to 64 bits, as HAProxy requires.
    #[inline(always)] // Callers mostly know the type, and the match then disappears.
    pub fn encode(self, out: &mut Vec<u8>) {
        match self {
            Data::Null => out.push(NULL),
            Data::Bool(false) => out.push(BOOL),
            Data::Bool(true) => out.push(BOOL | FLAG_TRUE),
            Data::Int32(value) => integer(INT32, i64::from(value) as u64, out),
            Data::Uint32(value) => integer(UINT32, u64::from(value), out),
            Data::Int64(value) => integer(INT64, value as u64, out),
            Data::Uint64(value) => integer(UINT64, value, out),
            Data::Ipv4(address) => fixed(IPV4, &address.octets(), out),
            Data::Ipv6(address) => fixed(IPV6, &address.octets(), out),
            Data::Str(bytes) => sized(STR, bytes, out),
            Data::Bin(bytes) => sized(BIN, bytes, out),
        }
    }

    /// Reads a value. Flags that have no meaning for the type are ignored.
    ///
    /// The reserved types 10 to 15 are an error, because the length of their data is unknown.
    #[inline(always)] // Nearly all values are strings and IPv4 addresses.
    pub(super) fn decode(cursor: &mut Cursor<'a>) -> Result<Data<'a>, Error> {
        let byte = cursor.byte()?;
        match byte & TYPE_MASK {
            STR => Ok(Data::Str(cursor.string()?)),
            IPV4 => Ok(Data::Ipv4(cursor.array::<4>()?.into())),
            _ => {
                let data;
                (data, *cursor) = Data::decode_other(byte, *cursor)?;
                Ok(data)
            }
        }
    }

    /// Reads a value that is neither a STR nor an IPV4. The cursor is passed and returned by value, so that callers can
    /// keep it in registers.
    #[inline(never)]
    fn decode_other(byte: u8, mut cursor: Cursor<'a>) -> Result<(Data<'a>, Cursor<'a>), Error> {
        let data = match byte & TYPE_MASK {
            NULL => Data::Null,
            BOOL => Data::Bool(byte & FLAG_TRUE != 0),
            INT32 => Data::Int32(int32(cursor.varint()?)?),
            UINT32 => Data::Uint32(cursor.varint()?.try_into().map_err(|_| Error::Int32Range)?),
            INT64 => Data::Int64(cursor.varint()? as i64),
            UINT64 => Data::Uint64(cursor.varint()?),
            IPV6 => Data::Ipv6(cursor.array::<16>()?.into()),
            BIN => Data::Bin(cursor.string()?),
            reserved => return Err(Error::ReservedType(reserved)),
        };
        Ok((data, cursor))
    }
}

/// Accepts a negative INT32 encoded in 32 or 64 bits, because SPOE.txt gives no width, and both are in use.
#[inline]
fn int32(raw: u64) -> Result<i32, Error> {
    match u32::try_from(raw) {
        Ok(bits) => Ok(bits as i32),
        Err(_) => i32::try_from(raw as i64).map_err(|_| Error::Int32Range),
    }
}

#[inline]
fn integer(kind: u8, bits: u64, out: &mut Vec<u8>) {
    out.push(kind);
    varint::encode(bits, out);
}

#[inline]
fn fixed(kind: u8, octets: &[u8], out: &mut Vec<u8>) {
    out.push(kind);
    out.extend_from_slice(octets);
}

#[inline]
fn sized(kind: u8, bytes: &[u8], out: &mut Vec<u8>) {
    out.push(kind);
    encode_string(bytes, out);
}

/// Appends a string, preceded by its length.
#[inline]
pub fn encode_string(bytes: &[u8], out: &mut Vec<u8>) {
    varint::encode(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Appends an item of a KV-LIST: `<KV-NAME:string><KV-VALUE:typed data>`.
pub(super) fn encode_item(name: &[u8], value: Data<'_>, out: &mut Vec<u8>) {
    encode_string(name, out);
    value.encode(out);
}

#[inline(always)]
pub(super) fn decode_item<'a>(cursor: &mut Cursor<'a>) -> Result<(&'a [u8], Data<'a>), Error> {
    let name = cursor.string()?;
    let value = Data::decode(cursor)?;
    Ok((name, value))
}

/// The items of a KV-LIST, the payload of hellos and disconnects. The iterator ends after the first invalid item.
///
/// ```
/// use spop::{Data, Error, ReadError, items};
/// let hello: Vec<_> = items(b"\x07version\x08\x032.0").collect();
/// assert_eq!(hello, [Ok((&b"version"[..], Data::Str(b"2.0")))]);
/// assert_eq!(items(b"\x07vers").collect::<Vec<_>>(), [Err(Error::Read(ReadError::Truncated))]);
/// ```
pub fn items(payload: &[u8]) -> impl Iterator<Item = Result<(&[u8], Data<'_>), Error>> {
    cursor::each(payload, decode_item)
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ReadError;

    /// Any value. The bytes of a string are leaked, which a short test run can afford.
    pub(crate) fn any_data() -> impl Strategy<Value = Data<'static>> {
        prop_oneof![
            Just(Data::Null),
            any::<bool>().prop_map(Data::Bool),
            any::<i32>().prop_map(Data::Int32),
            any::<u32>().prop_map(Data::Uint32),
            any::<i64>().prop_map(Data::Int64),
            any::<u64>().prop_map(Data::Uint64),
            any::<Ipv4Addr>().prop_map(Data::Ipv4),
            any::<Ipv6Addr>().prop_map(Data::Ipv6),
            any_bytes().prop_map(Data::Str),
            any_bytes().prop_map(Data::Bin),
        ]
    }

    /// Lengths around 240, where the encoding of a length grows to two bytes.
    pub(crate) fn any_bytes() -> impl Strategy<Value = &'static [u8]> {
        let lengths = prop_oneof![0_usize..20, 235_usize..245];
        lengths
            .prop_flat_map(|length| prop::collection::vec(any::<u8>(), length))
            .prop_map(|bytes| &*bytes.leak())
    }

    fn decode(bytes: &[u8]) -> Result<Data<'_>, Error> {
        let mut cursor = Cursor::new(bytes);
        let data = Data::decode(&mut cursor)?;
        assert!(cursor.is_empty(), "{data:?} left {:?}", cursor.rest());
        Ok(data)
    }

    #[test]
    fn every_type_has_its_bytes() {
        let localhost = b"\x07\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01";
        let minus_five = b"\x04\xfb\xf0\xfe\xfe\xfe\xfe\xfe\xfe\xfe\x0e";
        let table: [(Data<'_>, &[u8]); 13] = [
            (Data::Null, b"\x00"),
            (Data::Bool(false), b"\x01"),
            (Data::Bool(true), b"\x11"),
            (Data::Int32(5), b"\x02\x05"),
            (Data::Uint32(16_380), b"\x03\xfc\xf0\x06"),
            (Data::Int64(240), b"\x04\xf0\x00"),
            (Data::Int64(-5), minus_five),
            (Data::Uint64(255), b"\x05\xff\x00"),
            (Data::Ipv4(Ipv4Addr::new(192, 0, 2, 1)), b"\x06\xc0\x00\x02\x01"),
            (Data::Ipv6(Ipv6Addr::LOCALHOST), localhost),
            (Data::Str(b"GET"), b"\x08\x03GET"),
            (Data::Str(b""), b"\x08\x00"),
            (Data::Bin(b"\x00\xff"), b"\x09\x02\x00\xff"),
        ];
        for (data, bytes) in table {
            let mut out = Vec::new();
            data.encode(&mut out);
            assert_eq!(out, bytes, "{data:?}");
            assert_eq!(decode(bytes), Ok(data));
        }
    }

    #[test]
    fn flags_that_mean_nothing_are_ignored() {
        assert_eq!(decode(b"\x21"), Ok(Data::Bool(false)));
        assert_eq!(decode(b"\xf1"), Ok(Data::Bool(true)));
        assert_eq!(decode(b"\xf0"), Ok(Data::Null));
        assert_eq!(decode(b"\x18\x01a"), Ok(Data::Str(b"a")));
    }

    #[test]
    fn a_negative_int32_is_understood_at_both_widths() {
        assert_eq!(decode(b"\x02\xfb\xf0\xfe\xfe\xfe\xfe\xfe\xfe\xfe\x0e"), Ok(Data::Int32(-5)));
        let mut bare = vec![INT32];
        varint::encode(0xffff_fffb, &mut bare);
        assert_eq!(decode(&bare), Ok(Data::Int32(-5)));
    }

    #[test]
    fn a_32_bit_integer_is_no_wider() {
        for kind in [INT32, UINT32] {
            let mut bytes = vec![kind];
            varint::encode(1 << 32, &mut bytes);
            assert_eq!(decode(&bytes), Err(Error::Int32Range));
        }
    }

    #[test]
    fn reserved_types_are_refused() {
        for reserved in 10..=15 {
            assert_eq!(decode(&[reserved, 0]), Err(Error::ReservedType(reserved)));
        }
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back_and_no_part_of_it_does(data in any_data()) {
            let mut bytes = Vec::new();
            data.encode(&mut bytes);
            prop_assert_eq!(decode(&bytes), Ok(data));
            for end in 0..bytes.len() {
                prop_assert_eq!(decode(&bytes[..end]), Err(Error::Read(ReadError::Truncated)));
            }
        }
    }
}
