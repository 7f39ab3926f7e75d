//! The number of an SLO. The thousands of the number are the SLO's type.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An SLO's number, 0 to 999,999.
///
/// ```
/// use slowlane_core::base::SloId;
/// let shop = SloId::new(2001).unwrap();
/// assert_eq!(shop.kind(), 2);
/// assert_eq!(SloId::new(1_000_000), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct SloId(u32);

impl SloId {
    /// The SLO of a request for which no map names an SLO.
    pub const DEFAULT: SloId = SloId(0);

    /// One more than the largest number.
    pub const END: u32 = 1_000_000;

    /// The id with this number. `None` for a number over 999,999.
    pub const fn new(number: u32) -> Option<SloId> {
        if number < SloId::END { Some(SloId(number)) } else { None }
    }

    /// The type, 0 to 999, which determines the fields that make up the key.
    pub const fn kind(self) -> u16 {
        (self.0 / 1000) as u16
    }

    pub const fn number(self) -> u32 {
        self.0
    }
}

impl From<SloId> for u32 {
    fn from(id: SloId) -> u32 {
        id.0
    }
}

impl TryFrom<u32> for SloId {
    type Error = &'static str;

    fn try_from(number: u32) -> Result<SloId, &'static str> {
        SloId::new(number).ok_or("expected 0 to 999999")
    }
}

impl fmt::Display for SloId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_written_as_the_number_that_it_was_read_from() {
        for number in [0, 2_001, 999_999] {
            assert_eq!(SloId::try_from(number).map(u32::from), Ok(number));
        }
        assert_eq!(SloId::try_from(1_000_000), Err("expected 0 to 999999"));
    }
}
