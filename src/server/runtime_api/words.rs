//! Splits a line of the Runtime API into commands and words.

use nom::branch::alt;
use nom::character::complete::{anychar, char, none_of, space0};
use nom::combinator::opt;
use nom::multi::{fold_many0, fold_many1, separated_list1};
use nom::sequence::{preceded, terminated};
use nom::{IResult, Parser};

/// The most words of a command, as in HAProxy.
pub(super) const WORDS_MAX: usize = 64;

/// The words of one command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Words {
    words: Vec<String>,
    is_cut: bool,
}

impl Words {
    /// The word at an index, or an empty one.
    pub fn get(&self, place: usize) -> &str {
        self.words.get(place).map_or("", String::as_str)
    }

    /// All words from an index on.
    pub fn from(&self, place: usize) -> &[String] {
        self.words.get(place..).unwrap_or_default()
    }

    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Whether words past the limit were dropped.
    pub fn are_cut(&self) -> bool {
        self.is_cut
    }
}

/// Splits a line, without its line feed, into commands.
///
/// Blanks separate words, and `;` separates commands. A backslash is dropped, and the character after it is literal.
/// Bytes that are not UTF-8 become U+FFFD, which no command contains.
///
/// ```
/// use slowlane::server::runtime_api::commands;
/// let words = |line: &str| commands(line.as_bytes()).iter().map(|words| words.from(0).join("|")).collect::<Vec<_>>();
/// assert_eq!(words("show  table slowlane ; show map\r"), ["show|table|slowlane", "show|map"]);
/// assert_eq!(words(r"get map a\;b\ c ^/v[0-9]\\."), [r"get|map|a;b c|^/v[0-9]\."]);
/// assert_eq!(words(""), [""]);
/// ```
pub fn commands(line: &[u8]) -> Vec<Words> {
    let text = String::from_utf8_lossy(line);
    let commands = separated_list1(char(';'), words).parse(text.trim_end_matches('\r'));
    commands.expect("any text is words between `;`").1
}

fn words(text: &str) -> IResult<&str, Words> {
    preceded(space0, fold_many0(terminated(word, space0), Words::default, Words::with)).parse(text)
}

fn word(text: &str) -> IResult<&str, String> {
    let letter = alt((preceded(char('\\'), opt(anychar)), none_of(" \t;").map(Some)));
    fold_many1(letter, String::new, |mut word, letter| {
        word.extend(letter);
        word
    })
    .parse(text)
}

impl Words {
    /// Adds a word, unless the limit is reached.
    fn with(mut self, word: String) -> Words {
        if self.words.len() < WORDS_MAX {
            self.words.push(word);
        } else {
            self.is_cut = true;
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_have_words(line in prop::collection::vec(any::<u8>(), 0..300)) {
            let commands = commands(&line);
            prop_assert!(!commands.is_empty() && commands.len() <= line.len() + 1);
            for words in commands {
                prop_assert!(words.from(0).len() <= WORDS_MAX);
            }
        }

        #[test]
        fn escaped_words_read_back(words in prop::collection::vec("[ -~]{1,9}", 1..9)) {
            let escape = |word: &String| {
                word.chars().fold(String::new(), |text, letter| match letter {
                    ' ' | ';' | '\\' => text + "\\" + &letter.to_string(),
                    letter => text + &letter.to_string(),
                })
            };
            let line = words.iter().map(escape).collect::<Vec<_>>().join(" ");
            prop_assert_eq!(commands(line.as_bytes()), [Words { words, is_cut: false }]);
        }
    }
}
