//! HAProxy's `log-format`.

use std::cell::Cell;

use nom::branch::alt;
use nom::bytes::complete::{tag, take_while};
use nom::character::complete::{alpha0, anychar, char};
use nom::combinator::{cut, eof, opt, peek, recognize, value};
use nom::sequence::{preceded, terminated};
use nom::{IResult, Parser};

use crate::access_log::enclosed::enclosed;
use crate::access_log::escape::Escape;
use crate::access_log::format_error::FormatError;
use crate::access_log::piece::{Item, Piece, Pieces};

/// Reads configuration.txt, section 8.2.6 (`Custom log format`): `%name`, `%{flags}name`,
/// `%(label){flags}[expression]`, `%%` and text. HAProxy merges spaces and drops those at the start.
pub(super) fn haproxy(mut text: &str) -> Result<Vec<Piece>, FormatError> {
    let mut pieces = Pieces::default();
    let mut is_quoted_by_default = false;
    while !text.is_empty() {
        let (rest, part) =
            part(text).map_err(|_| FormatError::Open(text.chars().take(QUOTED_CHARS_MAX).collect()))?;
        match part {
            Part::Space if pieces.is_empty() || pieces.ends_with_space() => {}
            Part::Space => pieces.letter(' '),
            Part::Letter(letter) => pieces.letter(letter),
            Part::Word(word) => {
                let is_quoted = word.flag("+Q", "-Q").unwrap_or(is_quoted_by_default);
                match word.item(is_quoted)? {
                    Some(item) => pieces.item(item),
                    None => is_quoted_by_default = is_quoted,
                }
            }
        }
        text = rest;
    }
    Ok(pieces.finish())
}

/// How much of an open bracket an error repeats.
const QUOTED_CHARS_MAX: usize = 21;

#[derive(Clone)]
enum Part<'t> {
    Space,
    Letter(char),
    Word(Word<'t>),
}

/// An item as it is written.
#[derive(Clone)]
struct Word<'t> {
    /// `owner`, or `age:sint` with a type.
    label: Option<&'t str>,
    /// `+Q,-E`
    flags: &'t str,
    /// `ci`, or `[src]`.
    noun: &'t str,
}

/// Fails only where a bracket is not closed: any letter is a part.
fn part(text: &str) -> IResult<&str, Part<'_>> {
    alt((
        value(Part::Space, char(' ')),
        preceded(char('\\'), anychar).map(Part::Letter),
        value(Part::Letter('%'), alt((tag("%%"), terminated(tag("%"), eof)))),
        preceded(char('%'), word).map(Part::Word),
        anychar.map(Part::Letter),
    ))
    .parse(text)
}

fn word(text: &str) -> IResult<&str, Word<'_>> {
    let noun = alt((expression, alpha0));
    (opt(enclosed('(', ')')), opt(enclosed('{', '}')), noun)
        .map(|(label, flags, noun)| Word { label, flags: flags.unwrap_or_default(), noun })
        .parse(text)
}

/// `[src,map_regm(/a,[x])]`: up to the bracket that closes the first. Brackets are counted, for a parser that calls
/// itself would run out of stack.
fn expression(text: &str) -> IResult<&str, &str> {
    let depth = Cell::new(0);
    let is_inside = |letter| {
        depth.set(depth.get() + i32::from(letter == '[') - i32::from(letter == ']'));
        depth.get() > 0
    };
    recognize((peek(char('[')), take_while(is_inside), cut(char(']')))).parse(text)
}

/// All items of HAProxy 1.8 to 3.2 that are names.
const NAMES: &[&str] = &[
    "o", "OG", "Bi", "Bp", "B", "CC", "CS", "H", "ID", "ST", "T", "Ta", "Tc", "Th", "Ti", "Tl", "Tq", "Tr",
    "TR", "Td", "Ts", "Tt", "Tu", "Tw", "U", "ac", "b", "bc", "bi", "bp", "bq", "ci", "cp", "f", "fc", "fi",
    "fp", "ft", "hr", "hrl", "hs", "hsl", "HM", "HP", "HPO", "HQ", "HU", "HV", "lc", "ms", "pid", "r", "rc",
    "rt", "s", "sc", "si", "sp", "sq", "sslc", "sslv", "t", "tr", "trg", "trl", "ts", "tsc",
];

/// The items that HAProxy encodes with `#`.
const ENCODED: &[&str] = &["r", "HP", "HPO", "HQ", "HU", "hr", "hs", "hrl", "hsl"];

impl Word<'_> {
    /// Which of two opposite flags comes last: `on` is true. None: neither is given.
    fn flag(&self, on: &str, off: &str) -> Option<bool> {
        let last = self.flags.split(',').rfind(|&flag| flag == on || flag == off)?;
        Some(last == on)
    }

    /// None for `%o`, which stands for nothing.
    fn item(&self, is_quoted: bool) -> Result<Option<Item>, FormatError> {
        if let Some(encoded) = self.flags.split(',').find(|flag| ["+json", "+cbor", "+bin"].contains(flag)) {
            return Err(FormatError::Encoded(encoded.to_owned()));
        }
        let noun = format!("%{}", self.noun);
        if !self.noun.starts_with('[') && !NAMES.contains(&self.noun) {
            return Err(FormatError::Unknown(noun));
        }
        let escape = match self.flag("+E", "-E") {
            _ if ENCODED.contains(&self.noun) => Escape::Hash,
            Some(true) => Escape::Json,
            _ if self.noun.ends_with(",url_enc]") => Escape::Percent,
            _ => Escape::None,
        };
        // A type may follow the name: `%(age:sint)[...]`.
        let label = self.label.and_then(|label| label.split(':').next()).filter(|label| !label.is_empty());
        Ok((self.noun != "o").then_some(Item { noun, label: label.map(str::to_owned), is_quoted, escape }))
    }
}
