//! A part of a load, in percent.

use std::str::FromStr;

/// A part of a load: 0 to 100 percent, in steps of a hundredth.
///
/// ```
/// use slowlane_lab::simulate::Share;
/// let most: Share = "80%".parse().unwrap();
/// assert_eq!((most.of(5), most.of(400)), (4, 320));
/// assert!("0.8".parse::<Share>().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    hundredths: u32,
}

const EXPECTED: &str = "expected a part of the load from 0% to 100%, like 80% or 12.5%";

impl Share {
    pub(super) const ALL: u32 = 10_000;

    /// The share of a number, rounded down.
    pub fn of(self, count: u32) -> u32 {
        (u64::from(count) * u64::from(self.hundredths) / u64::from(Share::ALL)) as u32
    }

    /// Whether it covers a random number below [`Share::ALL`].
    pub(super) fn covers(self, drawn: u32) -> bool {
        drawn < self.hundredths
    }
}

impl FromStr for Share {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Share, &'static str> {
        let number = text.strip_suffix('%').ok_or(EXPECTED)?;
        let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
        let is_short = (1..=3).contains(&whole.len()) && (1..=2).contains(&part.len());
        if !is_short || !whole.bytes().chain(part.bytes()).all(|byte| byte.is_ascii_digit()) {
            return Err(EXPECTED);
        }
        let hundredths = format!("{whole}{part:0<2}").parse().expect("at most five digits");
        if hundredths <= Share::ALL { Ok(Share { hundredths }) } else { Err(EXPECTED) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_part_reads_back_as_it_was_written(hundredths in 0..=Share::ALL) {
            let share = Share { hundredths };
            prop_assert_eq!(format!("{}%", f64::from(hundredths) / 100.0).parse(), Ok(share));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[0-9.%]{0,8}") {
            if let Ok(share) = text.parse::<Share>() {
                prop_assert!(share.hundredths <= Share::ALL && share.of(7) <= 7);
            }
        }
    }

    #[test]
    fn other_texts_than_percents_are_refused() {
        for text in
            ["", "%", "80", "0.8", "100.01%", "101%", "-1%", "+1%", "1.%", ".5%", "1.234%", "80 %", "é%"]
        {
            assert_eq!(text.parse::<Share>(), Err(EXPECTED), "{text:?}");
        }
        assert_eq!("007.5%".parse(), Ok(Share { hundredths: 750 }));
    }
}
