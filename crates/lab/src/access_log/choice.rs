//! The choice of a log's format.

use crate::access_log::{Dialect, Format, LogPlan, LogRecord, ParseError};

/// The number of lines that are read to recognise the format.
const LOOKED_AT: usize = 200;

/// The formats that a log may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Any known format.
    Any,
    /// Any known format of one proxy.
    Of(Dialect),
    This(Format),
}

impl Choice {
    /// The format of a log that begins like this; None where no known format fits.
    pub(super) fn format(&self, head: &[u8]) -> Option<Format> {
        match self {
            Choice::This(format) => Some(format.clone()),
            Choice::Any => recognised(head, |_| true),
            Choice::Of(dialect) => recognised(head, |format| format.dialect == *dialect),
        }
    }
}

/// The format that fits most of the first lines completely. In a tie, or if none fits, the one that fits most of them
/// up to its wanted items.
fn recognised(head: &[u8], is_allowed: impl Fn(&Format) -> bool) -> Option<Format> {
    let counted = |format: Format| {
        let mut plan = LogPlan::new(format, &[], &|_| false).expect("a known format has a time");
        let mut count = |is_whole| {
            let lines = head.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()).take(LOOKED_AT);
            let reads = |line| plan.read(line, is_whole, &mut LogRecord::default());
            lines.map(reads).filter(|read| matches!(read, Ok(()) | Err(ParseError::NoRequest))).count()
        };
        ([count(true), count(false)], plan.format)
    };
    let allowed = Format::known().into_iter().filter(is_allowed).map(counted);
    // The first of equals wins.
    let (counts, best) = allowed.rev().max_by_key(|(counts, _)| *counts)?;
    (counts != [0, 0]).then_some(best)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access_log::tests::{EXAMPLES, HTTPLOG};

    fn name(text: &str) -> Option<String> {
        recognised(text.as_bytes(), |_| true).map(|format| format.name.to_owned())
    }

    #[test]
    fn each_known_format_is_recognised() {
        for (want, line) in EXAMPLES {
            assert_eq!(name(line).as_deref(), Some(*want), "{line}");
        }
        let prefixed = format!("Feb  6 12:14:14 localhost haproxy[14389]: {HTTPLOG}\n");
        for text in [prefixed, format!("{HTTPLOG} and more of its own")] {
            assert_eq!(name(&text).as_deref(), Some("haproxy httplog"), "{text}");
        }
        for text in ["", "\n\n", "hello\nworld\n", "\0\x01\x02"] {
            assert_eq!(name(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_few_lines_of_another_format_do_not_matter() {
        assert_eq!(name(&format!("garbage\n{HTTPLOG}\n\n{HTTPLOG}\n")).as_deref(), Some("haproxy httplog"));
    }
}
