//! `str`: keys that equal the whole value.

use std::hash::BuildHasher;

use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};

use crate::policy::Pattern;

/// Patterns by key. Of equal keys, the first line wins.
#[derive(Debug, Default)]
pub(in crate::policy) struct Exact {
    patterns: HashTable<Pattern>,
    hasher: DefaultHashBuilder,
}

impl Exact {
    /// Returns the earlier pattern of the same key, if there is one.
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
