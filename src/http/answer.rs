//! An HTTP answer, with a reason or nothing as its body, written to its connection's output (RFC 9110, RFC 9112).

use std::fmt::Display;
use std::io::Write;
use std::time::UNIX_EPOCH;

use httpdate::HttpDate;
use hyper::{StatusCode, Version};

use slowlane_core::base::Timestamp;

/// The header `date`, renewed each second.
#[derive(Clone, Debug)]
pub struct Date {
    second: u64,
    text: String,
}

impl Date {
    /// The value of the `date` header at a given time (RFC 9110, section 5.6.7).
    pub fn at(now: Timestamp) -> Date {
        let since_epoch = now.since_epoch();
        let text = format!("date: {}\r\n", HttpDate::from(UNIX_EPOCH + since_epoch));
        Date { second: since_epoch.as_secs(), text }
    }

    pub fn advance(&mut self, now: Timestamp) {
        if now.since_epoch().as_secs() != self.second {
            *self = Date::at(now);
        }
    }
}

/// An answer that is being written. Header names are in lower case, as in HTTP/2.
#[derive(Debug)]
pub struct HttpAnswer<'o> {
    out: &'o mut Vec<u8>,
    status: StatusCode,
}

impl<'o> HttpAnswer<'o> {
    /// Begins an answer to a request of this HTTP version. `keeps_alive` says whether the connection then stays open.
    ///
    /// ```
    /// use slowlane_core::base::Timestamp;
    /// use slowlane::http::{Date, HttpAnswer, StatusCode, Version};
    /// let (mut out, date) = (Vec::new(), Date::at(Timestamp::from_millis(784_111_777_000)));
    /// HttpAnswer::begin(&mut out, Version::HTTP_11, StatusCode::FORBIDDEN, &date, true).number("retry-after", 3).end();
    /// assert_eq!(
    ///     String::from_utf8(out).unwrap(),
    ///     "HTTP/1.1 403 Forbidden\r\ndate: Sun, 06 Nov 1994 08:49:37 GMT\r\nretry-after: 3\r\ncontent-length: 0\r\n\r\n"
    /// );
    /// ```
    pub fn begin(
        out: &'o mut Vec<u8>,
        version: Version,
        status: StatusCode,
        date: &Date,
        keeps_alive: bool,
    ) -> HttpAnswer<'o> {
        let (version, connection) = match (version, keeps_alive) {
            (Version::HTTP_11, true) => ("HTTP/1.1", ""),
            (Version::HTTP_11, false) => ("HTTP/1.1", "connection: close\r\n"),
            (_, true) => ("HTTP/1.0", "connection: keep-alive\r\n"),
            (_, false) => ("HTTP/1.0", "connection: close\r\n"),
        };
        let reason = status.canonical_reason().unwrap_or_default();
        for part in [version, " ", status.as_str(), " ", reason, "\r\n"] {
            out.extend_from_slice(part.as_bytes());
        }
        out.extend_from_slice(date.text.as_bytes());
        out.extend_from_slice(connection.as_bytes());
        HttpAnswer { out, status }
    }

    /// Adds a header. The value must not contain line breaks.
    pub fn header(self, name: &str, value: impl Display) -> HttpAnswer<'o> {
        for part in [name, ": "] {
            self.out.extend_from_slice(part.as_bytes());
        }
        write!(self.out, "{value}\r\n").expect("a vector takes it");
        self
    }

    /// Adds a header whose text contains no line breaks.
    pub fn text(self, name: &str, value: &str) -> HttpAnswer<'o> {
        for part in [name, ": ", value, "\r\n"] {
            self.out.extend_from_slice(part.as_bytes());
        }
        self
    }

    /// Adds a header with a number.
    pub fn number(self, name: &str, value: u64) -> HttpAnswer<'o> {
        self.text(name, itoa::Buffer::new().format(value))
    }

    /// Ends the answer without a body.
    pub fn end(self) {
        // An answer without content must not state its length (RFC 9110, section 8.6).
        let length: &[u8] =
            if self.status == StatusCode::NO_CONTENT { b"" } else { b"content-length: 0\r\n" };
        self.out.extend_from_slice(length);
        self.out.extend_from_slice(b"\r\n");
    }

    /// Ends the answer with `text` as its body. The answer to HEAD has no body, but states the body's length.
    pub fn end_with(self, text: &str, is_head: bool) {
        let answer = self.number("content-length", text.len() as u64);
        let shown = if is_head { "" } else { text };
        for part in ["\r\n", shown] {
            answer.out.extend_from_slice(part.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(version: Version, keeps_alive: bool, end: impl Fn(HttpAnswer<'_>)) -> String {
        let (mut out, date) = (Vec::new(), Date::at(Timestamp::default()));
        end(HttpAnswer::begin(&mut out, version, StatusCode::BAD_REQUEST, &date, keeps_alive));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_connection_says_that_it_ends_or_that_it_does_not() {
        let has = |version, keeps_alive, line: &str| {
            written(version, keeps_alive, |answer| answer.end()).contains(line)
        };
        assert!(has(Version::HTTP_10, true, "HTTP/1.0 400 Bad Request\r\n"));
        assert!(has(Version::HTTP_10, true, "connection: keep-alive\r\n"));
        assert!(has(Version::HTTP_11, false, "connection: close\r\n"));
        assert!(!has(Version::HTTP_11, true, "connection: "));
    }

    #[test]
    fn a_reason_has_its_length_and_head_sees_none_of_it() {
        let text = written(Version::HTTP_11, true, |answer| answer.end_with("why\n", false));
        assert!(text.ends_with("content-length: 4\r\n\r\nwhy\n"), "{text}");
        let text = written(Version::HTTP_11, true, |answer| answer.end_with("why\n", true));
        assert!(text.ends_with("content-length: 4\r\n\r\n"), "{text}");
    }

    #[test]
    fn a_date_follows_the_clock() {
        let mut date = Date::at(Timestamp::from_millis(1_500));
        assert_eq!(date.text, "date: Thu, 01 Jan 1970 00:00:01 GMT\r\n");
        for (seconds, expected) in [
            (951_868_799, "Tue, 29 Feb 2000 23:59:59 GMT"),
            (951_868_800, "Wed, 01 Mar 2000 00:00:00 GMT"),
            (1_795_410_645, "Mon, 23 Nov 2026 05:10:45 GMT"),
        ] {
            date.advance(Timestamp::from_millis(seconds * 1_000));
            assert_eq!(date.text, format!("date: {expected}\r\n"));
        }
    }
}
