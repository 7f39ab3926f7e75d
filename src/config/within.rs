//! A whole number of a config file, within its range.

use std::fmt;

use serde::Deserializer;
use serde::de::{Error, Unexpected, Visitor};

pub(super) fn within<'de, D: Deserializer<'de>>(
    deserializer: D,
    min: i64,
    max: i64,
) -> Result<i64, D::Error> {
    deserializer.deserialize_i64(Within { min, max })
}

/// A whole number. The error for anything else names the range.
struct Within {
    min: i64,
    max: i64,
}

impl Visitor<'_> for Within {
    type Value = i64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a number from {} to {}", self.min, self.max)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<i64, E> {
        let is_within = (self.min..=self.max).contains(&number);
        if is_within { Ok(number) } else { Err(E::invalid_value(Unexpected::Signed(number), &self)) }
    }
}
