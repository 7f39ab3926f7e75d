//! An update: a key of a table with its values (peers-v2.0.txt, "Update Messages").
//!
//! ```text
//! [update id: 4, big-endian] │ [remaining ms: 4, big-endian] │ key │ the values, in the order of the columns
//! ```
//! An incremental update has no id: it is the one before, plus one. HAProxy from 3.3 on writes such an id with its
//! bytes reversed, so this side always sends ids.

use std::time::Duration;

use crate::cursor::Cursor;
use crate::peers::definition::{Definition, KEY_BYTES_MAX, KeyType, Kind};
use crate::peers::error::Error;
use crate::{string, varint};

/// The values of an update, those of arrays side by side.
pub type Values = Vec<Value>;

/// One update, its key borrowed from the read buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update<'a> {
    /// None: the one before, plus one.
    pub id: Option<u32>,
    /// The rest of the entry's life, if it is sent.
    pub remaining: Option<Duration>,
    /// The bytes of the key: those of a text; four of an integer, big-endian; or those of an address.
    pub key: &'a [u8],
    pub values: Values,
}

/// One value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    Number(u64),
    /// Events in the current period, which began `age_ms` ago, and in the one before.
    Frequency {
        age_ms: u64,
        current: u64,
        previous: u64,
    },
    /// The number of an entry in the sender's dictionary. Texts are left out: no table of ours has one.
    Entry(Option<u64>),
}

impl Value {
    /// The number; 0 for the others.
    pub const fn number(self) -> u64 {
        match self {
            Value::Number(number) => number,
            Value::Frequency { .. } | Value::Entry(_) => 0,
        }
    }
}

/// Which parts an update has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Form {
    pub(super) has_id: bool,
    pub(super) has_remaining: bool,
}

impl<'a> Update<'a> {
    pub(super) fn decode(body: &'a [u8], form: Form, table: &Definition) -> Result<Update<'a>, Error> {
        let mut cursor = Cursor::new(body);
        let id = if form.has_id { Some(u32::from_be_bytes(cursor.array()?)) } else { None };
        let remaining = match form.has_remaining {
            true => Some(Duration::from_millis(u32::from_be_bytes(cursor.array()?).into())),
            false => None,
        };
        let key = match table.key_type {
            KeyType::String => string::decode(&mut cursor)?,
            KeyType::Int => cursor.slice(4)?,
            KeyType::Ipv4 | KeyType::Ipv6 | KeyType::Binary => cursor.slice(table.key_bytes)?,
        };
        if key.len() as u64 > KEY_BYTES_MAX {
            return Err(Error::TooLongName(key.len() as u64));
        }
        let mut values = Vec::with_capacity(table.columns.iter().map(|column| column.values as usize).sum());
        for column in &table.columns {
            for _ in 0..column.values {
                values.push(match column.kind() {
                    Kind::Number => Value::Number(cursor.varint()?),
                    Kind::Frequency => Value::Frequency {
                        age_ms: cursor.varint()?,
                        current: cursor.varint()?,
                        previous: cursor.varint()?,
                    },
                    Kind::Entry => {
                        let entry = string::decode(&mut cursor)?;
                        let id = if entry.is_empty() { None } else { Some(Cursor::new(entry).varint()?) };
                        Value::Entry(id)
                    }
                });
            }
        }
        match cursor.rest().len() {
            0 => Ok(Update { id, remaining, key, values }),
            rest => Err(Error::TooLong(rest)),
        }
    }

    /// Appends the body. Entries of dictionaries are written as none.
    pub(super) fn encode(&self, table: &Definition, out: &mut Vec<u8>) {
        out.extend(self.id.into_iter().flat_map(u32::to_be_bytes));
        let remaining_ms = |rest: Duration| u32::try_from(rest.as_millis()).unwrap_or(u32::MAX);
        out.extend(self.remaining.map(remaining_ms).into_iter().flat_map(u32::to_be_bytes));
        match table.key_type {
            KeyType::String => string::encode(self.key, out),
            _ => out.extend_from_slice(self.key),
        }
        for value in &self.values {
            match *value {
                Value::Number(number) => varint::encode(number, out),
                Value::Frequency { age_ms, current, previous } => {
                    [age_ms, current, previous].into_iter().for_each(|number| varint::encode(number, out));
                }
                Value::Entry(None) => out.push(0),
                Value::Entry(Some(id)) => {
                    let mut entry = Vec::new();
                    varint::encode(id, &mut entry);
                    string::encode(&entry, out);
                }
            }
        }
    }

    pub(super) const fn form(&self) -> Form {
        Form { has_id: self.id.is_some(), has_remaining: self.remaining.is_some() }
    }

    /// The values of a column. Empty if the table has no such column.
    pub fn column(&self, table: &Definition, number: u32) -> &[Value] {
        let Some((before, values)) = table.place(number) else { return &[] };
        self.values.get(before..before + values).unwrap_or(&[])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::peers::definition::Column;
    use crate::peers::definition::tests::any_definition;

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
        let update = Update::decode(body, Form { has_id: true, has_remaining: false }, &table).unwrap();
        assert_eq!((update.id, update.key, update.remaining), (Some(2), &b"k1"[..], None));
        assert_eq!(update.column(&table, 9), [Value::Number(2)]);
        assert_eq!(update.column(&table, 10), [Value::Frequency { age_ms: 4, current: 2, previous: 0 }]);
        assert_eq!(update.column(&table, 15), [Value::Number(166)]);
        assert_eq!(update.column(&table, 23), []);
    }

    /// A key that fits the type of the table, and a value for each place.
    fn any_update() -> impl Strategy<Value = (Definition, Vec<u8>, Option<u32>, Option<u32>, Values)> {
        any_definition().prop_flat_map(|table| {
            let key_bytes = match table.key_type {
                KeyType::String => 0..=60,
                KeyType::Int => 4..=4,
                _ => table.key_bytes as usize..=table.key_bytes as usize,
            };
            let kinds: Vec<Kind> =
                (table.columns.iter()).flat_map(|column| (0..column.values).map(|_| column.kind())).collect();
            let values =
                prop::collection::vec(any::<(u64, u64, u64)>(), kinds.len()).prop_map(move |numbers| {
                    let value = |(kind, (age_ms, current, previous)): (&Kind, (u64, u64, u64))| match kind {
                        Kind::Number => Value::Number(current),
                        Kind::Frequency => Value::Frequency { age_ms, current, previous },
                        Kind::Entry => Value::Entry((current % 2 == 0).then_some(current)),
                    };
                    kinds.iter().zip(numbers).map(value).collect::<Values>()
                });
            let key = prop::collection::vec(any::<u8>(), key_bytes);
            (Just(table), key, any::<Option<u32>>(), any::<Option<u32>>(), values)
        })
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back((table, key, id, remaining_ms, values) in any_update()) {
            let remaining = remaining_ms.map(|ms| Duration::from_millis(ms.into()));
            let (update, mut body) = (Update { id, remaining, key: &key, values }, Vec::new());
            update.encode(&table, &mut body);
            prop_assert_eq!(Update::decode(&body, update.form(), &table), Ok(update.clone()));
            body.push(0);
            prop_assert!(Update::decode(&body, update.form(), &table).is_err());
        }

        #[test]
        fn any_bytes_are_read_or_refused(table in any_definition(), body: Vec<u8>, has_id: bool, has_remaining: bool) {
            let _ = Update::decode(&body, Form { has_id, has_remaining }, &table);
        }
    }
}
