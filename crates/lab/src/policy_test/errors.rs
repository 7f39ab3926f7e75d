//! Errors in a file of cases: the place, the text there, and the expected text.

use std::fmt;

use serde::Serialize;

use slowlane_core::base::shown;

/// The maximum number of errors that are kept; more are only counted.
const ERRORS_MAX: usize = 100;

/// The number of characters of a bad word that an error repeats.
const QUOTED_CHARS_MAX: usize = 80;

/// One error or warning and its place, counted in lines and characters from 1. Without a line, it concerns the whole
/// file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CaseError {
    pub line: Option<usize>,
    pub column: Option<usize>,
    pub text: String,
}

/// The errors of a file. As an error, there is at least one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CaseErrors {
    /// The first of them.
    pub listed: Vec<CaseError>,
    pub count: usize,
}

impl CaseErrors {
    /// One error about the whole file.
    pub fn of_file(text: String) -> CaseErrors {
        CaseErrors { listed: vec![CaseError { line: None, column: None, text }], count: 1 }
    }

    pub(super) fn add(&mut self, line: usize, column: usize, text: String) {
        self.count += 1;
        if self.listed.len() < ERRORS_MAX {
            self.listed.push(CaseError { line: Some(line), column: Some(column), text });
        }
    }
}

impl fmt::Display for CaseError {
    /// `line:column: message`, without the name of the file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for number in self.line.iter().chain(&self.column) {
            write!(f, "{number}:")?;
        }
        let blank = if self.line.is_some() { " " } else { "" };
        write!(f, "{blank}{}", self.text)
    }
}

/// Puts a word of the file, cut short and safe to display, before a message.
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
        let mut errors = CaseErrors::default();
        for line in 1..=ERRORS_MAX + 7 {
            errors.add(line, 3, "an unterminated quote".to_owned());
        }
        assert_eq!((errors.listed.len(), errors.count), (ERRORS_MAX, ERRORS_MAX + 7));
        assert_eq!(errors.listed[1].to_string(), "2:3: an unterminated quote");
    }
}
