//! The target of a block, and its text: `source=192.0.2.66 website=shop.example`, or `key=26C7827D889F6DA3`.

use std::fmt;

use percent_encoding::{AsciiSet, CONTROLS, percent_decode, percent_encode};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::base::{Key, shown};

/// The maximum number of fields in a target.
pub const TARGET_FIELDS_MAX: usize = 8;

/// The maximum length of a field's name, in bytes.
pub const NAME_BYTES_MAX: usize = 64;

/// The maximum length of a field's value, in bytes. Longer values in requests match no target.
pub const VALUE_BYTES_MAX: usize = 256;

/// The maximum length of a target's text, in bytes, if every byte of every value is escaped.
pub const TEXT_BYTES_MAX: usize = TARGET_FIELDS_MAX * (NAME_BYTES_MAX + 3 * VALUE_BYTES_MAX + 2);

/// Bytes to escape, besides all non-ASCII bytes: invisible characters, and the percent sign, which begins an escape.
const ESCAPED: &AsciiSet = &CONTROLS.add(b' ').add(b'%');

/// The name that stands for a key instead of a field.
const KEY: &str = "key";

/// The requests that a block refuses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Target {
    /// Requests with all of these values.
    Fields(Fields),
    /// Requests that are counted under this key.
    Key(Key),
}

/// One or more fields with their values, sorted by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fields(Vec<(String, Vec<u8>)>);

/// The error for fields that are not a valid target. Its message gives the remedy.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TargetError {
    #[error("name at least one field, like source=192.0.2.66")]
    NoField,
    #[error("more than {TARGET_FIELDS_MAX} fields: name fewer")]
    TooManyFields,
    #[error("{0:?}: expected a field name of 1 to {NAME_BYTES_MAX} visible ASCII characters, without =")]
    Name(String),
    #[error("{0} is given twice: only one value can match, so keep one")]
    Twice(String),
    #[error("{0} has no value: give one, like {0}=x")]
    NoValue(String),
    #[error("{0}: expected a value of at most {VALUE_BYTES_MAX} bytes")]
    LongValue(String),
    #[error("key: expected sixteen hex digits and no other field, like key=26C7827D889F6DA3")]
    Key,
    #[error("{0:?}: expected fields and their values, like source=192.0.2.66 website=shop.example")]
    Text(String),
}

impl Fields {
    /// Accepts fields in any order. In names, `-` and `_` count as equal.
    ///
    /// ```
    /// use slowlane_core::base::target::{Fields, Target};
    /// let fields = Fields::new([("website", "shop.example"), ("api-key", "a b")]).unwrap();
    /// assert_eq!(Target::Fields(fields).to_string(), "api_key=a%20b website=shop.example");
    /// assert!(Fields::new([("source", "192.0.2.1"), ("source", "192.0.2.2")]).is_err());
    /// ```
    ///
    /// # Errors
    /// The first fault, with its remedy.
    pub fn new<N: AsRef<[u8]>, V: AsRef<[u8]>>(
        fields: impl IntoIterator<Item = (N, V)>,
    ) -> Result<Fields, TargetError> {
        let mut kept: Vec<(String, Vec<u8>)> = Vec::new();
        for (name, value) in fields {
            let (name, value) = (name_of(name.as_ref())?, value.as_ref());
            match value.len() {
                _ if name == KEY => return Err(TargetError::Key),
                0 => return Err(TargetError::NoValue(name)),
                1..=VALUE_BYTES_MAX => {}
                _ => return Err(TargetError::LongValue(name)),
            }
            if kept.len() == TARGET_FIELDS_MAX {
                return Err(TargetError::TooManyFields);
            }
            match kept.binary_search_by(|(other, _)| other.as_str().cmp(&name)) {
                Ok(_) => return Err(TargetError::Twice(name)),
                Err(place) => kept.insert(place, (name, value.to_vec())),
            }
        }
        if kept.is_empty() { Err(TargetError::NoField) } else { Ok(Fields(kept)) }
    }

    /// The names and values, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_slice()))
    }
}

impl Target {
    /// Reads the text of `Display`. The fields may come in any order.
    ///
    /// ```
    /// use slowlane_core::base::Target;
    /// let target = Target::parse(b"website=shop.example source=192.0.2.66").unwrap();
    /// assert_eq!(target.to_string(), "source=192.0.2.66 website=shop.example");
    /// assert!(matches!(Target::parse(b"key=26C7827D889F6DA3"), Ok(Target::Key(_))));
    /// assert!(Target::parse(b"source").is_err());
    /// ```
    ///
    /// # Errors
    /// Text that is not a target.
    pub fn parse(text: &[u8]) -> Result<Target, TargetError> {
        let kind = || TargetError::Text(shown(&text[..text.len().min(NAME_BYTES_MAX)]));
        if text.len() > TEXT_BYTES_MAX {
            return Err(kind());
        }
        let words = text.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
        let pairs = words.map(|word| {
            let end = word.iter().position(|&byte| byte == b'=')?;
            Some((&word[..end], percent_decode(&word[end + 1..]).collect::<Vec<u8>>()))
        });
        let pairs: Vec<_> = pairs.collect::<Option<_>>().ok_or_else(kind)?;
        Target::of(pairs)
    }

    /// The target of fields, or of a single `key`.
    ///
    /// # Errors
    /// The first fault, with its remedy.
    pub fn of<N: AsRef<[u8]>, V: AsRef<[u8]>>(pairs: Vec<(N, V)>) -> Result<Target, TargetError> {
        match pairs.as_slice() {
            [(name, value)] if name.as_ref() == KEY.as_bytes() => {
                let key = std::str::from_utf8(value.as_ref()).ok().and_then(Key::from_hex);
                key.map(Target::Key).ok_or(TargetError::Key)
            }
            _ => Fields::new(pairs).map(Target::Fields),
        }
    }
}

impl TryFrom<String> for Target {
    type Error = TargetError;

    fn try_from(text: String) -> Result<Target, TargetError> {
        Target::parse(text.as_bytes())
    }
}

impl From<Target> for String {
    fn from(target: Target) -> String {
        target.to_string()
    }
}

fn name_of(name: &[u8]) -> Result<String, TargetError> {
    let is_name = (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.iter().all(|byte| byte.is_ascii_graphic() && *byte != b'=');
    match std::str::from_utf8(name).ok().filter(|_| is_name) {
        Some(name) => Ok(name.replace('-', "_")),
        None => Err(TargetError::Name(shown(&name[..name.len().min(NAME_BYTES_MAX)]))),
    }
}

/// Writes the text of a target. Percent signs, and bytes that are not visible ASCII, are escaped, like `%20`.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = match self {
            Target::Key(key) => return write!(f, "{KEY}={key}"),
            Target::Fields(fields) => fields,
        };
        for (number, (name, value)) in fields.iter().enumerate() {
            let blank = if number == 0 { "" } else { " " };
            write!(f, "{blank}{name}={}", percent_encode(value, ESCAPED))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_no_target_is_refused_with_a_remedy() {
        for (text, reported) in [
            ("", "name at least one field, like source=192.0.2.66"),
            ("source", "\"source\": expected fields and their values"),
            ("source=", "source has no value: give one, like source=x"),
            ("=x", "\"\": expected a field name"),
            ("a_b=1 a-b=1", "a_b is given twice"),
            ("key=26C7", "key: expected sixteen hex digits"),
            ("key=26C7827D889F6DA3 source=x", "key: expected sixteen hex digits and no other field"),
            ("a=1 b=1 c=1 d=1 e=1 f=1 g=1 h=1 i=1", "more than 8 fields: name fewer"),
        ] {
            let error = Target::parse(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(reported), "{text:?}: {error}");
        }
        let (longest, longer) = ("x".repeat(VALUE_BYTES_MAX), "x".repeat(VALUE_BYTES_MAX + 1));
        assert!(Fields::new([("path", longest)]).is_ok());
        assert_eq!(Fields::new([("path", longer)]), Err(TargetError::LongValue("path".into())));
        assert!(Fields::new([("n".repeat(NAME_BYTES_MAX + 1), "x")]).is_err());
    }

    /// A value that may hold any bytes, and a name that may not.
    fn fields() -> impl Strategy<Value = Vec<(String, Vec<u8>)>> {
        let value = prop::collection::vec(any::<u8>(), 1..=VALUE_BYTES_MAX);
        prop::collection::vec(("[!-<>-~]{1,64}", value), 1..=TARGET_FIELDS_MAX)
    }

    proptest! {
        #[test]
        fn a_target_reads_back_from_its_text(fields in fields()) {
            if let Ok(fields) = Fields::new(fields) {
                let target = Target::Fields(fields);
                let text = target.to_string();
                prop_assert!(text.len() <= TEXT_BYTES_MAX && text.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
                prop_assert_eq!(Target::parse(text.as_bytes()), Ok(target));
            }
        }

        #[test]
        fn the_order_of_fields_does_not_matter(fields in fields()) {
            let reversed = Fields::new(fields.iter().rev().cloned());
            if let Ok(sorted) = Fields::new(fields) {
                prop_assert_eq!(reversed, Ok(sorted));
            }
        }

        #[test]
        fn any_bytes_are_a_target_or_an_error(
            bytes in prop::collection::vec(any::<u8>(), 0..100), text in r"((key|source|a-b|[ -~]{0,3})=([0-9A-F]{16}|%[0-9a-g]{2}|[ -~]{0,9}) ?){0,9}",
        ) {
            for text in [&bytes[..], text.as_bytes()] {
                if let Ok(target) = Target::parse(text) {
                    prop_assert_eq!(Target::parse(target.to_string().as_bytes()), Ok(target));
                }
            }
        }

        #[test]
        fn a_key_reads_back(bits: u64) {
            let target = Target::Key(Key::from_bits(bits));
            prop_assert_eq!(Target::parse(target.to_string().as_bytes()), Ok(target));
        }
    }
}
