//! The grammar of nginx's configuration files: directives, each with its place in the text.

use std::ops::Range;
use std::path::PathBuf;

use nom::branch::alt;
use nom::bytes::complete::{is_a, is_not, tag, take_until, take_while};
use nom::character::complete::{anychar, char, none_of};
use nom::combinator::{cut, not, peek, recognize};
use nom::multi::{fold_many0, fold_many1, many0, many0_count};
use nom::sequence::{delimited, preceded};
use nom::{Err, IResult, Parser};

/// The maximum depth of nested blocks. nginx's own blocks nest only a few levels deep.
const DEPTH_MAX: usize = 32;

/// A directive, with the content of its `{ }` block if it has one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Directive {
    pub(crate) words: Vec<String>,
    /// The range from the first byte of the first word to the byte after the `;` or `}`.
    pub(crate) place: Range<usize>,
    /// The bytes between its braces.
    pub(crate) block: Option<Range<usize>>,
    pub(crate) inner: Vec<Directive>,
    /// The files of an `include`.
    pub(crate) files: Vec<PathBuf>,
}

impl Directive {
    pub(crate) fn name(&self) -> &str {
        self.words.first().map_or("", String::as_str)
    }

    /// The pattern of an `include`.
    pub(crate) fn included(&self) -> Option<&str> {
        self.words.get(1).filter(|_| self.name() == "include" && self.block.is_none()).map(String::as_str)
    }
}

/// Reads the directives of a text. The error is the position at which the text is not understood.
pub(crate) fn parse(text: &str) -> Result<Vec<Directive>, usize> {
    let grammar = Grammar { text };
    match grammar.directives(0, text) {
        Ok(("", directives)) => Ok(directives),
        Ok((left, _)) => Err(grammar.at(left)),
        Err(Err::Error(error) | Err::Failure(error)) => Err(grammar.at(error.input)),
        Err(Err::Incomplete(_)) => unreachable!("the parsers always receive complete text"),
    }
}

/// The grammar, with the whole text, in which positions are counted.
#[derive(Clone, Copy)]
struct Grammar<'t> {
    text: &'t str,
}

impl<'t> Grammar<'t> {
    /// The position in the text at which this remainder begins.
    fn at(self, left: &str) -> usize {
        self.text.len() - left.len()
    }

    /// The directives up to the end of the text, or to a `}`.
    fn directives(self, depth: usize, text: &'t str) -> IResult<&'t str, Vec<Directive>> {
        let directive = |text| self.directive(depth, text);
        delimited(space, many0(preceded(space, directive)), space).parse(text)
    }

    fn directive(self, depth: usize, text: &'t str) -> IResult<&'t str, Directive> {
        let (first, _) = peek(none_of("}")).parse(text)?;
        let (left, words) = many0(preceded(space, word)).parse(first)?;
        let mut own = Directive { words, ..Directive::default() };
        let (left, opened) = cut(preceded(space, alt((char(';'), open(depth))))).parse(left)?;
        let mut after = left;
        if opened == '{' {
            (after, own.inner) = match own.name().ends_with("_by_lua_block") {
                true => (cut(lua).parse(left)?.0, Vec::new()),
                false => self.directives(depth + 1, left)?,
            };
            own.block = Some(self.at(left)..self.at(after));
            (after, _) = cut(char('}')).parse(after)?;
        }
        own.place = self.at(first)..self.at(after);
        Ok((after, own))
    }
}

/// Accepts the opening brace of a block, unless the block is nested too deeply.
fn open<'t>(depth: usize) -> impl FnMut(&'t str) -> IResult<&'t str, char> {
    move |text| if depth < DEPTH_MAX { char('{').parse(text) } else { char(';').parse(text) }
}

fn space(text: &str) -> IResult<&str, usize> {
    let blanks = is_a(" \t\n\x0c\r");
    let comment = preceded(char('#'), take_while(|letter| letter != '\n'));
    many0_count(alt((blanks, comment))).parse(text)
}

/// A word. nginx removes a backslash only before a quote or a backslash, so regular expressions keep their backslashes.
fn word(text: &str) -> IResult<&str, String> {
    let add = |word: String, piece: &str| word + piece;
    let quoted = |quote: char, plain: &'static str| {
        let inside = fold_many0(alt((is_not(plain), escaped)), String::new, add);
        delimited(char(quote), inside, cut(char(quote)))
    };
    let pieces = alt((is_not(" \t\n\x0c\r;{\\$"), escaped, tag("${"), tag("$")));
    let plain = preceded(not(char('}')), fold_many1(pieces, String::new, add));
    alt((quoted('"', "\"\\"), quoted('\'', "'\\"), plain)).parse(text)
}

fn escaped(text: &str) -> IResult<&str, &str> {
    let is_gone = preceded(char('\\'), alt((tag("\""), tag("'"), tag("\\"))));
    alt((is_gone, recognize((char('\\'), cut(anychar))))).parse(text)
}

/// Lua code up to the brace that closes its block. Braces in strings and comments do not count.
fn lua(text: &str) -> IResult<&str, ()> {
    let (mut left, mut depth) = (text, 1);
    loop {
        let (after, piece) = alt((lua_comment, lua_string, recognize(anychar))).parse(left)?;
        depth += i32::from(piece == "{") - i32::from(piece == "}");
        if depth == 0 {
            return Ok((left, ()));
        }
        left = after;
    }
}

fn lua_comment(text: &str) -> IResult<&str, &str> {
    let line = take_while(|letter| letter != '\n');
    recognize((tag("--"), alt((lua_long, line)))).parse(text)
}

fn lua_string(text: &str) -> IResult<&str, &str> {
    let inside = |plain| many0_count(alt((is_not(plain), recognize((char('\\'), anychar)))));
    let double = recognize((char('"'), inside("\"\\"), cut(char('"'))));
    let single = recognize((char('\''), inside("'\\"), cut(char('\''))));
    alt((double, single, lua_long)).parse(text)
}

/// A string between brackets, like `[==[ ]] ]==]`.
fn lua_long(text: &str) -> IResult<&str, &str> {
    let (inside, signs) = delimited(char('['), take_while(|letter| letter == '='), char('[')).parse(text)?;
    let end = format!("]{signs}]");
    let (after, _) = cut((take_until(&*end), tag(&*end))).parse(inside)?;
    Ok((after, &text[..text.len() - after.len()]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn words_are_those_that_nginx_reads() {
        let text = r#"server_name ~^(www|a)\.(.+)$ "a b" 'it\'s' a#b ${x}y; # no } here"#;
        let directives = parse(text).unwrap();
        assert_eq!(directives[0].words, ["server_name", r"~^(www|a)\.(.+)$", "a b", "it's", "a#b", "${x}y"]);
        let text = "a { b_by_lua_block { x = {} } c { d e; } }";
        let directives = parse(text).unwrap();
        let inner: Vec<&str> = directives[0].inner.iter().map(Directive::name).collect();
        assert_eq!((inner, directives[0].place.end), (vec!["b_by_lua_block", "c"], text.len()));
        for (text, at) in [("a", 1), ("a {", 3), ("a; }", 3), ("a \"b;", 5), ("a { b }", 6)] {
            assert_eq!(parse(text).unwrap_err(), at, "{text}");
        }
    }

    #[test]
    fn braces_in_strings_and_comments_of_lua_end_no_block() {
        for lua in [
            r#"say("}")"#,
            "say('{')",
            "-- }\n x = {}",
            "--[[ } ]] x()",
            "x = [==[ } ]] ]==]",
            r#"y = "\"}""#,
        ] {
            let text = format!("a_by_lua_block {{ {lua} }} b;");
            let directives = parse(&text).unwrap_or_else(|at| panic!("{at}: {text}"));
            let names: Vec<&str> = directives.iter().map(Directive::name).collect();
            assert_eq!(names, ["a_by_lua_block", "b"], "{text}");
        }
        assert_eq!(parse("a_by_lua_block { say(\"}").unwrap_err(), 23);
    }

    proptest! {
        /// Whatever a file holds, each directive has a place in it.
        #[test]
        fn any_text_is_read_or_refused(text in r#"(_by_lua_block|[a{};"'\\#$ \né\[\]=-]){0,80}"#) {
            for directive in parse(&text).unwrap_or_default() {
                prop_assert!(text.get(directive.place.clone()).is_some(), "{:?}", directive);
            }
        }
    }
}
