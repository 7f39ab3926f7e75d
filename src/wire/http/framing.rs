//! The body of a request: where it ends (RFC 9112, section 6).

/// How the length of a body is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    None,
    Length(u64),
    Chunked,
}

impl Framing {
    /// The length of the body at the beginning of `bytes`, with its framing. `None`: it is not there yet, or never will
    /// be, so that nothing after it can be read.
    ///
    /// ```
    /// use slowlane::wire::http::Framing;
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
        let httparse::Status::Complete((line, size)) = httparse::parse_chunk_size(&bytes[at..]).ok()? else {
            return None;
        };
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

fn trailers(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        let end = at + memchr::memchr(b'\n', &bytes[at..])?;
        let line = bytes[at..end].strip_suffix(b"\r").unwrap_or(&bytes[at..end]);
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
        fn any_bytes_are_skipped_within_their_end(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let length = Framing::Chunked.skip(&bytes);
            prop_assert!(length.is_none_or(|length| length <= bytes.len()));
        }
    }
}
