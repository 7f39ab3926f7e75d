//! A length and so many bytes: `STRING: <LENGTH:varint><BYTES>`.

use crate::wire::spop::Error;
use crate::wire::spop::cursor::Cursor;
use crate::wire::spop::varint;

pub(super) fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    varint::encode(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Any bytes may be in it, none too.
pub(super) fn decode<'a>(cursor: &mut Cursor<'a>) -> Result<&'a [u8], Error> {
    let length = cursor.varint()?;
    cursor.slice(length)
}
