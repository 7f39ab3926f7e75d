//! Text between an opening and a closing sign, as in `(label)`, `{+Q}` and `${host}`.

use nom::bytes::complete::take_till;
use nom::character::complete::char;
use nom::combinator::cut;
use nom::error::Error;
use nom::sequence::delimited;
use nom::{IResult, Parser};

/// Reads `open`, a text and `close`; the value is the text. A missing `close` is a failure, not another alternative.
pub(super) fn enclosed<'t>(open: char, close: char) -> impl FnMut(&'t str) -> IResult<&'t str, &'t str> {
    let mut parser =
        delimited(char(open), take_till(move |letter| letter == close), cut(char::<_, Error<_>>(close)));
    move |text| parser.parse(text)
}
