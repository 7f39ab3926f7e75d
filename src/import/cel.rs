//! Reads common forms of conditions in CEL, which compare entries of the first descriptor with strings.

use nom::branch::alt;
use nom::bytes::complete::{tag, take_while, take_while1};
use nom::character::complete::{char, multispace0, one_of, satisfy};
use nom::combinator::{all_consuming, map_opt};
use nom::error::Error;
use nom::multi::{fold_many0, separated_list1};
use nom::sequence::{delimited, preceded, separated_pair};
use nom::{IResult, Parser};

use slowlane_core::policy::expression_of;

/// A condition on the value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Test {
    Equal(String),
    Unequal(String),
    /// A regular expression that matches the whole value.
    Pattern(String),
    /// Any value: the key only has to be present.
    Any,
}

/// The part of a regular expression that matches any text.
pub(super) const ANYTHING: &str = "(?s:.*)";

/// The tests of a condition, each with its key; all of them must hold. `None` if the condition has a different form.
///
/// ```text
/// descriptors[0].method == 'GET' && descriptors[0]["path"].startsWith("/api/")
/// ```
pub(super) fn condition(text: &str) -> Option<Vec<(String, Test)>> {
    let tests = separated_list1(sign("&&"), test);
    Some(all_consuming(spaced(tests)).parse(text).ok()?.1)
}

/// The key of an entry of the first descriptor: `descriptors[0].method`, `descriptors[0]['method']`, or `method` alone,
/// as in limitador before version 2.
pub(super) fn key(text: &str) -> Option<String> {
    Some(all_consuming(spaced(entry)).parse(text).ok()?.1)
}

fn test(text: &str) -> IResult<&str, (String, Test)> {
    let has = delimited((tag("has"), sign("(")), entry, sign(")")).map(|key| (key, Test::Any));
    let argument = delimited(sign("("), literal, sign(")"));
    let matched = map_opt((method, argument), |((key, method), value)| {
        Some((key, Test::Pattern(pattern(method, &value)?)))
    });
    let list = delimited(sign("["), separated_list1(sign(","), literal), sign("]"));
    let listed = separated_pair(entry, sign("in"), list).map(|(key, list)| {
        let values: Vec<String> = list.iter().map(|value| expression_of(value)).collect();
        (key, Test::Pattern(format!("(?:{})", values.join("|"))))
    });
    let compared = (entry, comparison, literal).map(|(key, of, value)| (key, of(value)));
    let turned = (literal, comparison, entry).map(|(value, of, key)| (key, of(value)));
    alt((has, matched, listed, compared, turned)).parse(text)
}

fn comparison(text: &str) -> IResult<&str, fn(String) -> Test> {
    let equal = sign("==").map(|_| Test::Equal as fn(String) -> Test);
    let unequal = sign("!=").map(|_| Test::Unequal as fn(String) -> Test);
    alt((equal, unequal)).parse(text)
}

/// A regular expression that matches exactly the values for which a CEL method returns true. `None` for other methods.
fn pattern(method: &str, value: &str) -> Option<String> {
    let part = expression_of(value);
    Some(match method {
        "startsWith" => format!("{part}{ANYTHING}"),
        "endsWith" => format!("{ANYTHING}{part}"),
        "contains" => format!("{ANYTHING}{part}{ANYTHING}"),
        "matches" => searched(value)?,
        _ => return None,
    })
}

/// Converts an expression that CEL searches for anywhere in a value to one that matches the whole value. `None` if the
/// expression contains white space, an anchor in its middle, or both an anchor and a `|`.
fn searched(text: &str) -> Option<String> {
    let begun = text.strip_prefix('^');
    let inner = begun.unwrap_or(text);
    let ended = inner.strip_suffix('$').filter(|inner| !inner.ends_with('\\'));
    let inner = ended.unwrap_or(inner);
    let plain = inner.replace("[^", "[");
    let is_split = plain.contains('|') && (begun.is_some() || ended.is_some());
    if is_split || plain.contains(['^', '$']) || plain.contains(|letter: char| letter.is_whitespace()) {
        return None;
    }
    let [before, after] = [begun, ended].map(|anchored| if anchored.is_some() { "" } else { ANYTHING });
    Some(format!("{before}(?:{inner}){after}"))
}

fn entry(text: &str) -> IResult<&str, String> {
    alt((entry_of_first, word.map(str::to_owned))).parse(text)
}

fn entry_of_first(text: &str) -> IResult<&str, String> {
    let named = preceded(char('.'), name.map(str::to_owned));
    preceded(tag("descriptors[0]"), alt((named, delimited(sign("["), literal, char(']'))))).parse(text)
}

/// The key and the method of a call, like `path` and `startsWith`.
fn method(text: &str) -> IResult<&str, (String, &str)> {
    let of_word = map_opt(word, |word| word.rsplit_once('.')).map(|(key, method)| (key.to_owned(), method));
    alt((separated_pair(entry, sign("."), name), of_word)).parse(text)
}

fn name(text: &str) -> IResult<&str, &str> {
    take_while1(|letter: char| letter.is_ascii_alphanumeric() || letter == '_').parse(text)
}

fn word(text: &str) -> IResult<&str, &str> {
    take_while1(|letter: char| letter.is_ascii_alphanumeric() || "_.-".contains(letter)).parse(text)
}

/// A string literal in quotes, or a raw literal, like `r'\d'`, which keeps its backslashes.
fn literal(text: &str) -> IResult<&str, String> {
    let quoted = |quote: char| {
        let plain = satisfy(move |letter| letter != quote && letter != '\\' && !letter.is_control());
        let letter = alt((plain, preceded(char('\\'), one_of("\\'\""))));
        let add = |text: String, letter: char| text + letter.encode_utf8(&mut [0; 4]);
        delimited(char(quote), fold_many0(letter, String::new, add), char(quote))
    };
    let raw = |quote: char| {
        let plain = take_while(move |letter: char| letter != quote && !letter.is_control());
        delimited((char('r'), char(quote)), plain, char(quote)).map(str::to_owned)
    };
    alt((quoted('\''), quoted('"'), raw('\''), raw('"'))).parse(text)
}

fn sign<'t>(sign: &'static str) -> impl Parser<&'t str, Output = &'t str, Error = Error<&'t str>> {
    spaced(tag(sign))
}

fn spaced<'t, O>(
    inner: impl Parser<&'t str, Output = O, Error = Error<&'t str>>,
) -> impl Parser<&'t str, Output = O, Error = Error<&'t str>> {
    delimited(multispace0, inner, multispace0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_common_forms_are_read() {
        let equal = |key: &str, value: &str| (key.to_owned(), Test::Equal(value.to_owned()));
        let pattern = |key: &str, text: &str| (key.to_owned(), Test::Pattern(text.to_owned()));
        let unequal = |key: &str, value: &str| (key.to_owned(), Test::Unequal(value.to_owned()));
        for (text, expected) in [
            ("descriptors[0].method == 'GET'", vec![equal("method", "GET")]),
            ("descriptors[0]['req.method'] == \"GET\"", vec![equal("req.method", "GET")]),
            ("req.method=='a && b'", vec![equal("req.method", "a && b")]),
            ("\"1\" == descriptors[0][\"limit.1\"]", vec![equal("limit.1", "1")]),
            (
                "descriptors[0].a != 'it\\'s' && descriptors[0].b == '!='",
                vec![unequal("a", "it's"), equal("b", "!=")],
            ),
            ("descriptors[0].a in ['x', \"y.\"]", vec![pattern("a", "(?:x|y\\.)")]),
            ("descriptors[0].a.startsWith('/b')", vec![pattern("a", "/b(?s:.*)")]),
            ("descriptors[0]['a.b'].endsWith('.js')", vec![pattern("a.b", "(?s:.*)\\.js")]),
            ("descriptors[0].a.matches(r'^/v\\d+')", vec![pattern("a", "(?:/v\\d+)(?s:.*)")]),
            ("descriptors[0].a.matches('^[^/]*$')", vec![pattern("a", "(?:[^/]*)")]),
            ("has(descriptors[0].a)", vec![("a".to_owned(), Test::Any)]),
        ] {
            assert_eq!(condition(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn other_forms_are_not() {
        for text in [
            "",
            "descriptors[0].a == 'x' || descriptors[0].b == 'y'",
            "descriptors[1].a == 'x'",
            "descriptors[0].a == descriptors[0].b",
            "descriptors[0].a == 5",
            "!(descriptors[0].a == 'x')",
            "descriptors.exists(d, d.a == 'x')",
            "descriptors[0].a.matches('^a|b$')",
            "descriptors[0].a.matches('a b')",
            "int(descriptors[0].a) > 5",
            "descriptors[0].a == 'x' &&",
            "descriptors[0].a == 'x' ? true : false",
            "size(descriptors[0].a) == '1'",
            "descriptors[0].a == 'x\\n'",
            "limit.name == 'x' && true",
        ] {
            assert_eq!(condition(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_not(text in "[a-z\\[\\]0()'\"\\\\&=!. ,é]{0,40}") {
            condition(&text);
            key(&text);
        }
    }
}
