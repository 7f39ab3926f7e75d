//! Amounts of work in some unit, and the measures that a proxy reports when a request ends.

use std::fmt;

use thiserror::Error;

/// An amount in millionths of its unit. For example, an amount in seconds is stored in microseconds.
///
/// ```
/// use slowlane_core::base::Amount;
/// assert_eq!(Amount::read(b"0.25").unwrap().micros(), 250_000);
/// assert_eq!(Amount::from_micros(250_000).to_string(), "0.25");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Amount(u64);

/// The text is not an amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AmountError {
    #[error("expected a number, like 12 or 0.25")]
    NoNumber,
    #[error("expected at most 2^40")]
    TooLarge,
}

/// The maximum length of a number, in bytes. It is longer than any amount needs.
const TEXT_BYTES_MAX: usize = 40;

impl Amount {
    pub const ZERO: Amount = Amount(0);

    /// The largest amount: 2^40 units.
    pub const MAX: Amount = Amount((1 << 40) * Amount::UNIT);

    /// The number of millionths in one unit.
    pub const UNIT: u64 = 1_000_000;

    /// An amount of this many millionths, but no more than [`MAX`](Amount::MAX).
    pub const fn from_micros(micros: u64) -> Amount {
        if micros > Amount::MAX.0 { Amount::MAX } else { Amount(micros) }
    }

    pub const fn micros(self) -> u64 {
        self.0
    }

    /// Adds up a list such as `0.100, 0.020 : -`, which nginx writes after contacting several upstream servers.
    ///
    /// # Errors
    /// The errors of [`read`](Amount::read), for any part other than `-`.
    pub fn sum(list: &[u8]) -> Result<Amount, AmountError> {
        let parts = list.split(|byte| matches!(byte, b',' | b':')).map(<[u8]>::trim_ascii);
        let mut amounts = parts.filter(|part| *part != b"-").map(Amount::read);
        let sum = amounts.try_fold(0_u64, |sum, amount| Ok(sum.saturating_add(amount?.0)));
        sum.map(Amount::from_micros)
    }

    /// Reads a decimal number: digits, optionally followed by a point and more digits. Digits after the sixth
    /// decimal place are dropped.
    ///
    /// # Errors
    /// Text of another form (with a sign, an exponent or spaces), or a number above 2^40 or longer than 40 bytes.
    pub fn read(text: &[u8]) -> Result<Amount, AmountError> {
        let mut parts = text.splitn(2, |&byte| byte == b'.');
        let (whole, decimals) = (parts.next().unwrap_or_default(), parts.next());
        let is_number = |digits: &[u8]| !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
        if !is_number(whole) || decimals.is_some_and(|decimals| !is_number(decimals)) {
            return Err(AmountError::NoNumber);
        }
        if text.len() > TEXT_BYTES_MAX {
            return Err(AmountError::TooLarge);
        }
        let digit = |sum: u64, byte: u8| sum.saturating_mul(10).saturating_add(u64::from(byte - b'0'));
        let whole = whole.iter().copied().fold(0, digit).saturating_mul(Amount::UNIT);
        let decimals = decimals.unwrap_or_default().iter().copied().chain(std::iter::repeat(b'0'));
        let amount = Amount(whole.saturating_add(decimals.take(6).fold(0, digit)));
        if amount > Amount::MAX { Err(AmountError::TooLarge) } else { Ok(amount) }
    }
}

/// A negative number, or one above 2^40, is an error.
impl TryFrom<i64> for Amount {
    type Error = AmountError;

    fn try_from(units: i64) -> Result<Amount, AmountError> {
        let units = u64::try_from(units).map_err(|_| AmountError::NoNumber)?;
        let amount = Amount(units.saturating_mul(Amount::UNIT));
        if amount > Amount::MAX { Err(AmountError::TooLarge) } else { Ok(amount) }
    }
}

/// The number of units, in decimal.
impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, micros) = (self.0 / Amount::UNIT, self.0 % Amount::UNIT);
        write!(f, "{whole}")?;
        if micros == 0 {
            return Ok(());
        }
        let decimals = format!("{micros:06}");
        write!(f, ".{}", decimals.trim_end_matches('0'))
    }
}

/// The measures of a request that has ended. A proxy reports the measures that it knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ending {
    /// The cost, in the unit of the SLO.
    pub cost: Option<Amount>,
    /// The time that the application took.
    pub seconds: Option<Amount>,
    /// The bytes sent to the client.
    pub bytes: Option<Amount>,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_a_plain_decimal_is_an_amount() {
        for text in [
            "", ".", "1.", ".5", "-1", "+1", "1e3", "0x10", "inf", "nan", "NaN", " 1", "1 ", "1,5", "1.2.3",
            "1_000", "\u{661}", "1\0",
        ] {
            assert_eq!(Amount::read(text.as_bytes()), Err(AmountError::NoNumber), "{text:?}");
        }
        assert_eq!(Amount::read(b"0012.3456789"), Ok(Amount(12_345_678)));
        assert_eq!(Amount::read(b"0"), Ok(Amount::ZERO));
    }

    #[test]
    fn a_larger_amount_or_a_longer_number_is_refused() {
        assert_eq!(Amount::read(b"1099511627776"), Ok(Amount::MAX));
        for text in ["1099511627776.000001", "1099511627777", "99999999999999999999999"] {
            assert_eq!(Amount::read(text.as_bytes()), Err(AmountError::TooLarge), "{text}");
        }
        assert_eq!(Amount::read(&[b'9'; 1_000_000]), Err(AmountError::TooLarge));
        assert_eq!(Amount::read(&[b'0'; 1_000_000]), Err(AmountError::TooLarge));
        assert_eq!(Amount::from_micros(u64::MAX), Amount::MAX);
    }

    proptest! {
        #[test]
        fn an_amount_reads_back_as_it_was_written(micros in 0..=Amount::MAX.0) {
            let amount = Amount(micros);
            prop_assert_eq!(Amount::read(amount.to_string().as_bytes()), Ok(amount));
        }

        #[test]
        fn any_bytes_are_an_amount_or_an_error(text in prop::collection::vec(any::<u8>(), 0..50)) {
            if let Ok(amount) = Amount::read(&text) {
                prop_assert!(amount <= Amount::MAX && text.len() <= TEXT_BYTES_MAX);
            }
        }
    }
}
