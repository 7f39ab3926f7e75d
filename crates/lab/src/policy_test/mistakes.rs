//! Mistakes in a file of cases: the place, the text there, and the expected text.

use std::fmt;

use serde::Serialize;

use slowlane_core::base::shown::shown;

/// The most mistakes of a file that are kept; more are only counted.
const MISTAKES_MAX: usize = 100;

/// Characters of a bad word that are repeated in an error.
const QUOTED_CHARS_MAX: usize = 80;

/// One mistake or doubt and its place, counted in lines and characters from 1. Without a line, it is the whole file's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mistake {
    pub line: Option<usize>,
    pub column: Option<usize>,
    pub text: String,
}

/// The mistakes of a file. As an error they are at least one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mistakes {
    /// The first of them.
    pub listed: Vec<Mistake>,
    pub count: usize,
}

impl Mistakes {
    /// One mistake, of the whole file.
    pub fn of_file(text: String) -> Mistakes {
        Mistakes { listed: vec![Mistake { line: None, column: None, text }], count: 1 }
    }

    pub(super) fn add(&mut self, line: usize, column: usize, text: String) {
        self.count += 1;
        if self.listed.len() < MISTAKES_MAX {
            self.listed.push(Mistake { line: Some(line), column: Some(column), text });
        }
    }
}

impl fmt::Display for Mistake {
    /// `line:column: message`, without the name of the file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for number in self.line.iter().chain(&self.column) {
            write!(f, "{number}:")?;
        }
        let blank = if self.line.is_some() { " " } else { "" };
        write!(f, "{blank}{}", self.text)
    }
}

/// A word of the file, cut short and safe to show, before a message.
pub(super) fn quoted(word: &str) -> String {
    let dots = if word.chars().nth(QUOTED_CHARS_MAX).is_some() { "…" } else { "" };
    let begin: String = word.chars().take(QUOTED_CHARS_MAX).collect();
    format!("\"{}{dots}\": ", shown(begin))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_word_is_cut_and_cannot_control_a_terminal() {
        let long = "é".repeat(QUOTED_CHARS_MAX + 1);
        assert_eq!(quoted(&long), format!("\"{}…\": ", "é".repeat(QUOTED_CHARS_MAX)));
        assert_eq!(quoted("\u{1b}[31m"), "\"\\u{1b}[31m\": ");
    }

    #[test]
    fn mistakes_beyond_the_most_are_counted() {
        let mut mistakes = Mistakes::default();
        for line in 1..=MISTAKES_MAX + 7 {
            mistakes.add(line, 3, "a quote without its end".to_owned());
        }
        assert_eq!((mistakes.listed.len(), mistakes.count), (MISTAKES_MAX, MISTAKES_MAX + 7));
        assert_eq!(mistakes.listed[1].to_string(), "2:3: a quote without its end");
    }
}
