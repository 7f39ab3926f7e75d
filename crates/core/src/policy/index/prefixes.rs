//! `beg`: keys that are a prefix of the value.

use crate::policy::Pattern;

/// Patterns sorted by key. The longest match wins.
///
/// A matching key sorts before the value, and every key sorted between the two starts with it. So it is also a prefix
/// of the last key before the value, and of the part that this key and the value have in common.
#[derive(Debug, Default)]
pub(in crate::policy) struct Prefixes {
    sorted: Vec<Pattern>,
}

impl Prefixes {
    pub(in crate::policy) fn insert(&mut self, pattern: Pattern) {
        self.sorted.push(pattern);
    }

    /// Sorts the keys when all are inserted. Of two equal keys the first line wins, and `repeated` gets both.
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
