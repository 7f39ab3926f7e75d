//! The escapes that logs write in place of bytes that would break a line.

use memchr::memchr;

/// How a log escapes bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Escape {
    /// HAProxy's request lines and captures: `#22` is a quote.
    Hash,
    /// nginx's default: `\x22`.
    Backslash,
    /// nginx's `escape=json`: `\"`, `\n`, `\u001F`; and HAProxy's `+E`: `\"`, `\]`.
    Json,
    /// HAProxy's `url_enc`: `%22`.
    Percent,
    /// No escapes.
    None,
}

/// The byte that an escape at the start of a text stands for, and the length of the escape.
type Unescape = fn(&[u8]) -> Option<(u8, usize)>;

impl Escape {
    /// Appends the bytes that a text stands for. An incomplete escape stands for itself.
    pub(super) fn decode(self, mut text: &[u8], out: &mut Vec<u8>) {
        let (mark, escaped): (u8, Unescape) = match self {
            Escape::Hash => (b'#', |text| Some((hex(text.get(1..3)?)?, 3))),
            Escape::Percent => (b'%', |text| Some((hex(text.get(1..3)?)?, 3))),
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

/// RFC 8259, section 7, as far as nginx writes it: it escapes single ASCII bytes.
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
        assert_eq!(decoded(Escape::Json, r#"a\"b\\c\n\u001F/"#), b"a\"b\\c\n\x1F/");
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
        for text in [r"\", r"\x", r"\x2", r"\xg0", r"\y22"] {
            assert_eq!(decoded(Escape::Backslash, text), text.as_bytes());
            assert_eq!(decoded(Escape::Json, text), text.as_bytes());
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
