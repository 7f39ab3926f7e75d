//! The place of a field in a line, and the changes that a proxy makes to its value.

use memchr::memchr;

use crate::access_log::escape::Escape;
use crate::access_log::record::VALUE_BYTES_MAX;
use crate::access_log::slots::Slots;

/// The place of a field in a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    Constant(String),
    Text {
        slot: usize,
        escape: Escape,
        cut: Cut,
    },
    /// One of `{a|b}`.
    Capture {
        slot: usize,
        number: usize,
        cut: Cut,
    },
    /// A part of the request line.
    Part {
        slot: usize,
        part: Part,
        escape: Escape,
        cut: Cut,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Method,
    Uri,
    Path,
    /// The host of an absolute URI, which HTTP/2 and forward proxies send.
    Host,
    Version,
}

/// How a proxy changes a Host header before it asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    No,
    /// `field(1,:),lower`, as in the shipped configuration of HAProxy.
    Haproxy,
    /// As nginx computes `$host`.
    Nginx,
}

impl Origin {
    /// Appends the value, if there is one.
    pub(super) fn append(&self, slots: &Slots<'_>, out: &mut Vec<u8>) -> bool {
        let (value, escape, cut) = match self {
            Origin::Constant(text) => {
                out.extend_from_slice(text.as_bytes());
                return true;
            }
            &Origin::Text { slot, escape, cut } => (slots[slot], escape, cut),
            &Origin::Capture { slot, number, cut } => {
                let capture = slots[slot].and_then(|all| all.split(|&byte| byte == b'|').nth(number));
                (capture, Escape::Hash, cut)
            }
            &Origin::Part { slot, part, escape, cut } => {
                (slots[slot].and_then(|line| part.of(line)), escape, cut)
            }
        };
        // Proxies write an absent value as nothing or a hyphen.
        let Some(value) = value.filter(|&value| !value.is_empty() && value != b"-") else { return false };
        let begins = out.len();
        escape.decode(&value[..value.len().min(4 * VALUE_BYTES_MAX)], out);
        cut.apply(begins, out);
        out.len() > begins
    }
}

impl Part {
    fn of(self, line: &[u8]) -> Option<&[u8]> {
        let (method, rest) = line.split_at_checked(memchr(b' ', line)?)?;
        let rest = &rest[1..];
        let end = memchr(b' ', rest);
        let uri = &rest[..end.unwrap_or(rest.len())];
        match self {
            Part::Method => Some(method),
            Part::Uri => Some(uri),
            Part::Path => Some(&uri[..memchr(b'?', uri).unwrap_or(uri.len())]),
            Part::Version => Some(&rest[end? + 1..]),
            Part::Host => {
                let scheme = memchr::memmem::find(&uri[..uri.len().min(16)], b"://")?;
                let authority = &uri[scheme + 3..];
                let end = authority.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#'));
                // In a truncated line the host may be incomplete.
                let authority =
                    &authority[..end.or_else(|| Some(authority.len()).filter(|_| rest.len() > uri.len()))?];
                let user = authority.iter().rposition(|&byte| byte == b'@');
                Some(&authority[user.map_or(0, |user| user + 1)..])
            }
        }
    }
}

impl Cut {
    fn apply(self, begins: usize, out: &mut Vec<u8>) {
        let host = &mut out[begins..];
        let port = match self {
            Cut::No => return,
            Cut::Nginx if host.starts_with(b"[") => memchr(b']', host).map(|bracket| bracket + 1),
            Cut::Haproxy | Cut::Nginx => memchr(b':', host),
        };
        host.make_ascii_lowercase();
        let mut length = port.unwrap_or(host.len());
        if self == Cut::Nginx && length > 0 && host[length - 1] == b'.' {
            length -= 1;
        }
        out.truncate(begins + length);
    }
}
