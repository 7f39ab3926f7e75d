//! `reg`: keys that are regular expressions, tried one by one.
//!
//! An expression is searched anywhere in the value, in time linear in its length. It works on bytes: `.` is
//! any byte but LF, and `\w` and `(?i)` know ASCII only.
//!
//! PCRE, HAProxy's usual library, has more. These are refused: look-around, back-references, atomic groups,
//! possessive quantifiers, recursion, conditions, callouts, `\K`, `\G`, `\R`, `\h` and `\Q…\E`. One thing
//! differs: `$` does not match before a final LF.

use regex::bytes::{Regex, RegexBuilder};

use crate::policy::bounds::{LIST_LINES_MAX, SEARCHED_BYTES_MAX};
use crate::policy::index::pattern::Pattern;
use crate::policy::problem::{Fault, quoted};

/// Memory limit of one compiled expression. Most need less than a hundredth of it.
const REGEX_BYTES_MAX: usize = 1 << 20;

/// Regular expressions in the order of their lines. The first match wins.
#[derive(Debug, Default)]
pub(in crate::policy) struct Regexes {
    regexes: Vec<(Regex, Pattern)>,
}

impl Regexes {
    /// Returns the earlier pattern of the same key, if there is one.
    pub(in crate::policy) fn insert(
        &mut self,
        pattern: Pattern,
        text: &[u8],
    ) -> Result<Option<Pattern>, Fault> {
        let key = pattern.key(text);
        if self.regexes.len() == LIST_LINES_MAX {
            return Err(Fault::TooManyLines(LIST_LINES_MAX));
        }
        let fault = |reason: String| Fault::Regex { key: quoted(key), reason };
        let regex = std::str::from_utf8(key)
            .map_err(|_| fault("bytes that are not UTF-8 are written as \\xNN".into()))?;
        let regex = RegexBuilder::new(regex).unicode(false).size_limit(REGEX_BYTES_MAX).build();
        let first = self.regexes.iter().find(|(known, _)| known.as_str().as_bytes() == key);
        let first = first.map(|&(_, first)| first);
        self.regexes.push((regex.map_err(|error| fault(reason(&error)))?, pattern));
        Ok(first)
    }

    pub(in crate::policy) fn find(&self, value: &[u8]) -> Option<Pattern> {
        if value.len() > SEARCHED_BYTES_MAX {
            return None;
        }
        self.regexes.iter().find(|(regex, _)| regex.is_match(value)).map(|&(_, pattern)| pattern)
    }
}

/// The last line of the error. The lines before it draw the expression.
fn reason(error: &regex::Error) -> String {
    let error = error.to_string();
    error.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::read::answer::Answer;

    fn insert(regexes: &mut Regexes, key: &[u8], line: usize) -> Result<(), String> {
        let pattern = Pattern::new(0, key, Answer::slo(line));
        regexes.insert(pattern, key).map(|_| ()).map_err(|fault| fault.to_string())
    }

    #[test]
    fn the_first_that_matches_anywhere_wins() {
        let mut regexes = Regexes::default();
        insert(&mut regexes, br"^/api/v\d+/", 1).unwrap();
        insert(&mut regexes, b"api", 2).unwrap();
        let find = |value: &[u8]| regexes.find(value).and_then(|pattern| pattern.answer.place());
        assert_eq!(find(b"/api/v12/items"), Some(1));
        assert_eq!(find(b"/api/items"), Some(2));
        assert_eq!(find(b"/API/"), None);
    }

    #[test]
    fn bytes_are_bytes() {
        let mut regexes = Regexes::default();
        insert(&mut regexes, br"^.\xff$", 1).unwrap();
        assert!(regexes.find(b"\x80\xff").is_some());
        assert!(regexes.find("é".as_bytes()).is_none());
    }

    #[test]
    fn unsupported_pcre_syntax_is_refused_in_one_line() {
        for key in
            [&b"(?=a)"[..], br"(a)\1", b"a++b(?>c)", br"\K", b"(", b"[\xc3\xa9]", b"a{9999999}", b"\xff"]
        {
            let refused = insert(&mut Regexes::default(), key, 1).unwrap_err();
            assert_eq!(refused.lines().count(), 1, "{refused}");
        }
        let refused = insert(&mut Regexes::default(), b"(?=a)", 1).unwrap_err();
        assert_eq!(refused, "\"(?=a)\": look-around, including look-ahead and look-behind, is not supported");
    }
}
