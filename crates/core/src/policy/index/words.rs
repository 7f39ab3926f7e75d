//! `dom`: keys that are one or more whole words of the value.

use crate::policy::index::texts::Exact;
use crate::policy::{Pattern, PolicyErrorKind, SEARCH_STEPS_MAX, quoted};

/// An index of keys by their text. If a value contains several keys, the first line wins.
#[derive(Debug, Default)]
pub(in crate::policy) struct Words {
    keys: Exact,
    /// The distinct numbers of words that keys have.
    counts: Vec<usize>,
    /// The lengths of keys, modulo 64, as bits. Most pieces of a value have a different length, so they need no lookup.
    lengths: u64,
}

impl Words {
    /// Adds a pattern, without the delimiters around its key. Returns any earlier pattern with the same key.
    pub(in crate::policy) fn insert(
        &mut self,
        pattern: Pattern,
        text: &[u8],
    ) -> Result<Option<Pattern>, PolicyErrorKind> {
        let key = pattern.key(text);
        let is_part = |&byte: &u8| !is_delimiter(byte);
        let first = key.iter().position(is_part).ok_or_else(|| PolicyErrorKind::Delimiters(quoted(key)))?;
        let last = key.iter().rposition(|byte| !is_delimiter(*byte)).expect("some byte is a part");
        let pattern = pattern.part(first, last + 1 - first);
        let count = 1 + pattern.key(text).iter().filter(|&&byte| is_delimiter(byte)).count();
        if !self.counts.contains(&count) {
            self.counts.push(count);
        }
        self.lengths |= bit(pattern.length());
        Ok(self.keys.insert(pattern, text))
    }

    pub(in crate::policy) fn find(&self, value: &[u8], text: &[u8]) -> Option<Pattern> {
        if value.len() * self.counts.len() > SEARCH_STEPS_MAX {
            return Some(Pattern::REFUSED);
        }
        let found = self.counts.iter().filter_map(|&count| self.find_of(count, value, text));
        found.min_by_key(|pattern| pattern.at())
    }

    /// The first matching line among the keys with this many words.
    fn find_of(&self, count: usize, value: &[u8], text: &[u8]) -> Option<Pattern> {
        let ends = || (0..value.len()).filter(|&at| is_delimiter(value[at])).chain([value.len()]);
        let starts = [0].into_iter().chain(ends().map(|end| end + 1));
        let pieces = starts.zip(ends().skip(count - 1)).map(|(start, end)| &value[start..end]);
        let likely = pieces.filter(|piece| self.lengths & bit(piece.len()) != 0);
        likely.filter_map(|piece| self.keys.find(piece, text)).min_by_key(|pattern| pattern.at())
    }
}

fn bit(length: usize) -> u64 {
    1 << (length % 64)
}

fn is_delimiter(byte: u8) -> bool {
    matches!(byte, b'/' | b'?' | b'.' | b':')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::policy::Answer;

    /// The line of the keys that a value has, counted from 0.
    fn line_of(keys: &[&str], value: &[u8]) -> Option<Pattern> {
        let (text, mut words, mut at) = (keys.concat(), Words::default(), 0);
        for (line, key) in keys.iter().enumerate() {
            words.insert(Pattern::new(at, key.as_bytes(), Answer::slo(line)), text.as_bytes()).unwrap();
            at += key.len();
        }
        words.find(value, text.as_bytes())
    }

    fn dom(key: &str, value: &str) -> bool {
        line_of(&[key], value.as_bytes()).is_some()
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
        let none = Words::default().insert(Pattern::new(0, b"./", Answer::NEXT), b"./");
        assert_eq!(none, Err(PolicyErrorKind::Delimiters("./".into())));
    }

    #[test]
    fn a_value_that_takes_too_long_to_search_is_refused() {
        let keys = ["shop", "shop.example"];
        let long = [&b"x".repeat(SEARCH_STEPS_MAX / 2 - 5)[..], b"/shop"].concat();
        assert_eq!(line_of(&keys, &long).unwrap().answer, Answer::slo(0));
        assert_eq!(line_of(&keys, &[b"x", &long[..]].concat()), Some(Pattern::REFUSED));
    }

    /// HAProxy's `match_word`, step by step. An index past the end reads the final NUL of its strings.
    fn match_word(key: &[u8], value: &[u8]) -> bool {
        let is_delimiter = |byte: u8| matches!(byte, b'/' | b'?' | b'.' | b':');
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
        fn the_first_line_wins_as_when_haproxy_tries_each(
            keys in prop::collection::btree_set("[ab]([ab.:]{0,4}[ab])?", 1..6), value in "[ab.:/]{0,12}",
        ) {
            let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            let first = keys.iter().position(|key| match_word(key.as_bytes(), value.as_bytes()));
            let found = line_of(&keys, value.as_bytes()).and_then(|pattern| pattern.answer.place());
            prop_assert_eq!(found, first);
        }
    }
}
