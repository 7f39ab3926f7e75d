//! A definition: the name of a stick table, its key and its columns (peers-v2.0.txt, "Table Definition").
//!
//! ```text
//! table id │ name: string │ key type │ key length │ columns: a bit for each │ expire, ms
//! for each frequency: column, period, ms │ for each array: column, count of values and, for rates, period, ms
//! ```
//! All numbers are varints. In version 2.0, a definition ends after the columns.

use std::time::Duration;

use crate::cursor::Cursor;
use crate::peers::Error;
use crate::peers::frame::ended;
use crate::{encode_string, varint};

/// The maximum length of a table's name.
const NAME_BYTES_MAX: usize = 256;

/// The maximum length of a key. HAProxy's own limit is the size of its buffers.
pub(super) const KEY_BYTES_MAX: u64 = 4_096;

/// The maximum number of values in a column, as in HAProxy.
const VALUES_MAX: u64 = 100;

/// A stick table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// The number that the sender has assigned to the table.
    pub id: u64,
    pub name: String,
    pub key_type: KeyType,
    /// The maximum length of a key. For strings, HAProxy announces one byte more.
    pub key_bytes: u64,
    /// Columns, in the order of their numbers.
    pub columns: Vec<Column>,
    /// None in version 2.0.
    pub expire: Option<Duration>,
}

/// The type of a table's keys. The value of each variant is its number in the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyType {
    Int = 2,
    Ipv4 = 4,
    Ipv6 = 5,
    String = 6,
    Binary = 7,
}

/// A column of a table: one type of data that is stored for each key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// The number that HAProxy gives to this type of data.
    pub number: u32,
    /// The number of values: 1, or the length of an array.
    pub values: u32,
    /// The period of a frequency, in ms.
    pub period_ms: Option<u64>,
}

impl Column {
    /// `gpt`: an array of general-purpose tags, which are numbers.
    pub const GPT: u32 = 22;
    /// `gpc`: an array of general-purpose counters.
    pub const GPC: u32 = 23;
    /// `gpc_rate`: the rates of the counters in `gpc`.
    pub const GPC_RATE: u32 = 24;
    const SERVER_KEY: u32 = 19;
    /// The last known column: `glitch_rate` of HAProxy 3.0.
    const LAST: u32 = 26;

    const fn is_frequency(number: u32) -> bool {
        matches!(number, 3 | 5 | 8 | 10 | 12 | 14 | 16 | 18 | 21 | 24 | 26)
    }

    const fn is_array(number: u32) -> bool {
        matches!(number, Column::GPT | Column::GPC | Column::GPC_RATE)
    }

    /// Reads one value: a number, or, for a frequency, the number of events in its current period. A
    /// dictionary entry counts as 0, because none of slowlane's tables has one.
    pub(super) fn decode_value(&self, cursor: &mut Cursor<'_>) -> Result<u64, Error> {
        if self.number == Column::SERVER_KEY {
            cursor.string()?;
            return Ok(0);
        }
        if Column::is_frequency(self.number) {
            let [_age_ms, current, _previous] = [cursor.varint()?, cursor.varint()?, cursor.varint()?];
            return Ok(current);
        }
        Ok(cursor.varint()?)
    }
}

impl KeyType {
    const ALL: [KeyType; 5] = [KeyType::Int, KeyType::Ipv4, KeyType::Ipv6, KeyType::String, KeyType::Binary];
}

impl Definition {
    /// Reads the body of a definition.
    pub(super) fn decode(body: &[u8]) -> Result<Definition, Error> {
        let mut cursor = Cursor::new(body);
        let id = cursor.varint()?;
        let name = cursor.string()?;
        if name.len() > NAME_BYTES_MAX {
            return Err(Error::TooLongName(name.len() as u64));
        }
        let name = String::from_utf8_lossy(name).into_owned();
        let (key_type, key_bytes, bits) = (cursor.varint()?, cursor.varint()?, cursor.varint()?);
        let known = KeyType::ALL.into_iter().find(|known| *known as u64 == key_type);
        let key_type = known.ok_or(Error::UnknownKeyType(key_type))?;
        if key_bytes > KEY_BYTES_MAX {
            return Err(Error::TooLongName(key_bytes));
        }
        let mut columns = Vec::new();
        let is_short = cursor.is_empty();
        let expire = if is_short { None } else { Some(Duration::from_millis(cursor.varint()?)) };
        for number in (0..u64::BITS).filter(|number| bits >> number & 1 == 1) {
            if number > Column::LAST {
                return Err(Error::UnknownColumn(number));
            }
            let (is_array, is_frequency) = (Column::is_array(number), Column::is_frequency(number));
            let (mut values, mut period_ms) = (1, None);
            if !is_short && (is_array || is_frequency) {
                if cursor.varint()? != u64::from(number) {
                    return Err(Error::ColumnOrder);
                }
                if is_array {
                    values = cursor.varint()?;
                }
                if is_frequency {
                    period_ms = Some(cursor.varint()?);
                }
            } else if is_array {
                return Err(Error::UnknownColumn(number));
            }
            if values > VALUES_MAX {
                return Err(Error::TooManyValues(values));
            }
            columns.push(Column { number, values: values as u32, period_ms });
        }
        ended(cursor)?;
        Ok(Definition { id, name, key_type, key_bytes, columns, expire })
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        varint::encode(self.id, out);
        encode_string(self.name.as_bytes(), out);
        let bits = self.columns.iter().fold(0, |bits, column| bits | 1_u64 << column.number);
        for number in [self.key_type as u64, self.key_bytes, bits] {
            varint::encode(number, out);
        }
        let Some(expire) = self.expire else { return };
        varint::encode(expire.as_millis() as u64, out);
        for column in &self.columns {
            let (is_array, is_frequency) =
                (Column::is_array(column.number), Column::is_frequency(column.number));
            if is_array || is_frequency {
                varint::encode(column.number.into(), out);
            }
            if is_array {
                varint::encode(column.values.into(), out);
            }
            if is_frequency {
                varint::encode(column.period_ms.unwrap_or(0), out);
            }
        }
    }

    /// The number of values before a column, and the number of values in it. None if the table has no such column.
    pub(super) fn place(&self, number: u32) -> Option<(usize, usize)> {
        let mut before = 0;
        for column in &self.columns {
            let values = column.values as usize;
            if column.number == number {
                return Some((before, values));
            }
            before += values;
        }
        None
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::error::ReadError;

    pub(crate) fn any_definition() -> impl Strategy<Value = Definition> {
        let key_type = prop::sample::select(KeyType::ALL.to_vec());
        let columns = prop::collection::btree_map(0..=Column::LAST, (0..=5_u32, 0..100_000_u64), 0..6);
        (0..300_u64, "[a-z/_.]{0,40}", key_type, 1..=KEY_BYTES_MAX, columns, 0..100_000_u64).prop_map(
            |(id, name, key_type, key_bytes, columns, expire_ms)| {
                let column = |(number, (values, period_ms))| Column {
                    number,
                    values: if Column::is_array(number) { values } else { 1 },
                    period_ms: Column::is_frequency(number).then_some(period_ms),
                };
                let columns = columns.into_iter().map(column).collect();
                let expire = Some(Duration::from_millis(expire_ms));
                Definition { id, name, key_type, key_bytes, columns, expire }
            },
        )
    }

    /// A table of limits, as HAProxy 3.2 defines it: `string len 64`, `gpt(4)`, 10 s.
    const LIMITS: &[u8] = b"\x08\x0fslowlane_limits\x06\x41\xf0\xf1\xfe\x0e\xf0\xe2\x03\x16\x04";

    #[test]
    fn a_table_of_haproxy_is_read() {
        let table = Definition::decode(LIMITS).unwrap();
        let columns = vec![Column { number: Column::GPT, values: 4, period_ms: None }];
        assert_eq!((table.id, table.name.as_str(), table.key_type), (8, "slowlane_limits", KeyType::String));
        assert_eq!((table.key_bytes, table.expire), (65, Some(Duration::from_secs(10))));
        assert_eq!(table.columns, columns);
        let mut bytes = Vec::new();
        table.encode(&mut bytes);
        assert_eq!(bytes, LIMITS);
    }

    #[test]
    fn a_table_of_version_2_0_has_no_periods() {
        let table = Definition::decode(b"\x01\x01t\x02\x04\x09").unwrap();
        assert_eq!((table.columns.len(), table.expire), (2, None));
        assert!(Column::is_frequency(table.columns[1].number));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let mut unknown = b"\x01\x01t\x06\x41".to_vec();
        varint::encode(1 << 27, &mut unknown);
        for (bytes, error) in [
            (&unknown[..], Error::UnknownColumn(27)),
            (b"\x01\x01t\x03\x41\x01", Error::UnknownKeyType(3)),
            (b"\x01\x01t\x06\x41\x01\x05\x00", Error::TooLong(1)),
            (b"\x01\x01t\x06\x41\x08\x05\x04\x01", Error::ColumnOrder),
            (b"\x01\x05t", Error::Read(ReadError::Truncated)),
        ] {
            assert_eq!(Definition::decode(bytes), Err(error));
        }
        let mut many = b"\x01\x01t\x06\x41".to_vec();
        varint::encode(1 << Column::GPC, &mut many);
        many.extend_from_slice(b"\x05\x17\x65");
        assert_eq!(Definition::decode(&many), Err(Error::TooManyValues(101)));
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(definition in any_definition()) {
            let mut bytes = Vec::new();
            definition.encode(&mut bytes);
            prop_assert_eq!(Definition::decode(&bytes), Ok(definition));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let _ = Definition::decode(&bytes);
        }
    }
}
