//! A log format: the text that a proxy writes for each request, as items with literals between them.

use thiserror::Error;

use crate::access_log::Escape;

/// The proxy in whose language a format is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// `%ci`, `%[src]`
    Haproxy,
    /// `$remote_addr`
    Nginx,
    /// JSON: values by their keys, in any order.
    Json,
}

/// Items with literals between them. Two items are never adjacent, because the items' values could not be separated.
///
/// ```
/// use slowlane_lab::access_log::{Dialect, Format};
/// let format = Format::parse("%ci [%tr] %{+Q}r").unwrap();
/// assert_eq!((format.dialect, format.items.len()), (Dialect::Haproxy, 3));
/// assert!(Format::parse("%ci%tr").is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    /// The name of a known format, or the text of an unknown format.
    pub name: String,
    pub dialect: Dialect,
    /// The literal before the first item.
    pub(super) before: String,
    pub items: Vec<Item>,
    /// The number of quotes in the literals, if the proxy does not escape the quotes that a client sends: a line with
    /// more quotes is then ambiguous.
    pub(super) quotes: Option<usize>,
}

/// A placeholder that the proxy replaces with a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The proxy's name for the item, without flags: `%ci`, `%[src]`, `$host`.
    pub noun: String,
    /// The name that HAProxy 3.0 and later can give the item: `%(owner)[...]`.
    pub(super) label: Option<String>,
    /// The item's path in JSON, such as `.request.host`. Otherwise empty.
    pub(super) path: String,
    pub(super) shape: LogShape,
    pub(super) escape: Escape,
    /// The literal between this item and the next item, or the end of the line.
    pub(super) after: String,
}

/// The form of a value in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogShape {
    Text,
    /// Text in quotes, or a number without quotes.
    Quoted,
    /// An IP address. An IPv6 address contains colons, and another colon may follow it.
    Address,
    /// nginx's list of values, one value for each upstream server, separated by `, ` or ` : `.
    List,
    /// HAProxy's captures, `{a|b}`. If there are no captures, the space after them is also missing.
    Captures,
    /// Text before `[06/Feb/2009:12:14:14 +0000] "`, such as a user name that the client made up.
    BeforeTime,
    /// Digits or a hyphen.
    Number,
}

/// The maximum number of items in a format. HAProxy has about 90 items.
pub(super) const ITEMS_MAX: usize = 128;

/// The items with the request line.
pub(super) const REQUEST_LINES: [&str; 2] = ["%r", "$request"];

/// nginx's items with a time like `06/Feb/2009:12:14:14 +0000`.
const CLF_NOUNS: [&str; 2] = ["$time_local", "$start_local"];

/// Why a format cannot be read, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FormatError {
    #[error("the format has no items: expected at least one, like %ci or $remote_addr")]
    NoItems,
    #[error("the format has more than {ITEMS_MAX} items: use fewer")]
    TooManyItems,
    #[error("{0:?} is not closed: add the missing bracket")]
    Open(String),
    #[error("{0} is not an item of HAProxy's log-format")]
    Unknown(String),
    #[error("{0} and {1} have nothing between them: separate them, for example with a space")]
    Adjacent(String, String),
    #[error("{0}: expected a log-format without +json, +cbor or +bin; JSON is recognised without --format")]
    Encoded(String),
    #[error("{0}: expected a single item, like %[var(txn.owner)] or $http_x_owner")]
    NotOneItem(String),
    #[error(
        "expected a field and an item or a value, like owner=%[var(txn.owner)], owner=$http_x_owner or owner=acme"
    )]
    NoMapping,
    #[error("expected seconds, bytes or cost, and an item, like seconds=$request_time or cost=$tokens")]
    NoMeasure,
}

/// The known formats and their names: the default formats of proxies and the formats in the shipped files, in the
/// language of HAProxy or nginx.
const KNOWN: &str = include_str!("known.txt");

/// How many characters, from an unclosed bracket on, an error quotes.
const OPEN_CHARS_MAX: usize = 21;

impl FormatError {
    fn open(text: &str) -> FormatError {
        FormatError::Open(text.chars().take(OPEN_CHARS_MAX).collect())
    }
}

impl Format {
    /// The formats that are recognised without being named.
    pub fn known() -> Vec<Format> {
        let read = |line: &str| {
            let (name, text) = line.split_once('|')?;
            Some(Format { name: name.to_owned(), ..Format::parse(text).ok()? })
        };
        KNOWN.lines().map(|line| read(line).expect("known formats are valid")).collect()
    }

    /// Reads HAProxy's `log-format` or nginx's `log_format`: the string alone, or its whole line of configuration.
    ///
    /// # Errors
    /// The text has no items, or its items are unknown, unclosed or adjacent.
    pub fn parse(text: &str) -> Result<Format, FormatError> {
        let (escape, text) = directive(text);
        let dialect = Dialect::of(&text);
        let (mut before, mut items) = (String::new(), Vec::<Item>::new());
        let mut is_quoted_by_default = false;
        let mut rest = text.as_str();
        while let Some(letter) = rest.chars().next() {
            let behind = &rest[letter.len_utf8()..];
            let is_start = items.is_empty() && before.is_empty();
            let literal = items.last_mut().map_or(&mut before, |item| &mut item.after);
            let (item, next) = match (dialect, letter, behind.chars().next()) {
                (Dialect::Nginx, '$', Some('{' | '_' | 'a'..='z' | 'A'..='Z' | '0'..='9')) => {
                    let (name, next) = nginx_name(behind).ok_or_else(|| FormatError::open(rest))?;
                    (Some(Item::new(format!("${name}"), None, false, escape)), next)
                }
                (Dialect::Haproxy, '%', Some(next)) if next != '%' => {
                    let (word, next) = Word::read(behind).ok_or_else(|| FormatError::open(rest))?;
                    (Some(word.item(is_quoted_by_default)?), next)
                }
                (Dialect::Haproxy, '%' | '\\', Some(next)) => {
                    literal.push(next);
                    (None, &behind[next.len_utf8()..])
                }
                // HAProxy merges spaces and drops leading ones.
                (Dialect::Haproxy, ' ', _) if is_start || literal.ends_with(' ') => (None, behind),
                _ => {
                    literal.push(letter);
                    (None, behind)
                }
            };
            match item {
                // `%o` writes nothing: it sets flags for the items that follow.
                Some(item) if item.noun == "%o" => is_quoted_by_default = item.shape == LogShape::Quoted,
                item => items.extend(item),
            }
            rest = next;
        }
        if items.is_empty() {
            return Err(FormatError::NoItems);
        }
        if items.len() > ITEMS_MAX {
            return Err(FormatError::TooManyItems);
        }
        if let Some((one, other)) = items.iter().zip(&items[1..]).find(|(one, _)| one.after.is_empty()) {
            return Err(FormatError::Adjacent(one.noun.clone(), other.noun.clone()));
        }
        for at in 1..items.len() {
            let [before, time] = &mut items[at - 1..=at] else { continue };
            let is_time = CLF_NOUNS.contains(&&*time.noun) && time.after.starts_with("] \"");
            if is_time && before.after == " [" && before.shape == LogShape::Text {
                before.shape = LogShape::BeforeTime;
            }
        }
        let literals = [&before].into_iter().chain(items.iter().map(|item| &item.after));
        let quotes = literals.flat_map(|literal| literal.matches('"')).count();
        let is_raw = dialect == Dialect::Nginx && escape == Escape::None && quotes > 0;
        Ok(Format { name: text, dialect, before, items, quotes: is_raw.then_some(quotes) })
    }

    /// Reads text that is a single item.
    pub(super) fn item(text: &str) -> Result<Item, FormatError> {
        let Format { before, items, .. } = Format::parse(text)?;
        match items.as_slice() {
            [item] if before.is_empty() && item.after.is_empty() => Ok(item.clone()),
            _ => Err(FormatError::NotOneItem(text.to_owned())),
        }
    }
}

impl Item {
    pub(super) fn new(noun: String, label: Option<String>, is_quoted: bool, escape: Escape) -> Item {
        let shape = match noun.as_str() {
            "%ci" | "%fi" | "%bi" | "%si" | "%Bi" | "$remote_addr" => LogShape::Address,
            "%hr" | "%hs" => LogShape::Captures,
            "$bytes_sent" | "$body_bytes_sent" | "$server_port" => LogShape::Number,
            _ if is_quoted => LogShape::Quoted,
            noun if noun.starts_with("$upstream_") => LogShape::List,
            _ => LogShape::Text,
        };
        Item { noun, label, path: String::new(), shape, escape, after: String::new() }
    }
}

impl Dialect {
    /// The dialect with more items in the text: each dialect may use the other's sign in a literal.
    fn of(text: &str) -> Dialect {
        let count = |sign: char, opens: &[char]| {
            let starts = text.match_indices(sign).filter_map(|(at, _)| text[at + 1..].chars().next());
            starts.filter(|c| c.is_ascii_alphabetic() || opens.contains(c)).count()
        };
        if count('%', &['[', '{', '(']) >= count('$', &['{', '_']) {
            Dialect::Haproxy
        } else {
            Dialect::Nginx
        }
    }
}

/// Extracts a format from `log-format "..."` or `log_format name escape=json '...' '...';`. Returns text without such a
/// directive unchanged.
fn directive(text: &str) -> (Escape, String) {
    let text = text.trim();
    let text = match text.strip_prefix("log_format ").map(str::trim_start) {
        Some(named) => named.split_once(char::is_whitespace).map_or(text, |(_, rest)| rest.trim_start()),
        None => text.strip_prefix("log-format ").map_or(text, str::trim_start),
    };
    let escape = text.strip_prefix("escape=").and_then(|escape| escape.split_once(char::is_whitespace));
    let (escape, text) = match escape {
        Some(("none", text)) => (Escape::None, text.trim_start()),
        Some(("default" | "json", text)) => (Escape::Backslash, text.trim_start()),
        _ => (Escape::Backslash, text),
    };
    let strings = unquoted(text.trim_end_matches([';', ' ', '\t', '\n'])).filter(|text| !text.is_empty());
    (escape, strings.unwrap_or_else(|| text.to_owned()))
}

/// The joined text of one or more strings in quotes. None if there is text outside quotes, or a quote is not closed.
///
/// Only the quote itself is unescaped, because the format has other uses for a backslash.
fn unquoted(text: &str) -> Option<String> {
    let mut joined = String::new();
    let mut letters = text.chars();
    while let Some(quote) = letters.find(|letter| !letter.is_whitespace()) {
        if quote != '"' && quote != '\'' {
            return None;
        }
        loop {
            match letters.next()? {
                letter if letter == quote => break,
                '\\' => match letters.next()? {
                    letter if letter == quote => joined.push(quote),
                    letter => joined.extend(['\\', letter]),
                },
                letter => joined.push(letter),
            }
        }
    }
    Some(joined)
}

/// nginx's `name` or `{name}`, after a `$`, and the text after the name. None if the brace is not closed.
fn nginx_name(text: &str) -> Option<(&str, &str)> {
    match text.starts_with('{') {
        true => enclosed(text, '{', '}'),
        false => Some(split_behind(text, |letter| letter.is_ascii_alphanumeric() || letter == '_')),
    }
}

/// The text between brackets if `text` begins with `open`, and the text after them. None if the bracket is not closed.
fn enclosed(text: &str, open: char, close: char) -> Option<(&str, &str)> {
    text.strip_prefix(open).map_or(Some(("", text)), |inside| inside.split_once(close))
}

/// The longest prefix of characters for which `is_inside` is true, and the text after it.
fn split_behind(text: &str, is_inside: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|letter| !is_inside(letter)).unwrap_or(text.len()))
}

/// HAProxy's `(label){flags}name` or `(label){flags}[expression]`, after its `%`.
struct Word<'t> {
    /// `owner`, or `age:sint` with a type.
    label: &'t str,
    /// `+Q,-E`
    flags: &'t str,
    /// `ci`, or `[src]`.
    noun: &'t str,
}

/// All items of HAProxy 1.8 to 3.2 that are names rather than expressions.
const NAMES: &str = "o OG Bi Bp B CC CS H ID ST T Ta Tc Th Ti Tl Tq Tr TR Td Ts Tt Tu Tw U ac b bc bi bp bq ci cp f fc fi \
                     fp ft hr hrl hs hsl HM HP HPO HQ HU HV lc ms pid r rc rt s sc si sp sq sslc sslv t tr trg trl ts tsc";

/// The items that HAProxy encodes with `#`.
const ENCODED: &[&str] = &["r", "HP", "HPO", "HQ", "HU", "hr", "hs", "hrl", "hsl"];

impl Word<'_> {
    /// Reads an item (HAProxy's configuration.txt, section 8.2.6), and also returns the text after the item. None if a
    /// bracket is not closed.
    fn read(text: &str) -> Option<(Word<'_>, &str)> {
        let (label, text) = enclosed(text, '(', ')')?;
        let (flags, text) = enclosed(text, '{', '}')?;
        let (noun, rest) = if text.starts_with('[') {
            // `[src,map_regm(/a,[x])]`: up to the bracket that closes the first.
            let mut depth = 0;
            let end = text.find(|letter| {
                depth += i32::from(letter == '[') - i32::from(letter == ']');
                depth == 0
            });
            text.split_at(end? + 1)
        } else {
            split_behind(text, |letter| letter.is_ascii_alphabetic())
        };
        Some((Word { label, flags, noun }, rest))
    }

    /// Whether `on` comes last among two opposite flags. None if neither flag is given.
    fn flag(&self, on: &str, off: &str) -> Option<bool> {
        let last = self.flags.split(',').rfind(|&flag| flag == on || flag == off)?;
        Some(last == on)
    }

    fn item(&self, is_quoted_by_default: bool) -> Result<Item, FormatError> {
        if let Some(encoded) = self.flags.split(',').find(|flag| ["+json", "+cbor", "+bin"].contains(flag)) {
            return Err(FormatError::Encoded(encoded.to_owned()));
        }
        let noun = format!("%{}", self.noun);
        if !self.noun.starts_with('[') && !NAMES.split_whitespace().any(|name| name == self.noun) {
            return Err(FormatError::Unknown(noun));
        }
        let escape = match self.flag("+E", "-E") {
            _ if ENCODED.contains(&self.noun) => Escape::Hash,
            Some(true) => Escape::Backslash,
            _ if self.noun.ends_with(",url_enc]") => Escape::Percent,
            _ => Escape::None,
        };
        // A type may follow the name: `%(age:sint)[...]`.
        let label = self.label.split(':').next().filter(|label| !label.is_empty()).map(str::to_owned);
        let is_quoted = self.flag("+Q", "-Q").unwrap_or(is_quoted_by_default);
        Ok(Item::new(noun, label, is_quoted, escape))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;

    fn nouns(text: &str) -> Vec<String> {
        Format::parse(text).unwrap().items.iter().map(|item| item.noun.clone()).collect()
    }

    #[test]
    fn each_dialect_is_read() {
        assert_eq!(
            nouns("%ci:%cp [%tr] %[var(txn.owner),lower] 100%% $x"),
            ["%ci", "%cp", "%tr", "%[var(txn.owner),lower]"]
        );
        assert_eq!(nouns("${remote_addr}x - $host: 50%"), ["$remote_addr", "$host"]);
        assert_eq!(nouns("%[src,map_regm(/a,[x])] %r"), ["%[src,map_regm(/a,[x])]", "%r"]);
    }

    #[test]
    fn flags_and_labels_are_read() {
        let format = Format::parse("%{+Q}o %{-Q}ci %r %(owner){-Q,+E}[var(txn.o)]").unwrap();
        let items = format.items;
        let shapes: Vec<LogShape> = items.iter().map(|item| item.shape).collect();
        assert_eq!(shapes, [LogShape::Address, LogShape::Quoted, LogShape::Text]);
        assert_eq!(items[1].escape, Escape::Hash);
        assert_eq!((items[2].label.as_deref(), items[2].escape), (Some("owner"), Escape::Backslash));
        assert_eq!(format.before, "", "no space before the first");
    }

    #[test]
    fn a_whole_line_of_configuration_is_read() {
        let alone = Format::parse("$remote_addr [$msec] \"$request\"").unwrap();
        let line = "log_format main escape=default '$remote_addr [$msec] '\n    '\"$request\"';";
        assert_eq!(Format::parse(line).unwrap(), alone);
        for (escape, want) in [("json", Escape::Backslash), ("none", Escape::None)] {
            let json = Format::parse(&format!("escape={escape} '{{\"a\":\"$host\"}}'")).unwrap();
            assert_eq!((json.before.as_str(), json.items[0].escape), ("{\"a\":\"", want));
        }
        let haproxy = Format::parse("log-format \"%ci \\\"%tr\\\"  %ST\"").unwrap();
        assert_eq!(haproxy.items, Format::parse("%ci\\ \"%tr\" %ST").unwrap().items);
    }

    #[test]
    fn an_unreadable_format_has_a_reason() {
        for (text, error) in [
            ("", "the format has no items: expected at least one, like %ci or $remote_addr"),
            ("haproxy", "the format has no items: expected at least one, like %ci or $remote_addr"),
            ("%ci %xy", "%xy is not an item of HAProxy's log-format"),
            ("%ci%tr", "%ci and %tr have nothing between them: separate them, for example with a space"),
            ("$a$b", "$a and $b have nothing between them: separate them, for example with a space"),
            ("%[src", "\"%[src\" is not closed: add the missing bracket"),
            ("${host", "\"${host\" is not closed: add the missing bracket"),
            (
                "%{+json}o %ci",
                "+json: expected a log-format without +json, +cbor or +bin; JSON is recognised without --format",
            ),
            (&"$a ".repeat(129), "the format has more than 128 items: use fewer"),
        ] {
            assert_eq!(Format::parse(text).unwrap_err().to_string(), error, "{text:?}");
        }
    }

    #[test]
    fn our_known_formats_are_the_shipped_ones() {
        let known = |name: &str| Format::known().into_iter().find(|known| known.name == name).unwrap();
        let read = |path: &str| {
            fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)).unwrap()
        };
        for file in
            ["haproxy-2.6-hold.cfg", "haproxy-2.6-lua.cfg", "haproxy-3.2-pause.cfg", "haproxy-3.2-peers.cfg"]
        {
            let shipped = read(&format!("haproxy/{file}"));
            let line = shipped.lines().find(|line| line.trim().starts_with("log-format")).unwrap();
            assert_eq!(Format::parse(line).unwrap().items, known("haproxy, slowlane's").items, "{file}");
        }
        let shipped = read("nginx/nginx.conf");
        let (_, after) = shipped.split_once("log_format ").unwrap();
        let line = format!("log_format {}", after.split_once(';').unwrap().0);
        assert_eq!(Format::parse(&line).unwrap().items, known("nginx, slowlane's").items);
    }

    proptest! {
        #[test]
        fn any_text_is_a_format_or_an_error(text in "[ -~]{0,60}|[%$a-z\\[\\]{}()+ '\"\\\\]{0,40}|\\PC{0,30}") {
            let _ = Format::parse(&text);
        }
    }
}
