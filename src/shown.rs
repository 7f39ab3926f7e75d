//! Text from clients as it may be shown: whatever a terminal would obey is written as an escape.

use std::fmt::{self, Write};

/// Bytes of whatever origin, in one line.
///
/// Letters of any script stay as they are. What controls a terminal, what is not seen and what turns the direction of
/// writing becomes an escape, and so does what is no UTF-8. A backslash stays: this is to be read, not to be read back.
///
/// ```
/// use slowlane::shown::Shown;
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

/// The standard library knows what can be seen; it escapes quotes as well, which is of no use here.
fn show(letter: char, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match letter {
        '\\' | '"' | '\'' => f.write_char(letter),
        letter => write!(f, "{}", letter.escape_debug()),
    }
}

/// The same as a text of its own.
pub fn shown(bytes: impl AsRef<[u8]>) -> String {
    Shown(bytes.as_ref()).to_string()
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

        #[test]
        fn what_can_be_seen_stays_as_it_is(text in "[ -~é日]{0,40}") {
            prop_assert_eq!(Shown(text.as_bytes()).to_string(), text);
        }
    }
}
