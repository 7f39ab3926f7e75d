//! HAProxy's `log-format`.

use crate::tools::access_log::escape::Escape;
use crate::tools::access_log::format_error::FormatError;
use crate::tools::access_log::piece::{Item, Piece};

/// Every item of HAProxy 1.8 to 3.2 that is a name.
const HAPROXY_NAMES: &[&str] = &[
    "o", "OG", "Bi", "Bp", "B", "CC", "CS", "H", "ID", "ST", "T", "Ta", "Tc", "Th", "Ti", "Tl", "Tq", "Tr",
    "TR", "Td", "Ts", "Tt", "Tu", "Tw", "U", "ac", "b", "bc", "bi", "bp", "bq", "ci", "cp", "f", "fc", "fi",
    "fp", "ft", "hr", "hrl", "hs", "hsl", "HM", "HP", "HPO", "HQ", "HU", "HV", "lc", "ms", "pid", "r", "rc",
    "rt", "s", "sc", "si", "sp", "sq", "sslc", "sslv", "t", "tr", "trg", "trl", "ts", "tsc",
];

/// Those that are encoded with `#`.
const HAPROXY_ENCODED: &[&str] = &["r", "HP", "HPO", "HQ", "HU", "hr", "hs", "hrl", "hsl"];

/// Configuration.txt, section 8.2.6 (`Custom log format`): `%name`, `%{flags}name`, `%(label){flags}[expression]`, `%%`. Spaces are
/// merged, and there is none at the beginning.
pub(super) fn haproxy(text: &str) -> Result<Vec<Piece>, FormatError> {
    let (mut pieces, mut literal): (Vec<Piece>, Vec<u8>) = (Vec::new(), Vec::new());
    let mut is_quoted_by_default = false;
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        if let Some(escaped) = after.chars().next().filter(|_| c == '\\') {
            push(&mut literal, escaped);
            rest = &after[escaped.len_utf8()..];
        } else if c == ' ' {
            let is_first = pieces.is_empty() && literal.is_empty();
            if !is_first && literal.last() != Some(&b' ') {
                literal.push(b' ');
            }
            rest = after;
        } else if c != '%' || after.is_empty() {
            push(&mut literal, c);
            rest = after;
        } else if let Some(after) = after.strip_prefix('%') {
            literal.push(b'%');
            rest = after;
        } else {
            let word = Word::read(after)?;
            rest = word.rest;
            let is_quoted = word.quotes.unwrap_or(is_quoted_by_default);
            match word.item(is_quoted)? {
                Some(item) => {
                    if !literal.is_empty() {
                        pieces.push(Piece::Literal(std::mem::take(&mut literal)));
                    }
                    pieces.push(Piece::Item(item));
                }
                None => is_quoted_by_default = is_quoted,
            }
        }
    }
    if !literal.is_empty() {
        pieces.push(Piece::Literal(literal));
    }
    Ok(pieces)
}

pub(super) fn push(literal: &mut Vec<u8>, c: char) {
    literal.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
}

/// An item of HAProxy's, taken apart.
struct Word<'t> {
    label: Option<&'t str>,
    /// What the flags say of quotes.
    quotes: Option<bool>,
    escapes: bool,
    /// `ci`, or `[src]`.
    noun: &'t str,
    rest: &'t str,
}

impl<'t> Word<'t> {
    fn read(text: &'t str) -> Result<Word<'t>, FormatError> {
        let (label, rest) = match text.strip_prefix('(') {
            // A type may follow the name: `%(age:sint)[...]`.
            Some(inner) => {
                let (inside, rest) = inner.split_once(')').ok_or_else(|| open(text))?;
                (inside.split(':').next(), rest)
            }
            None => (None, text),
        };
        let (flags, rest) = match rest.strip_prefix('{') {
            Some(inner) => inner.split_once('}').ok_or_else(|| open(text))?,
            None => ("", rest),
        };
        if let Some(encoded) = flags.split(',').find(|flag| ["+json", "+cbor", "+bin"].contains(flag)) {
            return Err(FormatError::Encoded(encoded.to_owned()));
        }
        let last = |on: &str, off: &str| {
            let given = flags.split(',').rev().find(|&flag| flag == on || flag == off)?;
            Some(given == on)
        };
        let end = match rest.starts_with('[') {
            true => closed(rest).ok_or_else(|| open(text))?,
            false => rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len()),
        };
        let (noun, rest) = rest.split_at(end);
        let escapes = last("+E", "-E") == Some(true);
        Ok(Word {
            label: label.filter(|label| !label.is_empty()),
            quotes: last("+Q", "-Q"),
            escapes,
            noun,
            rest,
        })
    }

    /// None: it is `%o`, which stands for nothing.
    fn item(&self, is_quoted: bool) -> Result<Option<Item>, FormatError> {
        let noun = format!("%{}", self.noun);
        if !self.noun.starts_with('[') && !HAPROXY_NAMES.contains(&self.noun) {
            return Err(FormatError::Unknown(noun));
        }
        let escape = match self.escapes {
            _ if HAPROXY_ENCODED.contains(&self.noun) => Escape::Hash,
            true => Escape::Json,
            false if self.noun.ends_with(",url_enc]") => Escape::Percent,
            false => Escape::None,
        };
        let label = self.label.map(str::to_owned);
        Ok((self.noun != "o").then_some(Item { noun, label, is_quoted, escape }))
    }
}

fn open(text: &str) -> FormatError {
    FormatError::Open(format!("%{}", text.chars().take(20).collect::<String>()))
}

/// Where the bracket that a text begins with is closed, behind it.
fn closed(text: &str) -> Option<usize> {
    let mut depth = 0;
    text.char_indices().find_map(|(at, c)| {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        (depth == 0).then_some(at + 1)
    })
}
