//! `end`: keys that are tried one by one, in the order of the file.

use crate::policy::{LIST_LINES_MAX, Pattern, PolicyErrorKind};

/// The ends of values in the order of their lines. The first match wins.
#[derive(Debug, Default)]
pub(in crate::policy) struct List(pub(in crate::policy) Vec<Pattern>);

impl List {
    /// Returns the earlier pattern of the same key, if there is one.
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

#[cfg(test)]
mod tests {
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
}
