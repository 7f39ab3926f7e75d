//! Wraps: what syslog, Kubernetes, Docker, the journal or a ticket puts before or around a proxy's line.

use std::borrow::Cow;

use memchr::memchr_iter;
use serde::Deserialize;

use crate::access_log::ParseError;
use crate::access_log::line::find;

/// The maximum length of a prefix, such as the prefix that a syslog daemon writes.
const PREFIX_BYTES_MAX: usize = 256;

/// The mark of a message that is in UTF-8 (RFC 5424, section 6.4).
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// Returns the text inside a wrap. None if the line does not have this wrap.
type Strip = for<'l> fn(&'l [u8], &mut Piece) -> Option<Cow<'l, [u8]>>;

/// The part of a line that a container runtime has written as a separate line.
#[derive(Clone, Copy, Debug, Default)]
struct Piece {
    /// Whether the line continues in the next piece of the same stream.
    is_open: bool,
    is_error: bool,
}

/// The wraps that a line may have, with their names.
const WRAPS: [(&str, Strip); 10] = [
    // `<134>`
    ("syslog", |line, _| behind(b"<", b">", line).map(Cow::from)),
    // `<134>1 2009-02-06T12:14:14Z host haproxy 123 - - `
    ("syslog", |line, _| behind_rfc5424(line).map(Cow::from)),
    // `2009-02-06T12:14:14Z `
    ("a date", |line, _| match line {
        [_, _, _, _, b'-', _, _, b'-', _, _, b'T', ..] => behind(b"", b" ", line).map(Cow::from),
        _ => None,
    }),
    // `Feb  6 12:14:14 host haproxy[123]: `
    ("syslog", |line, _| behind(b"", b": ", line).map(Cow::from)),
    // `[pod/web-0/nginx] `
    ("kubectl", |line, _| behind(b"[pod/", b"] ", line).map(Cow::from)),
    // `stdout F ` after a date, or `P` instead of `F` if the line continues
    ("CRI", |line, piece| {
        let &[b's', b't', b'd', third, _, _, b' ', tag, b' ', ref text @ ..] = line else { return None };
        *piece = Piece { is_open: tag == b'P', is_error: third == b'e' };
        Some(text.into())
    }),
    // `{"log":"...\n","stream":"stdout"}`, without `\n` if the line continues
    ("docker", |line, piece| {
        let Envelope { log, stream, .. } = serde_json::from_slice(line).ok()?;
        let mut text = log?.into_bytes();
        let is_open = text.pop_if(|last| *last == b'\n').is_none();
        *piece = Piece { is_open, is_error: stream.is_some_and(|stream| stream == "stderr") };
        Some(text.into())
    }),
    // `{"MESSAGE":"..."}`
    ("the journal", |line, _| {
        let Envelope { message, .. } = serde_json::from_slice(line).ok()?;
        Some(message?.into_bytes().into())
    }),
    // `ticket=5-2001.7 seconds="0.1, 0.2" bytes=3 `, for `[ends] follow`
    ("a ticket", |line, _| {
        const MEASURES: [&[u8]; 5] = [b"cost=", b"ms=", b"bytes=", b"seconds=\"", b"seconds="];
        let end = |begin: &[u8]| if begin.ends_with(b"\"") { &b"\" "[..] } else { b" " };
        let mut rest = behind(b"ticket=", b" ", line)?;
        while let Some(next) = MEASURES.iter().find_map(|begin| behind(begin, end(begin), rest)) {
            rest = next;
        }
        Some(rest.into())
    }),
    // `MESSAGE=` among lines with other fields; a binary message is on separate lines
    ("the journal", |line, _| match line {
        b"MESSAGE" => None,
        _ => Some(line.strip_prefix(b"MESSAGE=").unwrap_or_default().into()),
    }),
];

/// The text after a prefix that starts and ends with these strings.
fn behind<'l>(begin: &[u8], end: &[u8], line: &'l [u8]) -> Option<&'l [u8]> {
    let head = &line[..line.len().min(PREFIX_BYTES_MAX)];
    Some(&line[find(end, head.strip_prefix(begin)?)? + begin.len() + end.len()..])
}

fn behind_rfc5424(line: &[u8]) -> Option<&[u8]> {
    let header = behind(b"<", b">", line)?.strip_prefix(b"1 ")?;
    let data = &header[memchr_iter(b' ', header).nth(4)? + 1..];
    let text = data[structured_data_bytes(data)?..].strip_prefix(b" ")?;
    // If the proxy does not escape its values, a client may end the structured data early.
    let is_sure = data.starts_with(b"-") || find(b"\"] ", text).is_none();
    is_sure.then(|| text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text))
}

/// The length of structured data (RFC 5424, section 6.3): `-`, or one or more of `[id name="value"]`.
fn structured_data_bytes(text: &[u8]) -> Option<usize> {
    if text.starts_with(b"-") {
        return Some(1);
    }
    let (mut is_quoted, mut is_escaped) = (false, false);
    let is_end = |pair: &[u8]| {
        is_quoted ^= pair[0] == b'"' && !is_escaped;
        is_escaped = pair[0] == b'\\' && !is_escaped;
        !is_quoted && pair == b"] "
    };
    Some(text.windows(2).position(is_end).filter(|_| text.starts_with(b"["))? + 1)
}

/// A JSON line of Docker or the journal.
#[derive(Deserialize)]
struct Envelope {
    log: Option<String>,
    stream: Option<String>,
    #[serde(rename = "MESSAGE")]
    message: Option<String>,
}

/// The wraps of a log, outermost first.
#[derive(Clone, Debug, Default)]
pub(super) struct Wraps {
    /// The indexes of the wraps in the table `WRAPS`.
    list: Vec<usize>,
    /// For standard output and for standard error, whether the last piece continues in the next piece.
    is_open: [bool; 2],
}

impl Wraps {
    /// These wraps with one more wrap inside them, in every combination.
    pub(super) fn more(&self) -> impl Iterator<Item = Wraps> {
        let others = (0..WRAPS.len()).filter(|wrap| !self.list.contains(wrap));
        others.map(|wrap| Wraps { list: [&self.list[..], &[wrap]].concat(), is_open: [false; 2] })
    }

    /// The proxy's line inside these wraps. A runtime cuts long lines, and a client could choose the beginning of the
    /// second piece, so no piece is read as a separate line.
    pub(super) fn strip<'l>(&mut self, line: &'l [u8]) -> Result<Cow<'l, [u8]>, ParseError> {
        let (mut text, mut piece) = (Cow::Borrowed(line), Piece::default());
        for (name, strip) in self.list.iter().map(|&wrap| WRAPS[wrap]) {
            let inside = match text {
                Cow::Borrowed(text) => strip(text, &mut piece),
                Cow::Owned(text) => strip(&text, &mut piece).map(|text| text.into_owned().into()),
            };
            text = inside.ok_or(ParseError::NoWrap(name))?;
        }
        let open = &mut self.is_open[usize::from(piece.is_error)];
        let was_open = std::mem::replace(open, piece.is_open);
        match text.is_empty() {
            _ if was_open || piece.is_open => {
                Err(ParseError::NoWrap("a whole line: the runtime split the line"))
            }
            true => Err(ParseError::NoProxyLine),
            false => Ok(text),
        }
    }

    /// The names of the wraps: `, below CRI`.
    pub(super) fn describe(&self) -> String {
        let mut names: Vec<&str> = self.list.iter().map(|&wrap| WRAPS[wrap].0).collect();
        names.dedup();
        names.iter().map(|name| format!(", below {name}")).collect()
    }
}
