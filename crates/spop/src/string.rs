//! Length-prefixed strings: `STRING: <LENGTH:varint><BYTES>` (SPOE.txt 3.1).

use crate::{Cursor, ReadError, varint};

#[inline]
pub fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    varint::encode(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Reads a string. It may contain any bytes, and may be empty.
#[inline(always)]
pub(crate) fn decode<'a>(cursor: &mut Cursor<'a>) -> Result<&'a [u8], ReadError> {
    let length = cursor.varint()?;
    cursor.slice(length)
}
