//! `sub`: keys that occur anywhere in the value, all of which are searched at once.

use aho_corasick::Anchored;
use aho_corasick::automaton::Automaton;
use aho_corasick::dfa::{Builder, DFA};

use crate::policy::{Pattern, PolicyErrorKind, SUBSTRINGS_BYTES_MAX};

/// Keys that are parts of values. If a value contains several keys, the first line wins, as in HAProxy.
///
/// A search takes one step for each byte of the value, whatever the keys are.
#[derive(Debug, Default)]
pub(in crate::policy) struct Substrings {
    /// The keys that can win, in the order of their lines.
    patterns: Vec<Pattern>,
    key_bytes: usize,
    /// The automaton, which reports a key as its index in `patterns`. None until all keys have been inserted.
    automaton: Option<Box<DFA>>,
}

impl Substrings {
    pub(in crate::policy) fn insert(&mut self, pattern: Pattern) -> Result<(), PolicyErrorKind> {
        self.key_bytes += pattern.length();
        if self.key_bytes > SUBSTRINGS_BYTES_MAX {
            return Err(PolicyErrorKind::SubstringBytes);
        }
        self.patterns.push(pattern);
        Ok(())
    }

    /// Builds the automaton after all keys have been inserted. A key that contains the key of an earlier line
    /// can never win, so it is left out, and `hidden` gets the earlier line and the line left out.
    ///
    /// If one of the remaining keys is the end of a longer key, the shorter key is on a later line. So in
    /// each state, the first match, which is the longest, wins.
    pub(in crate::policy) fn finish(&mut self, text: &[u8], mut hidden: impl FnMut(Pattern, Pattern)) {
        let (patterns, all) = (self.patterns.clone(), automaton(&self.patterns, text));
        self.patterns.clear();
        for &pattern in &patterns {
            match first(&all, pattern.key(text), usize::MAX).map(|first| patterns[first]) {
                Some(earlier) if earlier != pattern => hidden(earlier, pattern),
                _ => self.patterns.push(pattern),
            }
        }
        self.automaton = Some(automaton(&self.patterns, text).into());
    }

    pub(in crate::policy) fn find(&self, value: &[u8]) -> Option<Pattern> {
        first(self.automaton.as_ref()?, value, 1).map(|first| self.patterns[first])
    }
}

fn automaton(patterns: &[Pattern], text: &[u8]) -> DFA {
    let keys = patterns.iter().map(|pattern| pattern.key(text));
    let dfa = Builder::new().prefilter(false).build(keys);
    dfa.expect("SUBSTRINGS_BYTES_MAX is far below the limits of an automaton")
}

/// The index of the first key that occurs in a value. At most the first `matches` matches of each state are considered.
fn first(dfa: &DFA, value: &[u8], matches: usize) -> Option<usize> {
    let (mut state, mut first) = (dfa.start_state(Anchored::No).ok()?, usize::MAX);
    for &byte in value {
        state = dfa.next_state(Anchored::No, state, byte);
        if dfa.is_match(state) {
            let found = 0..dfa.match_len(state).min(matches);
            first = found.fold(first, |first, index| first.min(dfa.match_pattern(state, index).as_usize()));
        }
    }
    (first != usize::MAX).then_some(first)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::policy::Answer;

    /// The keys, each with the number of its line as its answer, and the pairs of lines of which the second never wins.
    fn substrings(keys: &[&[u8]]) -> (Substrings, Vec<(usize, usize)>) {
        let (text, mut substrings, mut at, mut hidden) =
            (keys.concat(), Substrings::default(), 0, Vec::new());
        for (line, key) in keys.iter().enumerate() {
            substrings.insert(Pattern::new(at, key, Answer::slo(line))).unwrap();
            at += key.len();
        }
        let line = |pattern: Pattern| pattern.answer.place().unwrap();
        substrings.finish(&text, |first, again| hidden.push((line(first), line(again))));
        (substrings, hidden)
    }

    fn line_of(keys: &[&[u8]], value: &[u8]) -> Option<usize> {
        substrings(keys).0.find(value).and_then(|pattern| pattern.answer.place())
    }

    #[test]
    fn the_first_line_wins_wherever_its_key_stands() {
        let keys: [&[u8]; 3] = [b"Googlebot", b"bot", b"Mozilla"];
        assert_eq!(line_of(&keys, b"Mozilla/5.0 (compatible; Googlebot/2.1)"), Some(0));
        assert_eq!(line_of(&keys, b"Mozilla/5.0 (compatible; bingbot/2.0)"), Some(1));
        assert_eq!(line_of(&keys, b"Mozilla/5.0"), Some(2));
        assert_eq!(line_of(&keys, b"mozilla GOOGLEBOT"), None, "case counts");
        assert_eq!(line_of(&keys, b""), None);
        assert_eq!(line_of(&[], b"Mozilla"), None);
        assert_eq!(line_of(&[b"\xff\x00"], b"a\xff\x00"), Some(0), "bytes are bytes");
    }

    #[test]
    fn a_key_that_contains_an_earlier_one_is_named() {
        let (substrings, hidden) = substrings(&[b"bot", b"curl", b"Googlebot", b"cur", b"curl"]);
        assert_eq!(hidden, [(0, 2), (1, 4)]);
        assert_eq!(substrings.find(b"Googlebot").unwrap().answer, Answer::slo(0));
        assert_eq!(substrings.find(b"a cur").unwrap().answer, Answer::slo(3));
    }

    /// The automaton of keys with all 256 bytes takes a KiB for each byte of a key.
    #[test]
    fn the_keys_have_a_bound() {
        let long = vec![b'x'; SUBSTRINGS_BYTES_MAX - 1];
        let mut substrings = Substrings::default();
        for key in [&long[..], b"y"] {
            substrings.insert(Pattern::new(0, &key[..key.len().min(16_000)], Answer::NEXT)).unwrap();
        }
        substrings.key_bytes = SUBSTRINGS_BYTES_MAX;
        assert_eq!(
            substrings.insert(Pattern::new(0, b"z", Answer::NEXT)),
            Err(PolicyErrorKind::SubstringBytes)
        );
    }

    proptest! {
        #[test]
        fn the_first_line_is_found_as_when_each_is_tried(
            keys in prop::collection::vec("[ab]{1,4}|[abc\u{e9}]{1,3}", 0..20),
            values in prop::collection::vec("[abcd\u{e9}]{0,14}", 1..8),
        ) {
            let keys: Vec<&[u8]> = keys.iter().map(String::as_bytes).collect();
            let (substrings, hidden) = substrings(&keys);
            let has = |value: &[u8], key: &[u8]| value.windows(key.len()).any(|part| part == key);
            for value in &values {
                let value = value.as_bytes();
                let found = substrings.find(value).and_then(|pattern| pattern.answer.place());
                prop_assert_eq!(found, keys.iter().position(|key| has(value, key)));
            }
            let never = |line: usize| Some((keys[..line].iter().position(|key| has(keys[line], key))?, line));
            prop_assert_eq!(hidden, (0..keys.len()).filter_map(never).collect::<Vec<_>>());
        }
    }
}
