//! Arguments of the Runtime API's commands, and their errors in HAProxy's words.

use std::str::FromStr;

use crate::observe::status::{Column, Condition, FILTER_MAX, TABLE, operator};
use slowlane_core::base::Key;

const EXPECTED_KEY: &str = "Require a key of sixteen hex digits\n";

const EXPECTED_VALUE: &str = "Require a valid integer value to store\n";

pub(super) const EXPECTED_SHOW: &str =
    "Optional argument only supports \"data.<store_data_type>\" <operator> <value> or key <key>\n";

const EXPECTED_SET: &str = "Required arguments: <table> key <key> [data.<store_data_type> <value>]*\n";

pub(super) const EXPECTED_CLEAR: &str =
    "Required arguments: <table> \"data.<store_data_type>\" <operator> <value> or <table> key <key>\n";

/// The word at an index, or an empty one.
pub(super) fn word(words: &[String], place: usize) -> &str {
    words.get(place).map_or("", String::as_str)
}

/// The key in `show table <table> key <key>`. None: the words name no key.
pub(super) fn key(words: &[String]) -> Result<Option<Key>, String> {
    match (word(words, 2), word(words, 3), word(words, 4)) {
        (TABLE, "key", "") => Err("Key value expected\n".into()),
        (TABLE, "key", key) => Key::from_hex(key).ok_or_else(|| EXPECTED_KEY.into()).map(Some),
        (TABLE, ..) => Ok(None),
        _ => Err("No such table\n".into()),
    }
}

const DATA: &str = "data.";

/// The conditions in `show table <table> [data.<column> <operator> <value>]*`.
pub(super) fn filter(words: &[String], expected: &str) -> Result<Vec<Condition>, String> {
    let words = match word(words, 3) {
        "" => &[],
        word if word.starts_with(DATA) => &words[3..],
        _ => return Err(expected.into()),
    };
    if words.len() > 3 * FILTER_MAX {
        return Err(format!("Detected extra data in filter: it takes {FILTER_MAX} conditions\n"));
    }
    let conditions = words.chunks(3).enumerate();
    let conditions = conditions.map(|(place, words)| {
        condition(words).map_err(|error| format!("Filter entry #{}: {error}\n", place + 1))
    });
    conditions.collect()
}

fn condition(words: &[String]) -> Result<Condition, String> {
    let name = word(words, 0).strip_prefix(DATA).ok_or("Require \"data.<store_data_type>\"")?;
    let column = Column::named(name)?;
    let orderings =
        operator(word(words, 1)).ok_or(r#"Require and operator among "eq", "ne", "le", "ge", "lt", "gt""#)?;
    let value = number(word(words, 2)).ok_or("Require a valid integer value to compare against")?;
    Ok(Condition { column, orderings, value })
}

/// Reads a number. Like HAProxy, it refuses a plus sign.
fn number<N: FromStr>(word: &str) -> Option<N> {
    word.parse().ok().filter(|_| !word.starts_with('+'))
}

/// The key and the values in `set table <table> key <key> [data.<column> <value>]*`.
pub(super) fn values(words: &[String]) -> Result<(Key, Vec<(Column, u32)>), String> {
    if word(words, 2).is_empty() {
        return Err(EXPECTED_SET.into());
    }
    let key = key(words)?.ok_or(EXPECTED_SET)?;
    let pairs = words[5..].chunks(2).map(|pair| {
        let name = pair[0].strip_prefix(DATA).ok_or("\"data.<type>\" followed by a value expected\n")?;
        let column = Column::named(name).map_err(|error| format!("{error}\n"))?;
        let value = pair.get(1).and_then(|value| number(value)).ok_or(EXPECTED_VALUE)?;
        Ok((column, value))
    });
    Ok((key, pairs.collect::<Result<_, String>>()?))
}
