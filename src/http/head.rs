//! The head of a request (request line and headers), and the framing of its body (RFC 9112, sections 2 to 6).

use std::mem::MaybeUninit;
use std::ops::Range;
use std::str;

use arrayvec::ArrayVec;
use hyper::Version;
use thiserror::Error;

/// The maximum length of a head. It exceeds the limits of proxies for their clients (nginx 32 KiB, HAProxy 16 KiB).
pub const HEAD_BYTES_MAX: usize = 64 * 1024;

/// The maximum number of headers of a request.
pub const HEADERS_MAX: usize = 100;

/// The reason why bytes are not accepted as a request. Nothing after them can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    #[error("this is not an HTTP request")]
    Malformed,
    #[error("the body's length is ambiguous")]
    Ambiguous,
    #[error("this is {0}, not HTTP: this port is for nginx and other proxies that query slowlane over HTTP")]
    Foreign(&'static str),
    #[error("the head has more than {HEAD_BYTES_MAX} bytes or {HEADERS_MAX} headers")]
    TooLarge,
}

/// A range of bytes in a head. It fits in two `u16`, because a head has at most [`HEAD_BYTES_MAX`] bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    begin: u16,
    length: u16,
}

/// Room for the positions of the names and values of a head's headers.
#[derive(Clone, Debug, Default)]
pub struct HeaderSlots(ArrayVec<(Span, Span), HEADERS_MAX>);

/// A head, borrowed from the bytes of its connection. Header names are in lower case.
#[derive(Clone, Copy, Debug)]
pub struct HttpHead<'a> {
    bytes: &'a [u8],
    headers: &'a [(Span, Span)],
    pub method: &'a [u8],
    /// The target as written.
    pub target: &'a [u8],
    /// The path of the target, exactly as written.
    pub path: &'a [u8],
    /// The query of the target, without its `?`.
    pub query: Option<&'a [u8]>,
    pub version: Version,
    pub framing: Framing,
    /// Whether the client may send more requests on the same connection.
    pub keeps_alive: bool,
}

impl<'a> HttpHead<'a> {
    /// The head at the beginning of `bytes`, and the bytes after it; returns `None` if the head is incomplete. Header
    /// names are converted to lower case in place, and `room` holds the positions of the headers.
    ///
    /// ```
    /// use slowlane::http::{HeaderSlots, HttpHead};
    /// let mut bytes = *b"GET /check?hold=off HTTP/1.1\r\nX-Slowlane-Source: 192.0.2.1\r\n\r\nmore";
    /// let mut room = HeaderSlots::default();
    /// let (head, rest) = HttpHead::cut(&mut bytes, &mut room).unwrap().unwrap();
    /// assert_eq!((head.method, head.path, head.query), (&b"GET"[..], &b"/check"[..], Some(&b"hold=off"[..])));
    /// assert_eq!(head.header("x-slowlane-source"), Some(&b"192.0.2.1"[..]));
    /// assert_eq!(rest, b"more");
    /// ```
    ///
    /// # Errors
    /// The bytes are not a request, the end of the body is ambiguous, or the head is too large.
    pub fn cut(
        bytes: &'a mut [u8],
        room: &'a mut HeaderSlots,
    ) -> Result<Option<(HttpHead<'a>, &'a [u8])>, Refusal> {
        let HeaderSlots(headers) = room;
        let mut parsed = [const { MaybeUninit::uninit() }; HEADERS_MAX];
        let mut request = httparse::Request::new(&mut []);
        let length = match request.parse_with_uninit_headers(bytes, &mut parsed) {
            Ok(httparse::Status::Complete(length)) if length <= HEAD_BYTES_MAX => length,
            Ok(httparse::Status::Partial) if bytes.len() < HEAD_BYTES_MAX => return Ok(None),
            Ok(_) | Err(httparse::Error::TooManyHeaders) => return Err(Refusal::TooLarge),
            Err(_) => return Err(refusal(bytes)),
        };
        let span = |part: &[u8]| Span::of(part, bytes);
        let [method, target] =
            [request.method, request.path].map(|part| span(part.unwrap_or_default().as_bytes()));
        let version = if request.version == Some(1) { Version::HTTP_11 } else { Version::HTTP_10 };
        headers.clear();
        headers
            .extend(request.headers.iter().map(|header| (span(header.name.as_bytes()), span(header.value))));
        for (name, _) in &*headers {
            bytes[name.range()].make_ascii_lowercase();
        }
        let (bytes, rest) = bytes.split_at(length);
        let [method, target] = [method, target].map(|span| &bytes[span.range()]);
        let (path, query) = path_and_query(target);
        let (framing, keeps_alive) = (Framing::None, false);
        let mut head =
            HttpHead { bytes, headers, method, target, path, query, version, framing, keeps_alive };
        head.read_framing()?;
        Ok(Some((head, rest)))
    }

    /// Names and values, in the order of arrival.
    pub fn headers(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let bytes = self.bytes;
        self.headers.iter().map(move |(name, value)| (&bytes[name.range()], &bytes[value.range()]))
    }

    /// The first value of the header `name`, which must be in lower case.
    pub fn header(&self, name: &str) -> Option<&'a [u8]> {
        self.all(name).next()
    }

    /// All values of the header `name`, which must be in lower case.
    pub fn all(&self, name: &str) -> impl DoubleEndedIterator<Item = &'a [u8]> {
        let bytes = self.bytes;
        let has_name = move |header: &&'a (Span, Span)| &bytes[header.0.range()] == name.as_bytes();
        self.headers.iter().filter(has_name).map(move |(_, value)| &bytes[value.range()])
    }

    /// Reads the framing of the body. Refuses two lengths, a length with chunks, or a coding other than chunks: other
    /// programs may see the end of the body elsewhere, so a client could hide a request in the body (RFC 9112, sections
    /// 6.3 and 11.2).
    fn read_framing(&mut self) -> Result<(), Refusal> {
        let (mut has_close, mut has_keep_alive) = (false, false);
        let mut framing = Framing::None;
        for (name, value) in self.headers() {
            match name {
                b"content-length" => {
                    let length = length(value).ok_or(Refusal::Malformed)?;
                    if std::mem::replace(&mut framing, Framing::Length(length)) != Framing::None {
                        return Err(Refusal::Ambiguous);
                    }
                }
                b"transfer-encoding" => {
                    let is_chunked =
                        value.eq_ignore_ascii_case(b"chunked") && self.version == Version::HTTP_11;
                    let has_other = std::mem::replace(&mut framing, Framing::Chunked) != Framing::None;
                    if !is_chunked || has_other {
                        return Err(Refusal::Ambiguous);
                    }
                }
                b"connection" => {
                    for option in value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
                        has_close |= option.eq_ignore_ascii_case(b"close");
                        has_keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
                    }
                }
                _ => {}
            }
        }
        // In HTTP/1.1, connections persist by default (RFC 9112, section 9.3).
        self.keeps_alive = !has_close && (self.version == Version::HTTP_11 || has_keep_alive);
        self.framing = framing;
        Ok(())
    }
}

impl Span {
    /// The position of a slice within the head from which it is borrowed. The slice ends within [`HEAD_BYTES_MAX`].
    fn of(part: &[u8], whole: &[u8]) -> Span {
        // An empty value may be borrowed from anywhere.
        if part.is_empty() {
            return Span::default();
        }
        let begin = part.as_ptr().addr() - whole.as_ptr().addr();
        Span { begin: begin as u16, length: part.len() as u16 }
    }

    fn range(self) -> Range<usize> {
        let begin = usize::from(self.begin);
        begin..begin + usize::from(self.length)
    }
}

/// The path and the query of a target. A proxy may send the target as a whole URI (RFC 9112, section 3.2.2).
fn path_and_query(target: &[u8]) -> (&[u8], Option<&[u8]>) {
    let begin = if target.first() == Some(&b'/') { 0 } else { after_authority(target) };
    let target = &target[begin..];
    let target = memchr::memchr(b'#', target).map_or(target, |end| &target[..end]);
    match memchr::memchr(b'?', target) {
        Some(at) => (&target[..at], Some(&target[at + 1..])),
        None => (target, None),
    }
}

/// The length of the scheme and the authority at the beginning of a target; 0 without them.
fn after_authority(target: &[u8]) -> usize {
    let Some(scheme) = memchr::memmem::find(target, b"://") else { return 0 };
    if target[..scheme].iter().any(|byte| b"/?#".contains(byte)) {
        return 0;
    }
    let begin = scheme + b"://".len();
    let length = target[begin..].iter().position(|byte| b"/?#".contains(byte));
    length.map_or(target.len(), |length| begin + length)
}

/// Recognises other protocols by their first bytes: an SPOP frame shorter than 16 MiB begins with a zero byte, and a
/// TLS connection with a handshake record.
fn refusal(bytes: &[u8]) -> Refusal {
    match bytes {
        [0, ..] => Refusal::Foreign("SPOP"),
        [0x16, 3, ..] => Refusal::Foreign("TLS"),
        _ => Refusal::Malformed,
    }
}

/// Reads a length, which must consist of digits only, so `+5` and `5, 5` are refused.
fn length(value: &[u8]) -> Option<u64> {
    let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    str::from_utf8(value).ok().filter(|_| is_number)?.parse().ok()
}

/// The framing of a body: no body, a body of known length, or chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    None,
    Length(u64),
    Chunked,
}

impl Framing {
    /// The length of the body at the beginning of `bytes`, including its framing. `None` if the body is incomplete or
    /// invalid, so that nothing after it can be read.
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

/// The length of a chunked body: its chunks, the empty last chunk, and the trailers, whose contents are ignored.
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

/// The length of the line that states a chunk's size, and the size itself.
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

    fn refusal(text: &str) -> Option<Refusal> {
        HttpHead::cut(&mut text.to_owned().into_bytes(), &mut HeaderSlots::default()).err()
    }

    #[test]
    fn who_speaks_another_protocol_is_told_so() {
        let reported =
            |bytes: &[u8]| HttpHead::cut(&mut bytes.to_vec(), &mut HeaderSlots::default()).unwrap_err();
        assert_eq!(reported(b"\0\0\x01\x2c\x01\0\0\0\x01\0\0"), Refusal::Foreign("SPOP"));
        assert_eq!(reported(b"\x16\x03\x01\x02"), Refusal::Foreign("TLS"));
        assert_eq!(reported(b"\x16oh"), Refusal::Malformed);
        let text =
            "this is SPOP, not HTTP: this port is for nginx and other proxies that query slowlane over HTTP";
        assert_eq!(Refusal::Foreign("SPOP").to_string(), text);
    }

    #[test]
    fn names_are_in_lower_case_and_values_as_they_are() {
        let mut bytes =
            b"GET / HTTP/1.1\r\nX-Slowlane-API-Key:  Abc \r\nEmpty:\r\nx-slowlane-api-key: 2\r\n\r\n"
                .to_vec();
        let mut room = HeaderSlots::default();
        let (head, _) = HttpHead::cut(&mut bytes, &mut room).unwrap().unwrap();
        let all: Vec<_> = head.headers().collect();
        let expected =
            [(&b"x-slowlane-api-key"[..], &b"Abc"[..]), (b"empty", b""), (b"x-slowlane-api-key", b"2")];
        assert_eq!(all, expected);
        assert_eq!(head.header("x-slowlane-api-key"), Some(&b"Abc"[..]));
        assert_eq!(head.all("x-slowlane-api-key").next_back(), Some(&b"2"[..]));
    }

    #[test]
    fn the_target_has_several_forms() {
        let cut = |target: &str| {
            let mut bytes = format!("GET {target} HTTP/1.1\r\n\r\n").into_bytes();
            let mut room = HeaderSlots::default();
            let (head, _) = HttpHead::cut(&mut bytes, &mut room).unwrap().unwrap();
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            (text(head.path), head.query.map(text))
        };
        for (target, path, query) in [
            ("/check", "/check", None),
            ("/check?", "/check", Some("")),
            ("/check?a=b?c#d?e", "/check", Some("a=b?c")),
            ("/check#?a", "/check", None),
            ("http://proxy.example/check?hold=off", "/check", Some("hold=off")),
            ("http://proxy.example", "", None),
            ("http://proxy.example?a", "", Some("a")),
            ("/check/http://other.example/check", "/check/http://other.example/check", None),
            ("*", "*", None),
            ("proxy.example:443", "proxy.example:443", None),
        ] {
            assert_eq!(cut(target), (path.to_owned(), query.map(str::to_owned)), "{target}");
        }
    }

    #[test]
    fn a_connection_is_kept_as_the_version_and_the_client_say() {
        for (rest, keeps_alive) in [
            ("HTTP/1.1\r\n\r\n", true),
            ("HTTP/1.1\r\nConnection: Close\r\n\r\n", false),
            ("HTTP/1.1\r\nConnection: te, close\r\n\r\n", false),
            ("HTTP/1.1\r\nConnection: keep-alive\r\nConnection: close\r\n\r\n", false),
            ("HTTP/1.0\r\n\r\n", false),
            ("HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", true),
            ("HTTP/1.0\r\nConnection: close, keep-alive\r\n\r\n", false),
            ("HTTP/1.0\r\nConnection: close\r\nConnection: keep-alive\r\n\r\n", false),
        ] {
            let mut bytes = format!("GET / {rest}").into_bytes();
            let mut room = HeaderSlots::default();
            let (head, _) = HttpHead::cut(&mut bytes, &mut room).unwrap().unwrap();
            assert_eq!(head.keeps_alive, keeps_alive, "{rest:?}");
        }
    }

    #[test]
    fn a_body_whose_end_is_not_clear_is_refused() {
        for (headers, expected) in [
            ("Content-Length: 5\r\n", None),
            ("Transfer-Encoding: Chunked\r\n", None),
            ("Content-Length: +5\r\n", Some(Refusal::Malformed)),
            ("Content-Length: 5, 5\r\n", Some(Refusal::Malformed)),
            ("Content-Length:\r\n", Some(Refusal::Malformed)),
            ("Content-Length: 99999999999999999999\r\n", Some(Refusal::Malformed)),
            ("Content-Length: 5\r\nContent-Length: 5\r\n", Some(Refusal::Ambiguous)),
            ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", Some(Refusal::Ambiguous)),
            ("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", Some(Refusal::Ambiguous)),
            ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", Some(Refusal::Ambiguous)),
            ("Transfer-Encoding: gzip, chunked\r\n", Some(Refusal::Ambiguous)),
            ("Transfer-Encoding: identity\r\n", Some(Refusal::Ambiguous)),
            ("Content-Length : 5\r\n", Some(Refusal::Malformed)),
            (" Content-Length: 5\r\n", Some(Refusal::Malformed)),
        ] {
            assert_eq!(refusal(&format!("POST / HTTP/1.1\r\n{headers}\r\n")), expected, "{headers:?}");
        }
        let old = "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(refusal(old), Some(Refusal::Ambiguous));
    }

    #[test]
    fn a_head_has_its_limits() {
        let many = |count: usize| format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(count));
        assert_eq!(
            [refusal(&many(HEADERS_MAX)), refusal(&many(HEADERS_MAX + 1))],
            [None, Some(Refusal::TooLarge)]
        );
        let frame = "GET / HTTP/1.1\r\nA: \r\n\r\n".len();
        let long = |bytes: usize| format!("GET / HTTP/1.1\r\nA: {}\r\n\r\n", "b".repeat(bytes - frame));
        assert_eq!(refusal(&long(HEAD_BYTES_MAX)), None);
        assert_eq!(refusal(&long(HEAD_BYTES_MAX + 1)), Some(Refusal::TooLarge));
        let endless = format!("GET / HTTP/1.1\r\nA: {}", "b".repeat(HEAD_BYTES_MAX));
        assert_eq!(refusal(&endless), Some(Refusal::TooLarge));
    }

    proptest! {
        #[test]
        fn a_head_is_incomplete_until_its_last_byte(
            names in prop::collection::vec("[A-Za-z0-9-]{1,20}", 0..8),
            value in "[ -~]{0,30}",
        ) {
            let known = |name: &String| ["content-length", "transfer-encoding"].contains(&name.to_lowercase().as_str());
            prop_assume!(!names.iter().any(known));
            let headers: String = names.iter().map(|name| format!("{name}: {value}\r\n")).collect();
            let mut bytes = format!("GET /check HTTP/1.1\r\n{headers}\r\n").into_bytes();
            let (whole, mut room) = (bytes.len(), HeaderSlots::default());
            for short in 0..whole {
                prop_assert!(matches!(HttpHead::cut(&mut bytes[..short], &mut room), Ok(None)));
            }
            bytes.extend(b"GET");
            let (head, rest) = HttpHead::cut(&mut bytes, &mut room).unwrap().unwrap();
            prop_assert_eq!(rest, b"GET");
            let reported: Vec<_> = head.headers().map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
            let expected: Vec<_> = names
                .iter()
                .map(|name| (name.to_lowercase().into_bytes(), value.trim_matches([' ', '\t']).as_bytes().to_vec()))
                .collect();
            prop_assert_eq!(reported, expected);
        }

        #[test]
        fn any_bytes_are_read_or_refused(
            pieces in prop::collection::vec(
                prop::sample::select(vec![
                    "/", "?", "#", "a", "://", "é", ":", "\r\n", "\n", "\r", " ", "\t", "A: b\r\n", "A:\r\n",
                    "Connection: close\r\n", "Content-Length: 1\r\n", "Transfer-Encoding: chunked\r\n",
                ]),
                0..12,
            ),
            is_whole in any::<bool>(),
        ) {
            let (line, end) = if is_whole { (" HTTP/1.1\r\n", "\r\n") } else { ("", "") };
            let (target, headers) = pieces.split_at(pieces.len() / 2);
            let text = format!("GET {}{line}{}{end}", target.concat(), headers.concat());
            let mut bytes = text.into_bytes();
            let (whole, mut room) = (bytes.len(), HeaderSlots::default());
            if let Ok(Some((head, rest))) = HttpHead::cut(&mut bytes, &mut room) {
                prop_assert!(rest.len() < whole);
                prop_assert_eq!(head.method, b"GET");
                prop_assert!(!head.path.contains(&b'?') && !head.target.contains(&b'\n'));
                for (name, value) in head.headers() {
                    prop_assert!(!name.contains(&b'\n') && !value.contains(&b'\n'));
                }
            }
        }
    }

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
