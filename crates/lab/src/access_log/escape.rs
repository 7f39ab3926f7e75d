//! The escapes that logs contain in place of bytes that would break a line.

use memchr::memchr;

/// How a log escapes bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Escape {
    /// HAProxy's request lines and captures: `#22` is a quote.
    Hash,
    /// HAProxy's `url_enc`: `%22`.
    Percent,
    /// nginx's default: `\x22`. JSON: `\"`, `\n`, `\u001F`. HAProxy's `+E`: `\"`, `\]`. All three also escape the
    /// backslash, so one reader is enough for all.
    Backslash,
    /// No escapes.
    None,
}

impl Escape {
    /// Appends the bytes that `text` stands for. An incomplete escape is kept unchanged.
    pub(super) fn decode(self, mut text: &[u8], out: &mut Vec<u8>) {
        let mark = match self {
            Escape::Hash => b'#',
            Escape::Percent => b'%',
            Escape::Backslash => b'\\',
            Escape::None => return out.extend_from_slice(text),
        };
        while let Some(at) = memchr(mark, text) {
            out.extend_from_slice(&text[..at]);
            text = &text[at + 1..];
            if let Some(letter) = letter(text).filter(|_| self == Escape::Backslash) {
                out.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
                text = &text[5..];
                continue;
            }
            let (byte, length) = match self {
                Escape::Backslash => behind_backslash(text),
                _ => hex(text).map(|byte| (byte, 2)),
            }
            .unwrap_or((mark, 0));
            out.push(byte);
            text = &text[length..];
        }
        out.extend_from_slice(text);
    }
}

/// The byte that an escape stands for, and the length of the escape after its backslash.
fn behind_backslash(text: &[u8]) -> Option<(u8, usize)> {
    Some(match *text.first()? {
        b'n' => (b'\n', 1),
        b'r' => (b'\r', 1),
        b't' => (b'\t', 1),
        b'b' => (8, 1),
        b'f' => (12, 1),
        b'x' => (hex(&text[1..])?, 3),
        byte @ (b'"' | b'\\' | b'/' | b']') => (byte, 1),
        _ => return None,
    })
}

/// The character of `u263A` (RFC 8259, section 7). Proxies do not escape characters that need more than four digits.
fn letter(text: &[u8]) -> Option<char> {
    let digits = text.strip_prefix(b"u")?;
    let letter = u16::from_be_bytes([hex(digits)?, hex(&digits[2..])?]);
    Some(char::from_u32(letter.into()).unwrap_or(char::REPLACEMENT_CHARACTER))
}

/// The byte that two hexadecimal digits stand for.
fn hex(text: &[u8]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let &[high, low, ..] = text else { return None };
    Some((digit(high)? * 16 + digit(low)?) as u8)
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
    fn every_escape_is_decoded() {
        assert_eq!(decoded(Escape::Hash, "a#22b#7Cc"), b"a\"b|c");
        assert_eq!(decoded(Escape::Backslash, r"a\x22b\xFFc"), b"a\"b\xFFc");
        assert_eq!(decoded(Escape::Backslash, r#"a\"b\\c\n\u001F/"#), b"a\"b\\c\n\x1F/");
        assert_eq!(decoded(Escape::Backslash, r"\u003c\u00e9\ud83d!"), "<é\u{FFFD}!".as_bytes());
        assert_eq!(decoded(Escape::Percent, "a%22b%2525+c%C3%A9"), "a\"b%25+cé".as_bytes());
        assert_eq!(decoded(Escape::None, r"a#22\x22%22"), br"a#22\x22%22");
    }

    #[test]
    fn an_incomplete_escape_stands_for_itself() {
        for text in ["#", "#2", "#2g", "##"] {
            assert_eq!(decoded(Escape::Hash, text), text.as_bytes());
            let percent = text.replace('#', "%");
            assert_eq!(decoded(Escape::Percent, &percent), percent.as_bytes());
        }
        for text in [r"\", r"\x", r"\x2", r"\xg0", r"\y22", r"\u", r"\u00", r"\u00g0"] {
            assert_eq!(decoded(Escape::Backslash, text), text.as_bytes());
        }
    }

    proptest! {
        #[test]
        fn text_that_nginx_escapes_reads_back(value in prop::collection::vec(any::<u8>(), 0..60)) {
            let is_plain = |byte: u8| (b' '..=b'~').contains(&byte) && byte != b'"' && byte != b'\\';
            let written = |&byte: &u8| if is_plain(byte) { char::from(byte).to_string() } else { format!("\\x{byte:02X}") };
            let text: String = value.iter().map(written).collect();
            prop_assert_eq!(decoded(Escape::Backslash, &text), value);
        }
    }
}
