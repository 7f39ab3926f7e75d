//! Conditions of the common forms in CEL: a comparison of one entry of the first descriptor with a text.

use slowlane_core::policy::expression_of;

/// A condition on the value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Test {
    Equal(String),
    Unequal(String),
    /// An expression for the whole value.
    Pattern(String),
    /// There is a value.
    Any,
}

/// Any value, in an expression.
pub(super) const ANYTHING: &str = "(?s:.*)";

/// The tests of a condition, which must all hold, with their keys. None: it has another form.
///
/// ```text
/// descriptors[0].method == 'GET' && descriptors[0]["path"].startsWith("/api/")
/// ```
pub(super) fn condition(text: &str) -> Option<Vec<(String, Test)>> {
    let (mut tests, mut rest) = (Vec::new(), text);
    while let Some((first, others)) = split(rest, "&&") {
        tests.push(test(first)?);
        rest = others;
    }
    tests.push(test(rest)?);
    Some(tests)
}

fn test(text: &str) -> Option<(String, Test)> {
    let text = text.trim();
    for (operator, of) in [("==", Test::Equal as fn(String) -> Test), ("!=", Test::Unequal)] {
        if let Some((left, right)) = split(text, operator) {
            let (key, value) = key(left).zip(literal(right)).or_else(|| key(right).zip(literal(left)))?;
            return Some((key, of(value)));
        }
    }
    if let Some((left, list)) = split(text, " in ") {
        let mut list = list.trim().strip_prefix('[')?.strip_suffix(']')?;
        let mut values = Vec::new();
        while let Some((value, rest)) = split(list, ",") {
            values.push(expression_of(&literal(value)?));
            list = rest;
        }
        values.push(expression_of(&literal(list)?));
        return Some((key(left)?, Test::Pattern(format!("(?:{})", values.join("|")))));
    }
    let (called, argument) = split(text.strip_suffix(')')?, "(")?;
    if called == "has" {
        return Some((key(argument)?, Test::Any));
    }
    let (of, method) = called.rsplit_once('.')?;
    let value = literal(argument)?;
    let part = expression_of(&value);
    let pattern = match method {
        "startsWith" => format!("{part}{ANYTHING}"),
        "endsWith" => format!("{ANYTHING}{part}"),
        "contains" => format!("{ANYTHING}{part}{ANYTHING}"),
        "matches" => searched(&value)?,
        _ => return None,
    };
    Some((key(of)?, Test::Pattern(pattern)))
}

/// An expression that is searched anywhere in a value, for the whole value. None: it has anchors or blanks in its middle.
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

/// The key of an entry of the first descriptor: `descriptors[0].method`, `descriptors[0]['method']`, or `method` alone, as
/// before version 2.
pub(super) fn key(text: &str) -> Option<String> {
    let text = text.trim();
    let is_word = |text: &&str, more: &str| {
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || more.contains(letter);
        !text.is_empty() && text.chars().all(is_part)
    };
    let Some(entry) = text.strip_prefix("descriptors[0]") else {
        return Some(text).filter(|text| is_word(text, "_.-")).map(str::to_owned);
    };
    match entry.strip_prefix('.') {
        Some(word) => Some(word).filter(|word| is_word(word, "_")).map(str::to_owned),
        None => literal(entry.strip_prefix('[')?.strip_suffix(']')?),
    }
}

/// A text in quotes.
fn literal(text: &str) -> Option<String> {
    let text = text.trim();
    let (is_raw, quoted) = text.strip_prefix('r').map_or((false, text), |raw| (true, raw));
    let quote = quoted.chars().next().filter(|quote| ['\'', '"'].contains(quote))?;
    let inner = quoted[1..].strip_suffix(quote)?;
    let (mut value, mut letters) = (String::new(), inner.chars());
    while let Some(letter) = letters.next() {
        value.push(match letter {
            '\\' if !is_raw => letters.next().filter(|letter| ['\\', '\'', '"'].contains(letter))?,
            letter if letter == quote || letter.is_control() => return None,
            letter => letter,
        });
    }
    Some(value)
}

/// The texts before and after a sign that is outside of quotes and brackets.
fn split<'t>(text: &'t str, sign: &str) -> Option<(&'t str, &'t str)> {
    let (mut quote, mut depth, mut is_escaped) = (None, 0_usize, false);
    for (at, letter) in text.char_indices() {
        if quote.is_none() && depth == 0 && text[at..].starts_with(sign) {
            return Some((&text[..at], &text[at + sign.len()..]));
        }
        match (quote, letter) {
            (Some(_), '\\') if !is_escaped => {
                is_escaped = true;
                continue;
            }
            (Some(open), letter) if letter == open && !is_escaped => quote = None,
            (None, '\'' | '"') => quote = Some(letter),
            (None, '[' | '(') => depth += 1,
            (None, ']' | ')') => depth = depth.saturating_sub(1),
            _ => {}
        }
        is_escaped = false;
    }
    None
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
