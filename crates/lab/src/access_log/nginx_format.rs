//! nginx's `log_format`.

use nom::branch::alt;
use nom::bytes::complete::take_while1;
use nom::character::complete::{anychar, char};
use nom::combinator::verify;
use nom::sequence::preceded;
use nom::{IResult, Parser};

use crate::access_log::enclosed::enclosed;
use crate::access_log::escape::Escape;
use crate::access_log::format_error::FormatError;
use crate::access_log::piece::{Item, Piece, Pieces};

/// Reads `$name`, `${name}` and text.
pub(super) fn nginx(mut text: &str, escape: Escape) -> Result<Vec<Piece>, FormatError> {
    let mut pieces = Pieces::default();
    while !text.is_empty() {
        let (rest, part) = part(text).map_err(|_| FormatError::Open(text.to_owned()))?;
        match part {
            Part::Letter(letter) => pieces.letter(letter),
            Part::Name(name) => {
                pieces.item(Item { noun: format!("${name}"), label: None, is_quoted: false, escape });
            }
        }
        text = rest;
    }
    Ok(pieces.finish())
}

enum Part<'t> {
    Letter(char),
    Name(&'t str),
}

/// Fails only where a brace is not closed: any letter is a part.
fn part(text: &str) -> IResult<&str, Part<'_>> {
    let plain = take_while1(|letter: char| letter.is_ascii_alphanumeric() || letter == '_');
    let name = verify(alt((enclosed('{', '}'), plain)), |name: &str| !name.is_empty());
    alt((preceded(char('$'), name).map(Part::Name), anychar.map(Part::Letter))).parse(text)
}
