//! The words of a line: blanks part them, and quotes keep them whole.

use std::iter::{Peekable, Zip};
use std::ops::RangeFrom;
use std::str::Chars;

use crate::policy_test::mistake::Fault;

/// A word or a mark, and its columns, counted in characters from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) column: usize,
    /// The column behind it.
    pub(super) end: usize,
    pub(super) piece: Piece,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Word(String),
    Comma,
    Semicolon,
}

impl Piece {
    /// The text, as an error repeats it.
    pub(super) fn text(&self) -> &str {
        match self {
            Piece::Word(text) => text,
            Piece::Comma => ",",
            Piece::Semicolon => ";",
        }
    }
}

type Letters<'l> = Peekable<Zip<Chars<'l>, RangeFrom<usize>>>;

/// The tokens of a line up to its comment, or the column of a fault.
///
/// A comment begins with a `#` before a word. Between double quotes, `\"` is a quote and `\\` a backslash.
pub(super) fn tokens(line: &str) -> Result<Vec<Token>, (usize, Fault)> {
    let mut tokens = Vec::new();
    let mut letters = line.chars().zip(1..).peekable();
    while let Some(&(letter, column)) = letters.peek() {
        let piece = match letter {
            '#' => break,
            ' ' | '\t' => None,
            ',' => Some(Piece::Comma),
            ';' => Some(Piece::Semicolon),
            _ => {
                let (text, length) = word(&mut letters).map_err(|fault| (column, fault))?;
                tokens.push(Token { column, end: column + length, piece: Piece::Word(text) });
                continue;
            }
        };
        letters.next();
        tokens.extend(piece.map(|piece| Token { column, end: column + 1, piece }));
    }
    Ok(tokens)
}

/// Whether a word cannot hold this letter without quotes.
pub(super) fn needs_quotes(letter: char) -> bool {
    matches!(letter, ' ' | '\t' | ',' | ';' | '"')
}

/// The text of a word, and the number of its characters in the line.
fn word(letters: &mut Letters<'_>) -> Result<(String, usize), Fault> {
    let (mut text, mut length) = (String::new(), 0);
    while let Some((letter, _)) = letters.next_if(|&(letter, _)| letter == '"' || !needs_quotes(letter)) {
        length += 1;
        match letter {
            '"' => length += quoted(letters, &mut text)?,
            letter => text.push(letter),
        }
    }
    Ok((text, length))
}

/// Reads on to the closing quote, and gives the number of characters up to it.
fn quoted(letters: &mut Letters<'_>, text: &mut String) -> Result<usize, Fault> {
    let mut length = 0;
    while let Some((letter, _)) = letters.next() {
        length += 1;
        match letter {
            '"' => return Ok(length),
            '\\' => {
                let escaped = letters.next_if(|&(next, _)| next == '"' || next == '\\');
                length += usize::from(escaped.is_some());
                text.push(escaped.map_or('\\', |(next, _)| next));
            }
            letter => text.push(letter),
        }
    }
    Err(Fault::OpenQuote)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Vec<(usize, String)> {
        let tokens = tokens(line).unwrap();
        tokens.into_iter().map(|token| (token.column, token.piece.text().to_owned())).collect()
    }

    #[test]
    fn words_have_their_columns_in_characters() {
        let owned = |column, text: &str| (column, text.to_owned());
        assert_eq!(read("owner=café \t-> 0"), [owned(1, "owner=café"), owned(13, "->"), owned(16, "0")]);
        assert_eq!(
            read("a,b;c"),
            [owned(1, "a"), owned(2, ","), owned(3, "b"), owned(4, ";"), owned(5, "c")]
        );
        assert_eq!(read(" # all; of it"), []);
        assert_eq!(read("a#b #c"), [owned(1, "a#b")]);
    }

    #[test]
    fn quotes_keep_a_value_whole() {
        assert_eq!(
            read(r#"agent="a; b, \"c\" \\ \d" x"#),
            [(1, r#"agent=a; b, "c" \ \d"#.into()), (27, "x".into())]
        );
        assert_eq!(tokens(r#"a b="c"#), Err((3, Fault::OpenQuote)));
        assert_eq!(read(r#"path=\d+"#), [(1, r"path=\d+".into())]);
    }
}
