//! `beg`: keys that are a prefix of the value.

use std::iter::successors;

use crate::policy::Pattern;

#[derive(Clone, Copy, Debug)]
struct Prefix {
    pattern: Pattern,
    /// The longest other key that is a prefix of this one.
    shorter: Option<u32>,
}

/// Patterns sorted by key. The longest match wins.
///
/// A matching key sorts before the value, and every key sorted between the two starts with it. So all matches
/// lie on one chain. It leads from the last key before the value to ever shorter ones.
#[derive(Debug, Default)]
pub(in crate::policy) struct Prefixes {
    sorted: Vec<Prefix>,
}

impl Prefixes {
    pub(in crate::policy) fn insert(&mut self, pattern: Pattern) {
        self.sorted.push(Prefix { pattern, shorter: None });
    }

    /// Sorts the keys when all are inserted. Of two equal keys the first line wins, and `repeated` gets both.
    pub(in crate::policy) fn sort(&mut self, text: &[u8], mut repeated: impl FnMut(Pattern, Pattern)) {
        self.sorted.sort_by_key(|prefix| prefix.pattern.key(text));
        self.sorted.dedup_by(|again, first| {
            let is_same = again.pattern.key(text) == first.pattern.key(text);
            if is_same {
                repeated(first.pattern, again.pattern);
            }
            is_same
        });
        for place in 1..self.sorted.len() {
            let key = self.sorted[place].pattern.key(text);
            let fits = |&(_, shorter): &(u32, Pattern)| key.starts_with(shorter.key(text));
            let shorter = self.chain(place - 1).find(fits);
            self.sorted[place].shorter = shorter.map(|(shorter, _)| shorter);
        }
    }

    pub(in crate::policy) fn find(&self, value: &[u8], text: &[u8]) -> Option<Pattern> {
        let not_after = self.sorted.partition_point(|prefix| prefix.pattern.key(text) <= value);
        let last = not_after.checked_sub(1)?;
        let common = common_length(self.sorted[last].pattern.key(text), value);
        self.chain(last).find(|(_, shorter)| shorter.length() <= common).map(|(_, pattern)| pattern)
    }

    /// The pattern with this index, its longest prefix, the longest prefix of that, and so on, with their indexes.
    fn chain(&self, place: usize) -> impl Iterator<Item = (u32, Pattern)> {
        let places = successors(Some(place as u32), |&place| self.sorted[place as usize].shorter);
        places.map(|place| (place, self.sorted[place as usize].pattern))
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
