//! The number of an SLO, whose thousands digit is its type.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An SLO's number, 0 to 9999.
///
/// ```
/// use slowlane_core::base::SloId;
/// let shop = SloId::new(2001).unwrap();
/// assert_eq!(shop.kind(), 2);
/// assert_eq!(SloId::new(10_000), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u16", into = "u16")]
pub struct SloId(u16);

impl SloId {
    /// The SLO of a request that no map names.
    pub const DEFAULT: SloId = SloId(0);

    /// One more than the largest number.
    pub const END: usize = 10_000;

    /// `None` for a number over 9999.
    pub const fn new(number: u16) -> Option<SloId> {
        if (number as usize) < SloId::END { Some(SloId(number)) } else { None }
    }

    /// The type, 0 to 9: it names the fields that make up the key.
    pub const fn kind(self) -> u8 {
        (self.0 / 1000) as u8
    }

    pub const fn number(self) -> u16 {
        self.0
    }

    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl From<SloId> for u16 {
    fn from(id: SloId) -> u16 {
        id.0
    }
}

impl TryFrom<u16> for SloId {
    type Error = &'static str;

    fn try_from(number: u16) -> Result<SloId, &'static str> {
        SloId::new(number).ok_or("expected 0 to 9999")
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
        for number in [0, 2_001, 9_999] {
            assert_eq!(SloId::try_from(number).map(u16::from), Ok(number));
        }
        assert_eq!(SloId::try_from(10_000), Err("expected 0 to 9999"));
    }
}
