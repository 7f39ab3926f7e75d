//! `end` and `dom`: keys that are tried one by one, in the order of the file.

use crate::policy::bounds::{LIST_LINES_MAX, SEARCH_STEPS_MAX};
use crate::policy::index::pattern::Pattern;
use crate::policy::problem::{Fault, quoted};

/// Patterns in the order of their lines. The first match wins.
#[derive(Debug)]
pub(in crate::policy) struct List {
    patterns: Vec<Pattern>,
    fits: fn(key: &[u8], value: &[u8]) -> bool,
    /// Whether `fits` reads the whole value.
    is_search: bool,
}

impl List {
    pub(in crate::policy) fn new(fits: fn(key: &[u8], value: &[u8]) -> bool, is_search: bool) -> List {
        List { patterns: Vec::new(), fits, is_search }
    }

    /// Returns the earlier pattern of the same key, if there is one.
    pub(in crate::policy) fn insert(
        &mut self,
        pattern: Pattern,
        text: &[u8],
    ) -> Result<Option<Pattern>, Fault> {
        if self.patterns.len() == LIST_LINES_MAX {
            return Err(Fault::TooManyLines(LIST_LINES_MAX));
        }
        let is_same = |other: &&Pattern| other.key(text) == pattern.key(text);
        let first = self.patterns.iter().find(is_same).copied();
        self.patterns.push(pattern);
        Ok(first)
    }

    pub(in crate::policy) fn find(&self, value: &[u8], text: &[u8]) -> Option<Pattern> {
        if self.is_search && value.len() * self.patterns.len() > SEARCH_STEPS_MAX {
            return Some(Pattern::REFUSED);
        }
        self.patterns.iter().find(|pattern| (self.fits)(pattern.key(text), value)).copied()
    }
}

pub(in crate::policy) fn is_end(key: &[u8], value: &[u8]) -> bool {
    value.ends_with(key)
}

/// Whether `key` is in `value` between two delimiters. The ends of `value` count as delimiters.
pub(in crate::policy) fn is_words(key: &[u8], value: &[u8]) -> bool {
    let is_border = |byte: Option<&u8>| byte.is_none_or(|&byte| is_delimiter(byte));
    let starts = 0..(value.len() + 1).saturating_sub(key.len());
    let mut starts = starts.filter(|&start| start == 0 || is_delimiter(value[start - 1]));
    starts.any(|start| value[start..].starts_with(key) && is_border(value.get(start + key.len())))
}

/// The pattern without delimiters around its key.
pub(in crate::policy) fn words(pattern: Pattern, text: &[u8]) -> Result<Pattern, Fault> {
    let key = pattern.key(text);
    let is_part = |&byte: &u8| !is_delimiter(byte);
    let first = key.iter().position(is_part).ok_or_else(|| Fault::Delimiters(quoted(key)))?;
    let last = key.iter().rposition(is_part).expect("there is a first");
    Ok(pattern.part(first, last + 1 - first))
}

fn is_delimiter(byte: u8) -> bool {
    matches!(byte, b'/' | b'?' | b'.' | b':')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::policy::read::answer::Answer;

    #[test]
    fn a_list_has_a_bound() {
        let mut list = List::new(is_end, false);
        for _ in 0..LIST_LINES_MAX {
            list.insert(Pattern::new(0, b"key", Answer::NEXT), b"key").unwrap();
        }
        assert!(list.insert(Pattern::new(0, b"key", Answer::NEXT), b"key").is_err());
    }

    #[test]
    fn a_value_that_takes_too_long_to_search_is_refused() {
        let text = b"shop";
        let mut list = List::new(is_words, true);
        for line in 0..100 {
            list.insert(Pattern::new(0, text, Answer::slo(line)), text).unwrap();
        }
        let long = [&b"x".repeat(SEARCH_STEPS_MAX / 100 - 5)[..], b"/shop"].concat();
        assert_eq!(list.find(&long, text).map(|pattern| pattern.answer), Some(Answer::slo(0)));
        let longer = [b"x", &long[..]].concat();
        assert_eq!(list.find(&longer, text), Some(Pattern::REFUSED));
        let mut ends = List::new(is_end, false);
        ends.insert(Pattern::new(0, text, Answer::slo(0)), text).unwrap();
        let longest = [&b"x".repeat(SEARCH_STEPS_MAX)[..], b"shop"].concat();
        assert_eq!(ends.find(&longest, text).map(|pattern| pattern.answer), Some(Answer::slo(0)));
    }

    fn dom(key: &str, value: &str) -> bool {
        let words = words(Pattern::new(0, key.as_bytes(), Answer::NEXT), key.as_bytes()).unwrap();
        is_words(words.key(key.as_bytes()), value.as_bytes())
    }

    #[test]
    fn a_domain_is_found_between_delimiters() {
        for value in ["shop.example", "www.shop.example:80", "//www.shop.example/a", "a?shop.example.b"] {
            assert!(dom("shop.example", value), "{value}");
        }
        for value in
            ["ashop.example", "shop.examples", "shop.ashop.example1", "shop/example", "Shop.example", ""]
        {
            assert!(!dom("shop.example", value), "{value}");
        }
    }

    #[test]
    fn delimiters_around_a_key_mean_nothing() {
        assert!(dom(".shop.", "www.shop.example"));
        assert!(dom("shop:", "shop"));
        let none = words(Pattern::new(0, b"./", Answer::NEXT), b"./");
        assert_eq!(none, Err(Fault::Delimiters("./".into())));
    }

    #[test]
    fn the_first_line_wins() {
        let text = b"example.shop.example";
        let mut list = List::new(is_end, false);
        list.insert(Pattern::new(0, &text[..7], Answer::slo(1)), text).unwrap();
        list.insert(Pattern::new(8, &text[8..], Answer::slo(2)), text).unwrap();
        assert_eq!(list.find(b"www.shop.example", text).unwrap().answer, Answer::slo(1));
        assert_eq!(list.find(b"examples", text), None);
    }

    /// HAProxy's `match_word`, step by step. An index past the end reads the final NUL of its strings.
    fn match_word(key: &[u8], value: &[u8]) -> bool {
        let mut may_match = true;
        for at in 0..=value.len().saturating_sub(key.len()) {
            let byte = value.get(at).copied().unwrap_or(0);
            if is_delimiter(byte) {
                may_match = true;
                continue;
            }
            let is_end = at + key.len() == value.len();
            if may_match && value[at..].starts_with(key) && (is_end || is_delimiter(value[at + key.len()])) {
                return true;
            }
            may_match = false;
        }
        false
    }

    proptest! {
        #[test]
        fn words_are_found_as_haproxy_finds_them(key in "[ab]([ab.:]{0,4}[ab])?", value in "[ab.:/]{0,12}") {
            prop_assert_eq!(is_words(key.as_bytes(), value.as_bytes()), match_word(key.as_bytes(), value.as_bytes()));
        }
    }
}
