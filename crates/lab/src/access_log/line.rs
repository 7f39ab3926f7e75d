//! Splits lines by their format.
//!
//! ```text
//! format   %ci : %cp  [ %tr ]␣ … %{+Q}r
//! line     192.0.2.7:4711 [06/Feb/2009:12:14:14.655] … "GET / HTTP/1.1"
//!          ╰───0───╯ ╰1─╯  ╰──────────2──────────╯     ╰─────13─────╯
//! ```
//! A value ends at the first occurrence of the literal after it, so nothing is copied and nothing is tried twice.

use memchr::{memchr, memchr_iter};

use crate::access_log::Escape;
use crate::access_log::format::{Dialect, Format, ITEMS_MAX, Item, LogShape, REQUEST_LINES};
use crate::access_log::json;

/// The values of a line, by item number, up to the first that does not fit. None if the proxy wrote nothing.
#[derive(Debug)]
pub(super) struct Values<'l> {
    pub(super) list: [Option<&'l [u8]>; ITEMS_MAX],
    pub(super) count: usize,
}

impl<'l> Values<'l> {
    pub(super) fn of(&self, item: usize) -> Option<&'l [u8]> {
        self.list[item]
    }

    fn push(&mut self, value: Option<&'l [u8]>) {
        self.list[self.count] = value;
        self.count += 1;
    }
}

/// The wanted items of a format.
pub(super) struct Wanted<'f> {
    pub(super) format: &'f Format,
    /// The number of items up to the last wanted item.
    pub(super) reach: usize,
}

impl<'f> Wanted<'f> {
    pub(super) fn new(format: &'f Format) -> Wanted<'f> {
        Wanted { format, reach: 0 }
    }

    /// Marks an item as wanted, and returns it with its number. None if the format does not have the item.
    pub(super) fn want(&mut self, noun: &str) -> Option<(usize, &'f Item)> {
        let is_it = |item: &Item| item.noun == noun || item.path == noun;
        let number = self.format.items.iter().position(is_it)?;
        self.reach = self.reach.max(number + 1);
        Some((number, &self.format.items[number]))
    }
}

/// Why a line is not a request. The numbers identify items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ParseError {
    /// The literal before this item is missing.
    Before(usize),
    /// The literal after this item is missing.
    After(usize),
    /// This item is not an address.
    Address(usize),
    /// The line continues after the last item.
    Continues,
    /// A client has added quotes to the line, so no value is reliable.
    Quotes,
    NoJson,
    /// JSON has this item twice.
    Twice(usize),
    NoTime,
    NoAddress,
    /// The client is a list of addresses, and no `--forwarded` option says which of them to use.
    List,
    /// The list of addresses is too short to contain the address to use.
    ShortList,
    NoClient,
    /// The client did not send a valid request, so a proxy would not query slowlane about it.
    NoRequest,
    TooLong,
    Binary,
    /// The line lacks a wrap that the other lines have.
    NoWrap(&'static str),
    /// The line is another field of the journal, not a proxy's line.
    NoProxyLine,
}

impl Format {
    /// The values of a line.
    ///
    /// `needed` is the number of items that the line must have. If None, the line must fit to its end, which
    /// distinguishes similar formats.
    pub(super) fn take_apart<'l>(
        &self,
        line: &'l [u8],
        needed: Option<usize>,
    ) -> Result<Values<'l>, ParseError> {
        let mut values = Values { list: [None; ITEMS_MAX], count: 0 };
        if self.dialect == Dialect::Json {
            return self.take_json_apart(line, values);
        }
        let read = self.take_text_apart(line, &mut values);
        if self.quotes.is_some_and(|quotes| memchr_iter(b'"', line).count() != quotes) {
            return Err(ParseError::Quotes);
        }
        match read {
            Err(error) if self.quotes.is_some() || needed.is_none_or(|needed| values.count < needed) => {
                Err(error)
            }
            _ => Ok(values),
        }
    }

    fn take_json_apart<'l>(&self, line: &'l [u8], mut values: Values<'l>) -> Result<Values<'l>, ParseError> {
        // Most lines have their keys in the same order, so each search begins after the last match.
        let (mut next, mut twice) = (0, None);
        let mut take = |path: &[u8], value: &'l [u8]| {
            let mut places = (next..self.items.len()).chain(0..next);
            let Some(place) = places.find(|&place| self.items[place].path.as_bytes() == path) else { return };
            twice = values.list[place].replace(value).map(|_| place).or(twice);
            next = place + 1;
        };
        json::walk(line, &mut take).ok_or(ParseError::NoJson)?;
        values.count = self.items.len();
        twice.map_or(Ok(values), |place| Err(ParseError::Twice(place)))
    }

    fn take_text_apart<'l>(&self, text: &'l [u8], values: &mut Values<'l>) -> Result<(), ParseError> {
        let mut rest = text.strip_prefix(self.before.as_bytes()).ok_or(ParseError::Before(0))?;
        for (number, item) in self.items.iter().enumerate() {
            let Some((value, behind)) = item.value(rest) else {
                // A line that is truncated within the request line is still useful. The common log format has nothing
                // after the number of bytes.
                if !rest.is_empty() && item.may_be_last() {
                    values.push(Some(rest.strip_prefix(b"\"").unwrap_or(rest)));
                }
                let is_address = item.shape == LogShape::Address;
                return Err(if is_address { ParseError::Address(number) } else { ParseError::After(number) });
            };
            values.push(value);
            let after = item.after.as_bytes();
            if number + 1 == self.items.len() {
                let is_end = behind.trim_ascii_end() == after.trim_ascii_end();
                return if is_end { Ok(()) } else { Err(ParseError::Continues) };
            }
            let after = match after {
                [b' ', after @ ..] if item.shape == LogShape::Captures && value.is_none() => after,
                after => after,
            };
            rest = behind.strip_prefix(after).ok_or(ParseError::Before(number + 1))?;
        }
        Ok(())
    }
}

impl Item {
    /// The value at the start of `text`, and the text after that value. None if the value's end is missing.
    fn value<'l>(&self, text: &'l [u8]) -> Option<(Option<&'l [u8]>, &'l [u8])> {
        let after = self.after.as_bytes();
        let (value, behind) = match self.shape {
            LogShape::Captures => return captures(text),
            LogShape::Address => text.split_at(self.address_bytes(text)?),
            LogShape::Quoted if text.starts_with(b"\"") => quoted(&text[1..], after)?,
            LogShape::Number => {
                text.split_at(text.iter().take_while(|&&byte| byte.is_ascii_digit() || byte == b'-').count())
            }
            _ if after.is_empty() => (text, &b""[..]),
            LogShape::List => text.split_at(list_bytes(after, text)?),
            LogShape::BeforeTime => text.split_at(before_time_bytes(text)?),
            _ if after[0] == b'"' && self.escape == Escape::Backslash => {
                text.split_at(unescaped(after, text)?)
            }
            _ => text.split_at(find(after, text)?),
        };
        Some((Some(value), behind))
    }

    fn may_be_last(&self) -> bool {
        REQUEST_LINES.contains(&&*self.noun) || self.noun == "$body_bytes_sent"
    }

    fn address_bytes(&self, text: &[u8]) -> Option<usize> {
        let is_part = |byte: &&u8| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.');
        let is_before_port = self.after.starts_with(':');
        match text.iter().take_while(is_part).count() {
            // A Unix socket has no address.
            0 if text.starts_with(b"unix:") => Some(if is_before_port { 4 } else { 5 }),
            0 => text.starts_with(b"-").then_some(1),
            // The last colon belongs to the port.
            run if is_before_port => text[..run].iter().rposition(|&byte| byte == b':'),
            run => Some(run),
        }
    }
}

/// The text up to the quote that precedes `after`, and the text after that quote.
fn quoted<'l>(text: &'l [u8], after: &[u8]) -> Option<(&'l [u8], &'l [u8])> {
    // HAProxy does not encode the quotes that a client sends in certain values.
    let is_end = |behind: &[u8]| behind.is_empty() || behind.starts_with(after);
    let quote = memchr_iter(b'"', text).find(|quote| is_end(&text[quote + 1..]))?;
    Some((&text[..quote], &text[quote + 1..]))
}

/// The length of the text before the only time like `[06/Feb/2009:12:14:14 +0000] "`. None if there is no such time, or
/// if a client has added another.
fn before_time_bytes(text: &[u8]) -> Option<usize> {
    const TIME_BYTES: usize = "[06/Feb/2009:12:14:14 +0000".len();
    let is_time = |&at: &usize| text.get(at + TIME_BYTES..).is_some_and(|rest| rest.starts_with(b"] \""));
    let mut times = memchr_iter(b'[', text).filter(is_time);
    let at = times.next().filter(|_| times.next().is_none())?;
    text[..at].strip_suffix(b" ").map(<[u8]>::len)
}

/// The position of a literal whose first quote is not escaped.
fn unescaped(literal: &[u8], text: &[u8]) -> Option<usize> {
    let is_escaped = |at: usize| text[..at].iter().rev().take_while(|&&byte| byte == b'\\').count() % 2 == 1;
    memchr_iter(b'"', text).find(|&at| text[at..].starts_with(literal) && !is_escaped(at))
}

/// The length of a list, up to the literal after the list.
fn list_bytes(literal: &[u8], text: &[u8]) -> Option<usize> {
    let is_inside = |begin: &[u8], rest: &[u8]| {
        begin.ends_with(b",") || begin.ends_with(b" :") || rest.starts_with(b" : ")
    };
    let mut places = memchr_iter(*literal.first()?, text).map(|at| text.split_at(at));
    places
        .find(|(begin, rest)| rest.starts_with(literal) && !is_inside(begin, rest))
        .map(|(begin, _)| begin.len())
}

fn captures(text: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    let (open, close): (&[u8], &[u8]) =
        if text.starts_with(b"\"{") { (b"\"{", b"}\"") } else { (b"{", b"}") };
    let Some(inside) = text.strip_prefix(open) else { return Some((None, text)) };
    let (value, behind) = inside.split_at(memchr(b'}', inside)?);
    // A line that is cut off after the brace has no closing quote.
    Some((Some(value), behind.strip_prefix(close)?))
}

/// The position of a literal in `text`.
///
/// This function runs for each item of each line, mostly over few bytes: a prepared searcher would start more slowly.
pub(super) fn find(literal: &[u8], text: &[u8]) -> Option<usize> {
    match literal {
        [only] => text.iter().position(|byte| byte == only),
        [first, others @ ..] => memchr_iter(*first, text).find(|at| text[at + 1..].starts_with(others)),
        [] => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Every value of a line, with its item.
    fn values(format: &str, line: &str) -> Result<Vec<(String, Option<String>)>, ParseError> {
        let format = Format::parse(format).unwrap();
        let values = format.take_apart(line.as_bytes(), None)?.list;
        let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
        Ok(format
            .items
            .iter()
            .zip(values)
            .map(|(item, value)| (item.noun.clone(), value.map(text)))
            .collect())
    }

    fn value(format: &str, line: &str, noun: &str) -> Option<String> {
        let values = values(format, line).unwrap_or_else(|error| panic!("{line:?}: {error:?}"));
        values.into_iter().find(|(given, _)| given == noun).unwrap().1
    }

    const SHORT: &str = "%ci:%cp [%tr] %sq/%bq %hr %hs %{+Q}r";

    #[test]
    fn addresses_have_colons_and_captures_may_be_missing() {
        for (line, address, captures) in [
            ("192.0.2.1:80 [x] 0/0 \"GET / HTTP/1.1\"", "192.0.2.1", None),
            ("2001:db8::1:80 [x] 0/0 {a|} \"GET / HTTP/1.1\"", "2001:db8::1", Some("a|")),
            ("unix:1 [x] 0/0 {a|b} {c} \"GET / HTTP/1.1\"", "unix", Some("a|b")),
        ] {
            assert_eq!(value(SHORT, line, "%ci").as_deref(), Some(address));
            assert_eq!(value(SHORT, line, "%hr").as_deref(), captures);
            assert_eq!(value(SHORT, line, "%r").as_deref(), Some("GET / HTTP/1.1"));
        }
    }

    #[test]
    fn quotes_from_a_client_do_not_end_a_value() {
        let line = "a\"b\"c";
        assert_eq!(
            value("%{+Q}[req.hdr(x)] %ST", &format!("\"{line}\" 404"), "%[req.hdr(x)]").unwrap(),
            line
        );
        assert_eq!(value("\"$http_x\" $status", "\"a\\x22 b\" 404", "$http_x").unwrap(), "a\\x22 b");
    }

    #[test]
    fn a_misfit_names_its_place() {
        let error = |line| values(SHORT, line).unwrap_err();
        assert_eq!(error("192.0.2.1:80 x"), ParseError::After(1));
        assert_eq!(error("192.0.2.1:80 [x"), ParseError::After(2));
        assert_eq!(error("192.0.2.1:80 [x] 0/0 \"GET"), ParseError::After(7));
        assert_eq!(error("192.0.2.1:80 [x] 0/0 \"GET\" and more"), ParseError::Continues);
        assert_eq!(error(""), ParseError::Address(0));
    }

    #[test]
    fn quoted_captures_end_with_their_quote() {
        let line = |rest: &str| format!("192.0.2.1:80 [x] 0/0 {rest}");
        let whole = line("\"{a|b}\" \"{c}\" \"GET / HTTP/1.1\"");
        assert_eq!(value(SHORT, &whole, "%hr").as_deref(), Some("a|b"));
        assert_eq!(value(SHORT, &whole, "%hs").as_deref(), Some("c"));
        for (cut, step) in [("\"{a}", 5), ("\"{a} ", 5), ("\"{a", 5), ("{a} \"{c}", 6), ("\"{a}\" \"{c}", 6)]
        {
            assert_eq!(values(SHORT, &line(cut)), Err(ParseError::After(step)), "{cut}");
        }
    }

    #[test]
    fn a_truncated_request_line_is_still_read() {
        let format = Format::parse(SHORT).unwrap();
        let mut wanted = Wanted::new(&format);
        let (item, _) = wanted.want("%r").unwrap();
        assert_eq!(wanted.reach, item + 1);
        let line = b"192.0.2.1:80 [x] 0/0 \"GET /lon";
        let values = format.take_apart(line, Some(wanted.reach)).unwrap();
        assert_eq!(values.of(item), Some(&b"GET /lon"[..]));
    }

    proptest! {
        #[test]
        fn any_bytes_fit_or_misfit(line in prop::collection::vec(any::<u8>(), 0..200)) {
            for format in Format::known() {
                for needed in [Some(0), Some(format.items.len()), None] {
                    let _ = format.take_apart(&line, needed);
                }
            }
        }

        #[test]
        fn values_without_spaces_are_read_back(
            // A proxy escapes a backslash.
            values_in in prop::collection::vec("[!-~&&[^\\\\]]{1,20}", 3), literal in "( | - |\" \")"
        ) {
            prop_assume!(values_in.iter().all(|value| !value.contains(literal.trim())) || literal == " ");
            let format = format!("$a{literal}$b{literal}$c");
            let line = values_in.join(&literal);
            let read: Vec<_> = values(&format, &line).unwrap().into_iter().map(|(_, value)| value.unwrap()).collect();
            prop_assert_eq!(read, values_in);
        }
    }
}
