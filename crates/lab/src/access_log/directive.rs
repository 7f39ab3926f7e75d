//! The line of configuration around a log format.

use nom::branch::alt;
use nom::bytes::complete::{is_not, tag, take_till, take_while, take_while1};
use nom::character::complete::{anychar, char};
use nom::combinator::{all_consuming, opt, recognize, value};
use nom::multi::{fold_many0, fold_many1};
use nom::sequence::{delimited, preceded, terminated};
use nom::{IResult, Parser};

use crate::access_log::escape::Escape;

/// Takes a format out of `log-format "..."` or `log_format name escape=json '...' '...';`.
/// Leaves a format alone unchanged.
pub(super) fn directive(text: &str) -> (Escape, String) {
    let text = text.trim();
    let (text, escape) = preceded(opt(keyword), opt(escape)).parse(text).unwrap_or((text, None));
    let strings = text.trim_end_matches([';', ' ', '\t', '\n']);
    let joined =
        all_consuming(fold_many1(string, String::new, |joined, string| joined + &string)).parse(strings);
    let format = joined.map(|(_, joined)| joined).ok().filter(|joined| !joined.is_empty());
    (escape.unwrap_or(Escape::Backslash), format.unwrap_or_else(|| text.to_owned()))
}

fn blanks(text: &str) -> IResult<&str, &str> {
    take_while(char::is_whitespace)(text)
}

fn keyword(text: &str) -> IResult<&str, &str> {
    let named = (tag("log_format "), blanks, take_till(char::is_whitespace), blanks);
    recognize(alt((recognize(named), recognize((tag("log-format "), blanks))))).parse(text)
}

fn escape(text: &str) -> IResult<&str, Escape> {
    let escape = alt((
        value(Escape::Backslash, tag("default")),
        value(Escape::Json, tag("json")),
        value(Escape::None, tag("none")),
    ));
    delimited(tag("escape="), escape, take_while1(char::is_whitespace)).parse(text)
}

/// A string in quotes. Only the quote itself is unescaped: the format has other uses for a backslash.
fn string(text: &str) -> IResult<&str, String> {
    alt((string_in("\"", "\"\\"), string_in("'", "'\\"))).parse(text)
}

fn string_in<'t>(
    quote: &'static str,
    special: &'static str,
) -> impl FnMut(&'t str) -> IResult<&'t str, String> {
    move |text| {
        let piece =
            alt((is_not(special), preceded(char('\\'), tag(quote)), recognize((char('\\'), anychar))));
        let inside = fold_many0(piece, String::new, |string, piece| string + piece);
        terminated(delimited(tag(quote), inside, tag(quote)), blanks).parse(text)
    }
}
