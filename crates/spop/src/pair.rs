//! A name and its value, the item of a KV-LIST: `<KV-NAME:string><KV-VALUE:typed data>`.

use crate::cursor;
use crate::{Cursor, Data, Error, string};

pub(super) fn encode(name: &[u8], value: Data<'_>, out: &mut Vec<u8>) {
    string::encode(name, out);
    value.encode(out);
}

#[inline(always)]
pub(super) fn decode<'a>(cursor: &mut Cursor<'a>) -> Result<(&'a [u8], Data<'a>), Error> {
    let name = string::decode(cursor)?;
    let value = Data::decode(cursor)?;
    Ok((name, value))
}

/// The items of a KV-LIST, the payload of hellos and disconnects. It ends after the first invalid one.
///
/// ```
/// use spop::{Data, Error, ReadError, items};
/// let hello: Vec<_> = items(b"\x07version\x08\x032.0").collect();
/// assert_eq!(hello, [Ok((&b"version"[..], Data::Str(b"2.0")))]);
/// assert_eq!(items(b"\x07vers").collect::<Vec<_>>(), [Err(Error::Read(ReadError::Truncated))]);
/// ```
pub fn items(payload: &[u8]) -> impl Iterator<Item = Result<(&[u8], Data<'_>), Error>> {
    cursor::each(payload, decode)
}
