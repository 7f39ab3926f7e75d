//! Text for people to read: safe to display, cut to a length, with plurals, and in columns.

use std::fmt::{self, Display, Write};

/// Displays bytes from any source as one line of text.
///
/// Letters of any script stay unchanged. Control characters, invisible characters, direction marks and invalid UTF-8
/// become escapes. A backslash is not escaped, because the text is for people and not for parsers.
///
/// ```
/// use slowlane_core::base::Shown;
/// assert_eq!(Shown(b"caf\xc3\xa9.example").to_string(), "café.example");
/// assert_eq!(Shown(b"\x1b[31mred\r\n").to_string(), r"\u{1b}[31mred\r\n");
/// assert_eq!(Shown("\u{202e}elpmaxe\u{9b}".as_bytes()).to_string(), r"\u{202e}elpmaxe\u{9b}");
/// assert_eq!(Shown(b"\xff^/v[0-9]+\\.").to_string(), r"\xff^/v[0-9]+\.");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a>(pub &'a [u8]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            chunk.valid().chars().try_for_each(|letter| show(letter, f))?;
            chunk.invalid().iter().try_for_each(|byte| write!(f, "\\x{byte:02x}"))?;
        }
        Ok(())
    }
}

/// Cuts long text after this many characters, and adds `…` in place of the rest.
pub fn cut(mut text: String, chars_max: usize) -> String {
    if let Some((end, _)) = text.char_indices().nth(chars_max) {
        text.truncate(end);
        text.push('…');
    }
    text
}

/// Invisible characters that Unicode classes as letters or symbols: Hangul fillers, and Braille without a dot.
const BLANK: [char; 5] = ['\u{115f}', '\u{1160}', '\u{2800}', '\u{3164}', '\u{ffa0}'];

/// Escapes a character as the standard library does. Also escapes [`BLANK`] characters, but no quotes or backslashes.
fn show(letter: char, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match letter {
        '\\' | '"' | '\'' => f.write_char(letter),
        blank if BLANK.contains(&blank) => write!(f, "{}", blank.escape_unicode()),
        letter => write!(f, "{}", letter.escape_debug()),
    }
}

/// Bytes as safe text: [`Shown`] as a `String`.
pub fn shown(bytes: impl AsRef<[u8]>) -> String {
    Shown(bytes.as_ref()).to_string()
}

/// A count and its noun, which takes an `s` unless the count is 1.
///
/// ```
/// use slowlane_core::base::plural;
/// assert_eq!([plural(0, "client"), plural(1, "client"), plural(2, "client")], ["0 clients", "1 client", "2 clients"]);
/// ```
pub fn plural<C: Display + PartialEq + From<u8>>(count: C, noun: &str) -> String {
    format!("{count} {noun}{}", if count == C::from(1) { "" } else { "s" })
}

/// Aligns rows in columns, separated by `gap`. The first row holds the headings.
///
/// `is_text` takes the number and heading of a column. Text columns are aligned left, all others right.
/// Panics on a row with fewer cells than the first; extra cells are left out.
///
/// ```
/// use slowlane_core::base::aligned;
/// let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
/// let rows = [row(["law", "delayed", "who"]), row(["pace", "7", "everybody"])];
/// assert_eq!(aligned(&rows, "  ", |_, heading| heading != "delayed"), "law   delayed  who\npace        7  everybody\n");
/// ```
pub fn aligned(rows: &[Vec<String>], gap: &str, is_text: impl Fn(usize, &str) -> bool) -> String {
    let Some(head) = rows.first() else { return String::new() };
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let columns: Vec<(usize, bool)> =
        head.iter().enumerate().map(|(column, heading)| (width(column), is_text(column, heading))).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&columns).map(|(cell, &(width, is_text))| match is_text {
            true => format!("{cell:<width$}"),
            false => format!("{cell:>width$}"),
        });
        text += cells.collect::<Vec<_>>().join(gap).trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn nothing_that_is_shown_controls_anything(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let shown = Shown(&bytes).to_string();
            prop_assert!(!shown.chars().any(char::is_control), "{:?}", shown);
        }

        /// Names that differ only in invisible characters look different.
        #[test]
        fn nothing_is_there_that_is_not_seen(letter in any::<char>()) {
            let reported = Shown(letter.to_string().as_bytes()).to_string();
            let is_plain = letter == ' ' || !letter.is_whitespace();
            prop_assert!(reported != letter.to_string() || is_plain, "{:?}", letter);
        }

        #[test]
        fn what_can_be_seen_stays_as_it_is(text in "[ -~é日]{0,40}") {
            prop_assert_eq!(Shown(text.as_bytes()).to_string(), text);
        }
    }

    #[test]
    fn names_that_look_alike_are_told_apart() {
        for letter in [
            '\u{ad}',
            '\u{a0}',
            '\u{200b}',
            '\u{200d}',
            '\u{200e}',
            '\u{200f}',
            '\u{2028}',
            '\u{202a}',
            '\u{202e}',
            '\u{2066}',
            '\u{2069}',
            '\u{feff}',
            '\u{fe0f}',
            '\u{e0041}',
            '\u{3164}',
            '\u{115f}',
            '\u{2800}',
            '\u{61c}',
        ] {
            let name = format!("shop{letter}.example");
            assert_eq!(shown(&name), format!("shop{}.example", letter.escape_unicode()));
        }
    }
}
