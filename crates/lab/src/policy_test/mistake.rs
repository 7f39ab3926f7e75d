//! Mistakes in a file of cases: the place, the text there, and the expected text.

use std::fmt;

use thiserror::Error;

use slowlane_core::base::request::FIELDS_MAX;
use slowlane_core::base::shown::shown;
use slowlane_core::base::units::{DURATION_MAX, UnitError};

/// The most mistakes of a file that are kept; more are only counted.
pub const MISTAKES_MAX: usize = 100;

/// The longest file in bytes.
pub const FILE_BYTES_MAX: usize = 4 << 20;

/// The longest line in bytes, without its end.
pub const LINE_BYTES_MAX: usize = 16_384;

/// The most cases of a file. Each has a table of its own.
pub const CASES_MAX: usize = 10_000;

/// The most requests of a file. They take about a second.
pub const REQUESTS_MAX: u32 = 1_000_000;

/// Characters of a bad word that are repeated in an error.
const QUOTED_CHARS_MAX: usize = 80;

/// One mistake and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Counted from 1; none if the whole file is concerned.
    pub place: Option<Place>,
    pub fault: Fault,
}

/// A place in a file. Columns are counted in characters. Both are counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub line: usize,
    pub column: usize,
}

/// The mistakes of a file. As an error they are at least one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mistakes {
    /// The first [`MISTAKES_MAX`].
    pub listed: Vec<Mistake>,
    pub count: usize,
}

/// The kinds of mistakes.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Fault {
    /// The reason of the operating system.
    #[error("cannot be read: {0}")]
    Unreadable(String),
    #[error("more than {FILE_BYTES_MAX} bytes: split the file")]
    FileTooLong,
    #[error("no case: write one, like `source=192.0.2.1 -> 3001`")]
    NoCases,
    #[error("more than {CASES_MAX} cases: split the file")]
    TooManyCases,
    #[error("more than {REQUESTS_MAX} requests in one file: ask less, or split the file")]
    TooManyRequests,
    #[error("a line of more than {LINE_BYTES_MAX} bytes")]
    LineTooLong,
    #[error("not UTF-8: save the file as UTF-8")]
    NotUtf8,
    #[error("a control character, {}: remove it", .0.escape_unicode())]
    Control(char),
    #[error("a quote without its end")]
    OpenQuote,
    #[error("{word}expected {expected}")]
    Expected { word: Quoted, expected: &'static str },
    #[error("{word}{reason}")]
    Duration { word: Quoted, reason: UnitError },
    #[error("{0}is given twice: keep one")]
    FieldTwice(Quoted),
    #[error("more than {FIELDS_MAX} fields, the most that a request can carry")]
    TooManyFields,
    #[error("{word}this is request {number} of the case")]
    Ordinal { word: Quoted, number: u32 },
    #[error("{listed} for {asked}: expected one verdict for each request")]
    Sum { listed: u64, asked: u32 },
    #[error("no request is left for this verdict: {asked} are listed before, or give it a count")]
    NoRest { asked: u32 },
    #[error("{0}overlaps with a verdict before: a request could count for either")]
    Overlap(Quoted),
    #[error("the case takes more than {} days", DURATION_MAX.as_secs() / 86_400)]
    CaseTooLong,
}

/// A word of the file, cut short and safe to show, before a message. Empty at the end of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quoted(String);

impl Quoted {
    pub(super) fn of(word: &str) -> Quoted {
        let dots = if word.chars().nth(QUOTED_CHARS_MAX).is_some() { "…" } else { "" };
        let begin: String = word.chars().take(QUOTED_CHARS_MAX).collect();
        Quoted(format!("\"{}{dots}\": ", shown(begin)))
    }

    pub(super) fn end() -> Quoted {
        Quoted(String::new())
    }
}

impl fmt::Display for Quoted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Mistakes {
    /// One mistake, of the whole file.
    pub fn of_file(fault: Fault) -> Mistakes {
        let mut mistakes = Mistakes::default();
        mistakes.add(None, fault);
        mistakes
    }

    pub(super) fn add(&mut self, place: Option<Place>, fault: Fault) {
        self.count += 1;
        if self.listed.len() < MISTAKES_MAX {
            self.listed.push(Mistake { place, fault });
        }
    }
}

impl fmt::Display for Mistake {
    /// `line:column: message`, without the name of the file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(Place { line, column }) = self.place {
            write!(f, "{line}:{column}: ")?;
        }
        self.fault.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_word_is_cut_and_cannot_control_a_terminal() {
        let long = "é".repeat(QUOTED_CHARS_MAX + 1);
        assert_eq!(Quoted::of(&long).to_string(), format!("\"{}…\": ", "é".repeat(QUOTED_CHARS_MAX)));
        assert_eq!(Quoted::of("\u{1b}[31m").to_string(), "\"\\u{1b}[31m\": ");
    }

    #[test]
    fn mistakes_beyond_the_most_are_counted() {
        let mut mistakes = Mistakes::default();
        for line in 1..=MISTAKES_MAX + 7 {
            mistakes.add(Some(Place { line, column: 3 }), Fault::OpenQuote);
        }
        assert_eq!((mistakes.listed.len(), mistakes.count), (MISTAKES_MAX, MISTAKES_MAX + 7));
        assert_eq!(mistakes.listed[1].to_string(), "2:3: a quote without its end");
    }
}
