//! The body of a request: where it ends (RFC 9112, section 6).

/// How the length of a body is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    None,
    Length(u64),
    Chunked,
}

impl Framing {
    /// The length of the body at the beginning of `bytes`, with its framing. `None`: it is incomplete or invalid, so
    /// nothing after it can be read.
    ///
    /// ```
    /// use slowlane::http::Framing;
    /// assert_eq!(Framing::None.skip(b"GET /check"), Some(0));
    /// assert_eq!(Framing::Length(5).skip(b"hello, GET"), Some(5));
    /// assert_eq!(Framing::Length(5).skip(b"hell"), None);
    /// assert_eq!(Framing::Chunked.skip(b"5\r\nhello\r\n0\r\n\r\nGET"), Some(15));
    /// assert_eq!(Framing::Chunked.skip(b"5\r\nhello\r\n0\r\n"), None);
    /// ```
    pub fn skip(self, bytes: &[u8]) -> Option<usize> {
        match self {
            Framing::None => Some(0),
            Framing::Length(length) => usize::try_from(length).ok().filter(|length| *length <= bytes.len()),
            Framing::Chunked => chunks(bytes),
        }
    }
}

/// The length of all chunks, of the last one, and of the trailers, which are skipped.
fn chunks(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        let (line, size) = size_line(&bytes[at..])?;
        at += line;
        if size == 0 {
            return Some(at + trailers(&bytes[at..])?);
        }
        at = at.checked_add(usize::try_from(size).ok()?)?;
        if bytes.get(at..at.checked_add(2)?)? != b"\r\n" {
            return None;
        }
        at += 2;
    }
}

/// The length of a line with a chunk's size, and that size.
fn size_line(bytes: &[u8]) -> Option<(usize, u64)> {
    let httparse::Status::Complete((length, size)) = httparse::parse_chunk_size(bytes).ok()? else {
        return None;
    };
    // httparse reads a size without digits as 0, and allows a line break in an extension, where other parsers see the
    // beginning of the chunk.
    let is_plain = bytes[0].is_ascii_hexdigit() && memchr::memchr(b'\n', bytes) == Some(length - 1);
    is_plain.then_some((length, size))
}

fn trailers(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        let end = at + memchr::memchr(b'\n', &bytes[at..])?;
        let line = bytes[at..end].strip_suffix(b"\r")?;
        at = end + 1;
        if line.is_empty() {
            return Some(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn chunks_end_where_they_say() {
        for (bytes, length) in [
            (&b"0\r\n\r\n"[..], Some(5)),
            (b"1;name=value\r\na\r\n0\r\nTrailer: x\r\n\r\nGET", Some(34)),
            (b"1\r\nab\r\n0\r\n\r\n", None),
            (b"z\r\n", None),
            (b"\r\n\r\n", None),
            (b";x\r\n\r\n", None),
            (b"0;\nX\r\n\r\n", None),
            (b"2;\nxx\r\nAA\r\n0\r\n\r\n", None),
            (b"0\r\n\n", None),
            (b"0\n\r\n", None),
            (b" 0\r\n\r\n", None),
            (b"0;a=b\r\n\r\n", Some(9)),
            (b"ffffffffffffffff\r\n", None),
            (b"fffffffffffffffff\r\n", None),
            (b"5\r\nhel", None),
            (b"", None),
        ] {
            assert_eq!(Framing::Chunked.skip(bytes), length, "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_in_chunks_is_skipped(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..50), 0..5),
            rest in prop::collection::vec(any::<u8>(), 0..50),
        ) {
            let mut bytes = Vec::new();
            for piece in pieces {
                bytes.extend(format!("{:x}\r\n", piece.len()).into_bytes());
                bytes.extend(piece);
                bytes.extend(b"\r\n");
            }
            bytes.extend(b"0\r\n\r\n");
            let length = bytes.len();
            for short in 0..length {
                prop_assert_eq!(Framing::Chunked.skip(&bytes[..short]), None);
            }
            bytes.extend(rest);
            prop_assert_eq!(Framing::Chunked.skip(&bytes), Some(length));
        }

        #[test]
        fn whatever_is_skipped_has_a_size_in_each_line_and_ends_with_a_blank_one(
            pieces in prop::collection::vec(
                prop::sample::select(vec!["0", "1", "2", "a", "x", ";", "\r\n", "\r\n", "\n", "\r", " ", "0\r\n\r\n"]),
                0..12,
            ),
        ) {
            let bytes = pieces.concat().into_bytes();
            if let Some(length) = Framing::Chunked.skip(&bytes) {
                prop_assert!(bytes[..length].ends_with(b"\r\n\r\n"));
                prop_assert!(bytes[0].is_ascii_hexdigit());
                prop_assert_eq!(Framing::Chunked.skip(&bytes[..length - 1]), None);
                let first = bytes.iter().position(|&byte| byte == b'\n').unwrap();
                prop_assert_eq!(bytes[first - 1], b'\r');
            }
        }
    }
}
