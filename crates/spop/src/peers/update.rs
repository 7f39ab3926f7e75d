//! An update: a key of a table with its values (peers-v2.0.txt, "Update Messages").
//!
//! ```text
//! [update id: 4, big-endian] │ [remaining ms: 4, big-endian] │ key │ the values, in the order of the columns
//! ```
//! An incremental update contains no id: its id is the previous id plus one. From 3.3 on, HAProxy reverses
//! the bytes of such an id, so slowlane always sends ids.

use crate::cursor::Cursor;
use crate::peers::definition::KEY_BYTES_MAX;
use crate::peers::frame::{INCREMENTAL_TIMED, UPDATE, UPDATE_TIMED, ended};
use crate::peers::{Definition, Error, KeyType};
use crate::{encode_string, varint};

/// One update, whose key is borrowed from the read buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update<'a> {
    /// The number of the update. None means the previous number plus one.
    pub id: Option<u32>,
    /// The bytes of the key: text, an address, binary data, or the four big-endian bytes of an integer.
    pub key: &'a [u8],
    /// The values of all columns, in order: for a frequency, events in the current period; for a dictionary entry, 0.
    pub values: Vec<u64>,
}

impl<'a> Update<'a> {
    /// Reads the body of one of the four types of updates.
    pub(super) fn decode(kind: u8, body: &'a [u8], table: &Definition) -> Result<Update<'a>, Error> {
        let mut cursor = Cursor::new(body);
        let has_id = matches!(kind, UPDATE | UPDATE_TIMED);
        let id = if has_id { Some(u32::from_be_bytes(cursor.array()?)) } else { None };
        if matches!(kind, UPDATE_TIMED | INCREMENTAL_TIMED) {
            cursor.slice(4)?;
        }
        let key = match table.key_type {
            KeyType::String => cursor.string()?,
            KeyType::Int => cursor.slice(4)?,
            KeyType::Ipv4 | KeyType::Ipv6 | KeyType::Binary => cursor.slice(table.key_bytes)?,
        };
        if key.len() as u64 > KEY_BYTES_MAX {
            return Err(Error::TooLongName(key.len() as u64));
        }
        let mut values = Vec::with_capacity(table.columns.iter().map(|column| column.values as usize).sum());
        for column in &table.columns {
            for _ in 0..column.values {
                values.push(column.decode_value(&mut cursor)?);
            }
        }
        ended(cursor)?;
        Ok(Update { id, key, values })
    }

    /// The values of a column. Empty if the table has no such column.
    pub fn column(&self, table: &Definition, number: u32) -> &[u64] {
        let Some((before, values)) = table.place(number) else { return &[] };
        self.values.get(before..before + values).unwrap_or(&[])
    }
}

/// Appends the body of an update for a table whose keys are strings and whose columns are numbers.
pub(super) fn encode(id: u32, key: &[u8], values: &[u64], out: &mut Vec<u8>) {
    out.extend_from_slice(&id.to_be_bytes());
    encode_string(key, out);
    values.iter().for_each(|&number| varint::encode(number, out));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::peers::Column;
    use crate::peers::definition::tests::any_definition;
    use crate::peers::frame::INCREMENTAL;

    /// An update of HAProxy 3.2, from a table with gpc0, gpc0_rate, http_req_cnt, http_req_rate and bytes_out_cnt.
    #[test]
    fn an_update_of_haproxy_is_read() {
        let body = b"\x00\x00\x00\x02\x02k1\x00\xf0\xed\xf4\xfe\x7e\x00\x00\x02\x04\x02\x00\xa6";
        let column = |number, period_ms| Column { number, values: 1, period_ms };
        let columns = vec![
            column(2, None),
            column(3, Some(1_000)),
            column(9, None),
            column(10, Some(10_000)),
            column(15, None),
        ];
        let name = "counts".into();
        let table =
            Definition { id: 1, name, key_type: KeyType::String, key_bytes: 65, columns, expire: None };
        let update = Update::decode(UPDATE, body, &table).unwrap();
        assert_eq!((update.id, update.key), (Some(2), &b"k1"[..]));
        assert_eq!(update.column(&table, 9), [2]);
        assert_eq!(update.column(&table, 10), [2]);
        assert_eq!(update.column(&table, 15), [166]);
        assert_eq!(update.column(&table, 23), [0; 0]);
    }

    #[test]
    fn a_key_has_a_longest_length() {
        let (name, key_type) = ("limits".into(), KeyType::String);
        let table = Definition { id: 1, name, key_type, key_bytes: 65, columns: Vec::new(), expire: None };
        let body = |length| {
            let mut body = Vec::new();
            encode(1, &vec![b'k'; length], &[], &mut body);
            body
        };
        let (longest, longer) = (body(4_096), body(4_097));
        assert_eq!(Update::decode(UPDATE, &longest, &table).unwrap().key.len(), 4_096);
        assert_eq!(Update::decode(UPDATE, &longer, &table), Err(Error::TooLongName(4_097)));
    }

    proptest! {
        /// A table as it is pushed: keys are texts, and the columns are numbers.
        #[test]
        fn what_is_written_reads_back(id: u32, key in prop::collection::vec(any::<u8>(), 0..60), values: Vec<u64>) {
            let columns = vec![Column { number: Column::GPT, values: values.len() as u32, period_ms: None }];
            let (name, key_type) = ("limits".into(), KeyType::String);
            let table = Definition { id: 1, name, key_type, key_bytes: 65, columns, expire: None };
            let mut body = Vec::new();
            encode(id, &key, &values, &mut body);
            prop_assert_eq!(Update::decode(UPDATE, &body, &table), Ok(Update { id: Some(id), key: &key, values }));
            body.push(0);
            prop_assert!(Update::decode(UPDATE, &body, &table).is_err());
        }

        #[test]
        fn any_bytes_are_read_or_refused(table in any_definition(), body: Vec<u8>) {
            for kind in [UPDATE, INCREMENTAL, UPDATE_TIMED, INCREMENTAL_TIMED] {
                let _ = Update::decode(kind, &body, &table);
            }
        }
    }
}
