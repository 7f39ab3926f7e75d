//! A name and its value, the item of a KV-LIST: `<KV-NAME:string><KV-VALUE:typed data>`.

use crate::wire::cursor::Cursor;
use crate::wire::spop::data::Data;
use crate::wire::spop::error::Error;
use crate::wire::string;

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
