//! What logs write in place of bytes that would break a line, and what we write in place of bytes that would break a terminal.

use memchr::memchr;

/// How a log writes bytes that stand for something else in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Escape {
    /// HAProxy's request lines and captures: `#22` is a quote.
    Hash,
    /// nginx's default: `\x22`.
    Backslash,
    /// nginx's `escape=json`: `\"`, `\n`, `\u001F`; and HAProxy's `+E`: `\"`, `\]`.
    Json,
    /// As it came.
    None,
}

/// The byte that the escape stands for which a text begins with, and its length.
type Unescape = fn(&[u8]) -> Option<(u8, usize)>;

impl Escape {
    /// Appends the bytes that a text stands for; what is no escape stands for itself.
    pub(super) fn decode(self, mut text: &[u8], out: &mut Vec<u8>) {
        let (mark, escaped): (u8, Unescape) = match self {
            Escape::Hash => (b'#', |text| Some((hex(text.get(1..3)?)?, 3))),
            Escape::Backslash => (b'\\', |text| match text.get(1)? {
                b'x' => Some((hex(text.get(2..4)?)?, 4)),
                _ => None,
            }),
            Escape::Json => (b'\\', json),
            Escape::None => return out.extend_from_slice(text),
        };
        while let Some(at) = memchr(mark, text) {
            out.extend_from_slice(&text[..at]);
            let (byte, length) = escaped(&text[at..]).unwrap_or((mark, 1));
            out.push(byte);
            text = &text[at + length..];
        }
        out.extend_from_slice(text);
    }
}

/// RFC 8259, section 7, of what nginx writes: it escapes bytes, never anything beyond ASCII.
fn json(text: &[u8]) -> Option<(u8, usize)> {
    Some(match text.get(1)? {
        b'n' => (b'\n', 2),
        b'r' => (b'\r', 2),
        b't' => (b'\t', 2),
        b'b' => (8, 2),
        b'f' => (12, 2),
        b'u' if text.get(2..4)? == b"00" => (hex(text.get(4..6)?)?, 6),
        &byte @ (b'"' | b'\\' | b'/' | b']') => (byte, 2),
        _ => return None,
    })
}

fn hex(digits: &[u8]) -> Option<u8> {
    let digit = |byte: u8| (byte as char).to_digit(16);
    Some((digit(digits[0])? * 16 + digit(digits[1])?) as u8)
}

/// The most of a value that is shown.
const SHOWN_BYTES_MAX: usize = 100;

/// Appends a value that a client has chosen, as printable ASCII without spaces: neither a terminal nor a
/// table takes any of it for its own. What stands for something else is written as `\x1B`.
pub(super) fn show(value: &[u8], out: &mut String) {
    for &byte in value.iter().take(SHOWN_BYTES_MAX) {
        match byte {
            b'\\' | b'"' => out.extend(['\\', 'x', digit(byte >> 4), digit(byte & 15)]),
            b'!'..=b'~' => out.push(byte.into()),
            _ => out.extend(['\\', 'x', digit(byte >> 4), digit(byte & 15)]),
        }
    }
    if value.len() > SHOWN_BYTES_MAX {
        out.push_str("...");
    }
}

/// The same of a text in which spaces may stand.
pub fn shown(text: &str) -> String {
    let mut out = String::new();
    for (number, word) in text.split(' ').enumerate() {
        if number > 0 {
            out.push(' ');
        }
        show(word.as_bytes(), &mut out);
    }
    out
}

fn digit(value: u8) -> char {
    char::from_digit(value.into(), 16).expect("four bits").to_ascii_uppercase()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decoded(escape: Escape, text: &str) -> Vec<u8> {
        let mut out = Vec::new();
        escape.decode(text.as_bytes(), &mut out);
        out
    }

    #[test]
    fn each_program_has_its_escapes() {
        assert_eq!(decoded(Escape::Hash, "a#22b#7Cc"), b"a\"b|c");
        assert_eq!(decoded(Escape::Backslash, r"a\x22b\xFFc"), b"a\"b\xFFc");
        assert_eq!(decoded(Escape::Json, r#"a\"b\\c\n\u001F/"#), b"a\"b\\c\n\x1F/");
        assert_eq!(decoded(Escape::None, r"a#22\x22"), br"a#22\x22");
    }

    #[test]
    fn what_is_no_escape_stands_for_itself() {
        for text in ["#", "#2", "#2g", "##"] {
            assert_eq!(decoded(Escape::Hash, text), text.as_bytes());
        }
        for text in [r"\", r"\x", r"\x2", r"\xg0", r"\y22"] {
            assert_eq!(decoded(Escape::Backslash, text), text.as_bytes());
            assert_eq!(decoded(Escape::Json, text), text.as_bytes());
        }
    }

    #[test]
    fn what_a_terminal_would_obey_is_not_shown() {
        let mut out = String::new();
        show(b"\x1b[31mred\x07 \xe2\x80\xae\\\"<b>", &mut out);
        assert_eq!(out, r"\x1B[31mred\x07\x20\xE2\x80\xAE\x5C\x22<b>");
    }

    proptest! {
        #[test]
        fn whatever_is_shown_is_printable(value in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut out = String::new();
            show(&value, &mut out);
            prop_assert!(out.bytes().all(|byte| byte.is_ascii_graphic()));
        }

        #[test]
        fn what_nginx_escapes_is_read_back(value in prop::collection::vec(any::<u8>(), 0..60)) {
            let mut text = String::new();
            show(&value, &mut text);
            prop_assert_eq!(decoded(Escape::Backslash, &text), value);
        }
    }
}
