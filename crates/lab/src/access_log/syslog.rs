//! The prefix that a syslog daemon puts before a line.

use memchr::memchr;

use crate::access_log::before::before;

/// The longest prefix.
const PREFIX_BYTES_MAX: usize = 256;

/// The text after `Feb  6 12:14:14 host haproxy[123]: `, or RFC 5424's `<134>1 2009-02-06T12:14:14Z host haproxy 123 - - `.
pub(super) fn behind_prefix(line: &[u8]) -> Option<&[u8]> {
    let head = &line[..line.len().min(PREFIX_BYTES_MAX)];
    if line.starts_with(b"<") && head.get(memchr(b'>', head)? + 1..)?.starts_with(b"1 ") {
        let mut words = memchr::memchr_iter(b' ', head);
        let data = &line[words.nth(5)? + 1..];
        let text = data[structured_data(data)?..].strip_prefix(b" ")?;
        return Some(text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text));
    }
    let tag = before(b": ", head)?;
    Some(&line[tag.len() + 2..])
}

/// RFC 5424, section 6.4: it marks a message as UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// The length of structured data (RFC 5424, section 6.3): `-`, or one or more of `[id name="value"]`.
fn structured_data(text: &[u8]) -> Option<usize> {
    match text.first()? {
        b'-' => return Some(1),
        b'[' => {}
        _ => return None,
    }
    let (mut at, mut is_quoted) = (0, false);
    loop {
        match *text.get(at)? {
            b'\\' if is_quoted => at += 1,
            b'"' => is_quoted = !is_quoted,
            b']' if !is_quoted && text.get(at + 1) != Some(&b'[') => return Some(at + 1),
            _ => {}
        }
        at += 1;
    }
}
