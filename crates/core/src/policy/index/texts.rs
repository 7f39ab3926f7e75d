//! `str`, `end` and `beg`: keys that equal the whole value, its end, or its beginning.

use std::hash::BuildHasher;

use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};

use crate::policy::{LIST_LINES_MAX, Pattern, PolicyErrorKind};

/// Patterns by key. If several keys are equal, the first line wins.
#[derive(Debug, Default)]
pub(in crate::policy) struct Exact {
    patterns: HashTable<Pattern>,
    hasher: DefaultHashBuilder,
}

impl Exact {
    /// Adds a pattern, unless its key is known. Returns the earlier pattern with the same key, if there is one.
    pub(in crate::policy) fn insert(&mut self, pattern: Pattern, text: &[u8]) -> Option<Pattern> {
        let hash = |pattern: &Pattern| self.hasher.hash_one(pattern.key(text));
        let is_same = |other: &Pattern| other.key(text) == pattern.key(text);
        match self.patterns.entry(hash(&pattern), is_same, hash) {
            Entry::Occupied(first) => Some(*first.get()),
            Entry::Vacant(vacant) => {
                vacant.insert(pattern);
                None
            }
        }
    }

    pub(in crate::policy) fn find(&self, value: &[u8], text: &[u8]) -> Option<Pattern> {
        self.patterns.find(self.hasher.hash_one(value), |pattern| pattern.key(text) == value).copied()
    }
}

/// Keys that match the end of a value, in the order of their lines. The first match wins.
#[derive(Debug, Default)]
pub(in crate::policy) struct List(pub(in crate::policy) Vec<Pattern>);

impl List {
    /// Adds a pattern. Returns the earlier pattern with the same key, if there is one.
    pub(in crate::policy) fn insert(
        &mut self,
        pattern: Pattern,
        text: &[u8],
    ) -> Result<Option<Pattern>, PolicyErrorKind> {
        if self.0.len() == LIST_LINES_MAX {
            return Err(PolicyErrorKind::TooManyLines(LIST_LINES_MAX));
        }
        let is_same = |other: &&Pattern| other.key(text) == pattern.key(text);
        let first = self.0.iter().find(is_same).copied();
        self.0.push(pattern);
        Ok(first)
    }

    pub(in crate::policy) fn find(&self, value: &[u8], text: &[u8]) -> Option<Pattern> {
        self.0.iter().find(|pattern| value.ends_with(pattern.key(text))).copied()
    }
}

/// Patterns sorted by key. The longest match wins.
///
/// A matching key sorts at or before the value, and every key between the two starts with the matching key. So the
/// longest match is a prefix of the last key at or before the value, and of what this key and the value share.
#[derive(Debug, Default)]
pub(in crate::policy) struct Prefixes {
    sorted: Vec<Pattern>,
}

impl Prefixes {
    pub(in crate::policy) fn insert(&mut self, pattern: Pattern) {
        self.sorted.push(pattern);
    }

    /// Sorts the keys once all are inserted. If two keys are equal, the first line wins; `repeated` gets both.
    pub(in crate::policy) fn sort(&mut self, text: &[u8], mut repeated: impl FnMut(Pattern, Pattern)) {
        self.sorted.sort_by_key(|pattern| pattern.key(text));
        self.sorted.dedup_by(|again, first| {
            let is_same = again.key(text) == first.key(text);
            if is_same {
                repeated(*first, *again);
            }
            is_same
        });
    }

    pub(in crate::policy) fn find(&self, value: &[u8], text: &[u8]) -> Option<Pattern> {
        let (mut part, mut keys) = (value, &self.sorted[..]);
        loop {
            keys = &keys[..keys.partition_point(|pattern| pattern.key(text) <= part)];
            let last = *keys.last()?;
            let common = common_length(last.key(text), part);
            if common == last.length() {
                return Some(last);
            }
            part = &part[..common];
        }
    }
}

fn common_length(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::policy::Answer;

    #[test]
    fn a_list_has_a_bound() {
        let mut list = List::default();
        for _ in 0..LIST_LINES_MAX {
            list.insert(Pattern::new(0, b"key", Answer::NEXT), b"key").unwrap();
        }
        assert!(list.insert(Pattern::new(0, b"key", Answer::NEXT), b"key").is_err());
    }

    #[test]
    fn the_first_line_wins() {
        let text = b"example.shop.example";
        let mut list = List::default();
        list.insert(Pattern::new(0, &text[..7], Answer::slo(1)), text).unwrap();
        list.insert(Pattern::new(8, &text[8..], Answer::slo(2)), text).unwrap();
        assert_eq!(list.find(b"www.shop.example", text).unwrap().answer, Answer::slo(1));
        assert_eq!(list.find(b"examples", text), None);
    }

    /// The line, counted from 0, that matches a value.
    fn find(keys: &[String], value: &str) -> Option<usize> {
        let text = keys.concat();
        let (mut prefixes, mut at) = (Prefixes::default(), 0);
        for (line, key) in keys.iter().enumerate() {
            prefixes.insert(Pattern::new(at, key.as_bytes(), Answer::slo(line)));
            at += key.len();
        }
        prefixes.sort(text.as_bytes(), |_, _| ());
        prefixes.find(value.as_bytes(), text.as_bytes())?.answer.place()
    }

    #[test]
    fn the_longest_key_wins_wherever_it_stands() {
        let keys = ["/api/v1", "/", "/api", "/api/v1/items", "/api"].map(String::from);
        assert_eq!(find(&keys, "/api/v1/item"), Some(0));
        assert_eq!(find(&keys, "/api/v1/items"), Some(3));
        assert_eq!(find(&keys, "/api/v0"), Some(2));
        assert_eq!(find(&keys, "/b"), Some(1));
        assert_eq!(find(&keys, "b"), None);
        assert_eq!(find(&keys, ""), None);
        assert_eq!(find(&[], "/"), None);
    }

    proptest! {
        #[test]
        fn the_longest_key_wins_as_when_trying_every_line(
            keys in prop::collection::vec("[ab]{1,5}", 0..30), value in "[ab]{0,7}",
        ) {
            let fits = keys.iter().enumerate().filter(|(_, key)| value.starts_with(*key));
            let longest = fits.max_by_key(|&(line, key)| (key.len(), std::cmp::Reverse(line)));
            prop_assert_eq!(find(&keys, &value), longest.map(|(line, _)| line));
        }
    }
}
