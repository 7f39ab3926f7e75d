//! `reg`: keys that are regular expressions, tried one by one.
//!
//! An expression is searched anywhere in the value, in time linear in its length. It works on bytes: `.` is
//! any byte but LF, and `\w` and `(?i)` know ASCII only.
//!
//! PCRE, HAProxy's usual library, has more. These are refused: look-around, back-references, atomic groups,
//! possessive quantifiers, recursion, conditions, callouts, `\K`, `\G`, `\R`, `\h` and `\Q…\E`. One thing
//! differs: `$` does not match before a final LF.

use std::error::Error;

use regex_automata::Input;
use regex_automata::dfa::{Automaton, StartKind, dense};
use regex_automata::nfa::thompson;
use regex_automata::util::syntax;

use crate::policy::bounds::{LIST_LINES_MAX, SEARCH_STEPS_MAX};
use crate::policy::index::pattern::Pattern;
use crate::policy::problem::{Fault, quoted};

/// Memory limit of one compiled expression, in bytes. Most need a hundredth of it.
const DFA_BYTES_MAX: usize = 256 << 10;

/// Memory limit of all expressions of a map, in bytes. It also bounds the time to compile them to some seconds.
const ALL_BYTES_MAX: usize = 16 << 20;

/// Regular expressions in the order of their lines. The first match wins.
///
/// Each is a whole automaton before the first request. A search then takes one step per byte, whatever the
/// expression and the value are.
#[derive(Debug)]
pub(in crate::policy) struct Regexes {
    regexes: Vec<(dense::DFA<Vec<u32>>, Pattern)>,
    bytes: usize,
    ignores_case: bool,
}

impl Regexes {
    pub(in crate::policy) fn new(ignores_case: bool) -> Regexes {
        Regexes { regexes: Vec::new(), bytes: 0, ignores_case }
    }

    fn compile(&self, regex: &str) -> Result<dense::DFA<Vec<u32>>, String> {
        let limits = dense::Config::new()
            .start_kind(StartKind::Unanchored)
            .dfa_size_limit(Some(DFA_BYTES_MAX))
            .determinize_size_limit(Some(4 * DFA_BYTES_MAX));
        let syntax = syntax::Config::new().unicode(false).utf8(false).case_insensitive(self.ignores_case);
        let nfa = thompson::Config::new().utf8(false).nfa_size_limit(Some(DFA_BYTES_MAX));
        dense::Builder::new()
            .configure(limits)
            .syntax(syntax)
            .thompson(nfa)
            .build(regex)
            .map_err(|error| reason(&error))
    }

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
        let dfa = self.compile(regex).map_err(fault)?;
        self.bytes += dfa.memory_usage();
        if self.bytes > ALL_BYTES_MAX {
            let limit = ALL_BYTES_MAX >> 20;
            return Err(fault(format!("with it, the expressions of this map take up more than {limit} MiB")));
        }
        let is_same = |(_, known): &&(_, Pattern)| known.key(text) == key;
        let first = self.regexes.iter().find(is_same).map(|&(_, first)| first);
        self.regexes.push((dfa, pattern));
        Ok(first)
    }

    pub(in crate::policy) fn find(&self, value: &[u8]) -> Option<Pattern> {
        if value.len() * self.regexes.len() > SEARCH_STEPS_MAX {
            return Some(Pattern::REFUSED);
        }
        let input = Input::new(value).earliest(true);
        for (dfa, pattern) in &self.regexes {
            match dfa.try_search_fwd(&input) {
                Ok(None) => {}
                Ok(Some(_)) => return Some(*pattern),
                Err(_) => return Some(Pattern::REFUSED),
            }
        }
        None
    }
}

/// The last line of the innermost error. The lines before it draw the expression.
fn reason(error: &dense::BuildError) -> String {
    let mut innermost: &dyn Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    let text = innermost.to_string();
    if error.is_size_limit_exceeded() || text.contains("exceeded") {
        let limit = DFA_BYTES_MAX >> 10;
        return format!("it takes up more than {limit} KiB; a smaller count in {{ }} helps most");
    }
    text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::read::answer::Answer;

    /// Inserts the expressions, each with the number of its line as its answer.
    fn regexes(keys: &[&[u8]]) -> Result<Regexes, String> {
        let (text, mut regexes, mut at) = (keys.concat(), Regexes::new(false), 0);
        for (line, key) in keys.iter().enumerate() {
            let pattern = Pattern::new(at, key, Answer::slo(line));
            regexes.insert(pattern, &text).map_err(|fault| fault.to_string())?;
            at += key.len();
        }
        Ok(regexes)
    }

    fn line_of(regexes: &Regexes, value: &[u8]) -> Option<usize> {
        regexes.find(value).and_then(|pattern| pattern.answer.place())
    }

    #[test]
    fn the_first_that_matches_anywhere_wins() {
        let regexes = regexes(&[br"^/api/v\d+/", b"api"]).unwrap();
        assert_eq!(line_of(&regexes, b"/api/v12/items"), Some(0));
        assert_eq!(line_of(&regexes, b"/api/items"), Some(1));
        assert_eq!(line_of(&regexes, b"/API/"), None);
    }

    #[test]
    fn case_is_ignored_where_asked() {
        let (key, mut regexes) = (br"^WWW\.", Regexes::new(true));
        regexes.insert(Pattern::new(0, key, Answer::slo(0)), key).unwrap();
        assert_eq!(line_of(&regexes, b"www.shop.example"), Some(0));
    }

    /// Automata that were built while searching took 1.1 s for a value of 1000 bytes, and 2.5 GB for twenty of them.
    #[test]
    fn an_expression_that_takes_much_memory_is_refused() {
        assert!(regexes(&[b"x.{8}y"]).unwrap().bytes < DFA_BYTES_MAX);
        let refused = regexes(&[b"x.{19}y"]).unwrap_err();
        assert_eq!(refused, "\"x.{19}y\": it takes up more than 256 KiB; a smaller count in { } helps most");
        let many: Vec<Vec<u8>> =
            (0..LIST_LINES_MAX).map(|line| format!("x.{{8}}y{line}").into_bytes()).collect();
        let refused = regexes(&many.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap_err();
        assert!(
            refused.ends_with("with it, the expressions of this map take up more than 16 MiB"),
            "{refused}"
        );
    }

    #[test]
    fn a_value_that_takes_too_long_to_search_is_refused() {
        let keys: Vec<Vec<u8>> = (0..10).map(|number| format!("^/{number}").into_bytes()).collect();
        let regexes = regexes(&keys.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap();
        let longest = [&b"/9"[..], &b"x".repeat(SEARCH_STEPS_MAX / 10 - 2)].concat();
        assert_eq!(line_of(&regexes, &longest), Some(9));
        assert_eq!(regexes.find(&[&longest[..], b"x"].concat()), Some(Pattern::REFUSED));
    }

    #[test]
    fn bytes_are_bytes() {
        let regexes = regexes(&[br"^.\xff$"]).unwrap();
        assert!(regexes.find(b"\x80\xff").is_some());
        assert!(regexes.find("é".as_bytes()).is_none());
    }

    #[test]
    fn unsupported_pcre_syntax_is_refused_in_one_line() {
        for key in
            [&b"(?=a)"[..], br"(a)\1", b"a++b(?>c)", br"\K", b"(", b"[\xc3\xa9]", b"a{9999999}", b"\xff"]
        {
            let refused = regexes(&[key]).unwrap_err();
            assert_eq!(refused.lines().count(), 1, "{refused}");
        }
        let refused = regexes(&[b"(?=a)"]).unwrap_err();
        assert_eq!(refused, "\"(?=a)\": look-around, including look-ahead and look-behind, is not supported");
    }
}
