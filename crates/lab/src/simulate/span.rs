//! A part of a run, from one moment to a later one.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use slowlane_core::base::units::{duration, written};

/// A part of a run, written `FROM..TO`. Both are times since its start; the end is not part of it.
///
/// ```
/// use std::time::Duration;
/// use slowlane_lab::simulate::Span;
/// let minute: Span = "20s..80s".parse().unwrap();
/// assert_eq!((minute.from, minute.to), (Duration::from_secs(20), Duration::from_secs(80)));
/// assert!("80s..20s".parse::<Span>().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub from: Duration,
    /// Always later than its start.
    pub to: Duration,
}

const EXPECTED: &str = "expected two times since the start, the later one second, like 20s..80s";

impl Span {
    pub fn contains(self, moment: Duration) -> bool {
        (self.from..self.to).contains(&moment)
    }
}

impl FromStr for Span {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Span, &'static str> {
        let (from, to) = text.split_once("..").ok_or(EXPECTED)?;
        let (from, to) = (duration(from).map_err(|_| EXPECTED)?, duration(to).map_err(|_| EXPECTED)?);
        if from < to { Ok(Span { from, to }) } else { Err(EXPECTED) }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", written(self.from), written(self.to))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_part_reads_back_as_it_was_written(from_ms in 0u64..1_000_000, length_ms in 1u64..1_000_000) {
            let from = Duration::from_millis(from_ms);
            let span = Span { from, to: from + Duration::from_millis(length_ms) };
            prop_assert_eq!(span.to_string().parse(), Ok(span));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[0-9a-z.]{0,12}") {
            if let Ok(span) = text.parse::<Span>() {
                prop_assert!(span.from < span.to && span.contains(span.from) && !span.contains(span.to));
            }
        }
    }

    #[test]
    fn other_texts_than_two_times_in_order_are_refused() {
        for text in ["", "20s", "20s..", "..80s", "20..80", "20s-80s", "5s..5s", "1s..2s..3s", "20s .. 80s"] {
            assert_eq!(text.parse::<Span>(), Err(EXPECTED), "{text:?}");
        }
    }
}
