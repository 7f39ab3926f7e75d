//! A field of a request, and where to find it in a line.

use std::num::NonZeroUsize;
use std::str::FromStr;

use memchr::memchr;

use crate::access_log::line::{Values, Wanted, find};
use crate::access_log::{Escape, Format, FormatError, Item, REQUEST_LINES, VALUE_BYTES_MAX};

/// A `--field` option, such as `owner=%[var(txn.tenant)]`. The option names a field and the source of the field's
/// value: an item of the format, a JSON key such as `.tenant.id`, or a constant for every request.
///
/// ```
/// use slowlane_lab::access_log::Mapping;
/// assert!("owner=$http_x_owner".parse::<Mapping>().is_ok());
/// assert!("website=shop.example".parse::<Mapping>().is_ok());
/// assert!("owner".parse::<Mapping>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    pub field: String,
    /// The noun of an item, or the constant value.
    pub(super) from: String,
    is_item: bool,
    /// For the `source` field: the number, from the right, of the address that counts in a list.
    pub forwarded: Option<NonZeroUsize>,
}

impl Mapping {
    /// Whether the field is needed to read lines, even if the policy does not use it.
    pub fn is_structural(&self) -> bool {
        ["time", "source", "method"].contains(&&*self.field)
    }
}

impl FromStr for Mapping {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<Mapping, FormatError> {
        let (field, from) = text.split_once('=').ok_or(FormatError::NoMapping)?;
        if field.is_empty() || from.is_empty() {
            return Err(FormatError::NoMapping);
        }
        let is_item = from.starts_with(['%', '$', '.']);
        let from = if from.starts_with(['%', '$']) { Format::item(from)?.noun } else { from.to_owned() };
        Ok(Mapping { field: field.to_owned(), from, is_item, forwarded: None })
    }
}

/// The origin of a field's value: a constant, or an item in the line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    Constant(String),
    Item { number: usize, part: LogPart, escape: Escape },
}

/// The part of an item's value that is used for a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogPart {
    Whole,
    /// One of the captures in `{a|b}`, numbered from 0.
    Capture(usize),
    /// The method of the request line. The variants below are also parts of the request line, except `UriPath`.
    Method,
    Uri,
    Path,
    /// The path of an item that is only a URI, without a request line.
    UriPath,
    /// The host of an absolute URI, which HTTP/2 and forward proxies send.
    Host,
    Version,
}

impl Origin {
    /// None if the format does not have the item.
    pub(super) fn new(noun: &str, part: LogPart, wanted: &mut Wanted<'_>) -> Option<Origin> {
        let (number, item) = wanted.want(noun)?;
        Some(Origin::Item { number, part, escape: item.escape })
    }

    /// The origin of a part of the request line. None if the format does not have that part.
    pub(super) fn of_request_line(part: LogPart, wanted: &mut Wanted<'_>) -> Option<Origin> {
        let of_line = REQUEST_LINES.iter().find_map(|noun| Origin::new(noun, part, wanted));
        match part {
            LogPart::Path => of_line.or_else(|| Origin::new("$request_uri", LogPart::UriPath, wanted)),
            _ => of_line,
        }
    }

    /// The origin of a field: a fixed value, an item of the format, or a part of an item.
    pub(super) fn mapped(mapping: &Mapping, wanted: &mut Wanted<'_>) -> Option<Origin> {
        let noun = mapping.from.as_str();
        if !mapping.is_item {
            return Some(Origin::Constant(noun.to_owned()));
        }
        let part = match noun {
            "%HM" | "$request_method" => Some(LogPart::Method),
            "%HU" | "$request_uri" => Some(LogPart::Uri),
            "%HP" | "$uri" => Some(LogPart::Path),
            "%HV" | "$server_protocol" => Some(LogPart::Version),
            _ => None,
        };
        let capture =
            |prefix: &str| noun.strip_prefix(prefix)?.split(')').next()?.parse().ok().map(LogPart::Capture);
        Origin::new(noun, LogPart::Whole, wanted)
            .or_else(|| Origin::new("%hr", capture("%[capture.req.hdr(")?, wanted))
            .or_else(|| Origin::new("%hs", capture("%[capture.res.hdr(")?, wanted))
            .or_else(|| Origin::of_request_line(part?, wanted))
    }

    /// The value as written in the line.
    pub(super) fn written<'l>(&'l self, values: &Values<'l>) -> Option<&'l [u8]> {
        match self {
            Origin::Constant(text) => Some(text.as_bytes()),
            Origin::Item { number, part, .. } => part.of(values.of(*number)?),
        }
    }

    /// The value as written in the line. None if it is missing, for which proxies write nothing or a hyphen.
    pub(super) fn text<'l>(&'l self, values: &Values<'l>) -> Option<&'l [u8]> {
        self.written(values).filter(|&value| !value.is_empty() && value != b"-")
    }

    /// Appends the decoded value. Returns false if the value is missing.
    pub(super) fn append(&self, values: &Values<'_>, out: &mut Vec<u8>) -> bool {
        let Some(value) = self.text(values) else { return false };
        let value = &value[..value.len().min(4 * VALUE_BYTES_MAX)];
        match self {
            Origin::Constant(_) => out.extend_from_slice(value),
            Origin::Item { escape, .. } => escape.decode(value, out),
        }
        true
    }
}

impl LogPart {
    fn of(self, text: &[u8]) -> Option<&[u8]> {
        match self {
            LogPart::Whole => return Some(text),
            LogPart::Capture(number) => return text.split(|&byte| byte == b'|').nth(number),
            LogPart::UriPath => return text.split(|&byte| byte == b'?').next(),
            _ => {}
        }
        let (method, rest) = split(text, b' ')?;
        if self == LogPart::Method {
            return Some(method);
        }
        let (uri, version) = match split(rest, b' ') {
            Some((uri, version)) => (uri, Some(version)),
            None => (rest, None),
        };
        match self {
            LogPart::Path => uri.split(|&byte| byte == b'?').next(),
            LogPart::Version => version,
            LogPart::Host => {
                let scheme_bytes = find(b"://", &uri[..uri.len().min(16)])?;
                let authority = &uri[scheme_bytes + 3..];
                let end = authority.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#'));
                // In a truncated line, the host may be incomplete.
                let authority = &authority[..end.or(version.map(|_| authority.len()))?];
                authority.rsplit(|&byte| byte == b'@').next()
            }
            _ => Some(uri),
        }
    }
}

/// The text before the first occurrence of a byte, and the text after that byte.
fn split(text: &[u8], byte: u8) -> Option<(&[u8], &[u8])> {
    let at = memchr(byte, text)?;
    Some((&text[..at], &text[at + 1..]))
}

/// The field that an item's own name stands for.
pub(super) fn field(item: &Item) -> Option<&str> {
    if let Some(label) = &item.label {
        return Some(label);
    }
    let noun = item.noun.as_str();
    let is = |start: &str| noun.get(..start.len()).is_some_and(|given| given.eq_ignore_ascii_case(start));
    match noun {
        "%HM" | "%[method]" | "$request_method" => Some("method"),
        "$host" | "$http_host" => Some("website"),
        _ if ["%[req.hdr(host)", "%[req.fhdr(host)", "%[hdr(host)"].into_iter().any(is) => Some("website"),
        // `txn.owner` stands for `owner`. The names of slowlane's own variables contain another dot.
        _ => match noun.strip_prefix("%[var(") {
            Some(variable) => Some(variable.split([')', ',']).next()?.split_once('.')?.1),
            None => ["$slowlane_", "$", "."].iter().find_map(|start| noun.strip_prefix(start)),
        },
    }
}
