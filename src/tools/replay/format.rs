//! A log format: what a proxy was told to write for each request, as literals and items.

use thiserror::Error;

use crate::tools::replay::escape::Escape;

/// Whose words a format is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// `%ci`, `%[src]`
    Haproxy,
    /// `$remote_addr`
    Nginx,
}

/// Literals and items, in turns: between two items there is always something that tells them apart.
///
/// ```
/// use slowlane::tools::replay::{Dialect, Format};
/// let format = Format::parse("%ci [%tr] %{+Q}r").unwrap();
/// assert_eq!((format.dialect(), format.items().count()), (Dialect::Haproxy, 3));
/// assert!(Format::parse("%ci%tr").is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    name: String,
    dialect: Dialect,
    pub(super) pieces: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Literal(Vec<u8>),
    Item(Item),
}

/// What a proxy puts a value in for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// As the proxy names it: `%ci`, `%[src]`, `$host`; without flags.
    pub noun: String,
    /// The name that HAProxy 3.0 and later let it be given: `%(owner)[...]`.
    pub(super) label: Option<String>,
    /// It stands between quotes of its own.
    pub(super) is_quoted: bool,
    pub(super) escape: Escape,
}

/// A format that cannot be read, with what can.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FormatError {
    #[error("nothing in it that differs from line to line: expected items like %ci or $remote_addr")]
    NoItems,
    #[error("{0:?} is not closed")]
    Open(String),
    #[error("{0}: HAProxy has no such item")]
    Unknown(String),
    #[error("{0} and {1} have nothing between them: their values cannot be told apart")]
    Adjacent(String, String),
    #[error("{0}: its lines are not text: give those that are to be replayed a log-format without it")]
    Encoded(String),
    #[error("{0}: one item is expected, like %[var(txn.owner)] or $http_x_owner")]
    NotOneItem(String),
    #[error("no time in it: expected {0}")]
    NoTime(&'static str),
}

/// `option httplog`
const HTTPLOG: &str = "%ci:%cp [%tr] %ft %b/%s %TR/%Tw/%Tc/%Tr/%Ta %ST %B %CC %CS %tsc %ac/%fc/%bc/%sc/%rc %sq/%bq %hr %hs \
                       %{+Q}r";

/// `option httpslog`
const HTTPSLOG: &str = "%ci:%cp [%tr] %ft %b/%s %TR/%Tw/%Tc/%Tr/%Ta %ST %B %CC %CS %tsc %ac/%fc/%bc/%sc/%rc %sq/%bq %hr %hs \
                        %{+Q}r %[fc_err]/%[ssl_fc_err,hex]/%[ssl_c_err]/%[ssl_c_ca_err]/%[ssl_fc_is_resumed] \
                        %[ssl_fc_sni]/%sslv/%sslc";

/// `option httplog clf`
const CLF: &str = "%{+Q}o %{-Q}ci - - [%trg] %r %ST %B \"\" \"\" %cp %ms %ft %b %s %TR %Tw %Tc %Tr %Ta %tsc %ac %fc %bc %sc %rc \
                   %sq %bq %CC %CS %hrl %hsl";

/// That of our own `haproxy/*.cfg`.
const OURS_OF_HAPROXY: &str = "%ci:%cp [%tr] %ft %b/%s %TR/%Tw/%Tc/%Tr/%Ta %ST %B %tsc website=%[var(txn.website),url_enc] \
     %{+Q}r slowlane=%[var(txn.slowlane.verdict)]/%[var(txn.slowlane.delay)]/%[var(txn.slowlane.slo)]/\
     %[var(txn.slowlane.error)] owner=%[var(txn.owner),url_enc]";

/// The same from before they had the website and the owner.
const OURS_OF_HAPROXY_BEFORE: &str = "%ci:%cp [%tr] %ft %b/%s %TR/%Tw/%Tc/%Tr/%Ta %ST %B %tsc %{+Q}r \
     slowlane=%[var(txn.slowlane.verdict)]/%[var(txn.slowlane.delay)]/%[var(txn.slowlane.slo)]/%[var(txn.slowlane.error)]";

/// nginx's own.
const COMBINED: &str = "$remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent \
                        \"$http_referer\" \"$http_user_agent\"";

/// That of our own `nginx/nginx.conf`.
const OURS_OF_NGINX: &str = "$remote_addr [$time_local] \"$request\" $status $body_bytes_sent ${request_time}s host=$host \
                             slowlane=$slowlane_verdict id=$request_id";

impl Format {
    /// Those that are recognised by themselves.
    pub fn known() -> Vec<Format> {
        let known = [
            ("haproxy httplog", HTTPLOG),
            ("haproxy httpslog", HTTPSLOG),
            ("haproxy httplog clf", CLF),
            ("haproxy, slowlane's", OURS_OF_HAPROXY),
            ("haproxy, slowlane's without the website", OURS_OF_HAPROXY_BEFORE),
            ("nginx combined", COMBINED),
            ("nginx, slowlane's", OURS_OF_NGINX),
        ];
        let format = |(name, text): (&str, &str)| {
            let format = Format::parse(text).expect("a known format is a right one");
            Format { name: name.to_owned(), ..format }
        };
        known.into_iter().map(format).collect()
    }

    /// Reads a `log-format` of HAProxy's or a `log_format` of nginx's: the string alone, or the line of the
    /// configuration that it stands in.
    pub fn parse(text: &str) -> Result<Format, FormatError> {
        let (escape, text) = directive(text);
        let dialect = dialect(&text);
        let pieces = match dialect {
            Dialect::Haproxy => haproxy(&text)?,
            Dialect::Nginx => nginx(&text, escape)?,
        };
        let items = || pieces.iter().filter(|piece| matches!(piece, Piece::Item(_)));
        if items().next().is_none() {
            return Err(FormatError::NoItems);
        }
        for pair in pieces.windows(2) {
            if let [Piece::Item(one), Piece::Item(other)] = pair {
                return Err(FormatError::Adjacent(one.noun.clone(), other.noun.clone()));
            }
        }
        Ok(Format { name: text, dialect, pieces })
    }

    /// The one item that a text is.
    pub(super) fn item(text: &str) -> Result<Item, FormatError> {
        match <[Piece; 1]>::try_from(Format::parse(text)?.pieces) {
            Ok([Piece::Item(item)]) => Ok(item),
            _ => Err(FormatError::NotOneItem(text.to_owned())),
        }
    }

    /// What it goes by, or its text.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    pub fn items(&self) -> impl Iterator<Item = &Item> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Item(item) => Some(item),
            Piece::Literal(_) => None,
        })
    }
}

/// What a line of configuration has around the string, and nginx's `escape=` in it.
fn directive(text: &str) -> (Escape, String) {
    let mut rest = text.trim();
    if let Some(named) = rest.strip_prefix("log_format ") {
        rest = named.trim_start().split_once(char::is_whitespace).map_or("", |(_, rest)| rest).trim_start();
    } else if let Some(unnamed) = rest.strip_prefix("log-format ") {
        rest = unnamed.trim_start();
    }
    let escapes = [("default", Escape::Backslash), ("json", Escape::Json), ("none", Escape::None)];
    let mut escape = Escape::Backslash;
    if let Some((name, others)) =
        rest.strip_prefix("escape=").and_then(|rest| rest.split_once(char::is_whitespace))
        && let Some(&(_, given)) = escapes.iter().find(|(given, _)| *given == name)
    {
        (escape, rest) = (given, others.trim_start());
    }
    (escape, quoted_strings(rest).unwrap_or_else(|| rest.to_owned()))
}

/// One or more strings in quotes, joined as nginx joins them; None: the text is not only such.
fn quoted_strings(text: &str) -> Option<String> {
    let mut rest = text.trim_end_matches([';', ' ', '\t', '\n']);
    let mut joined = String::new();
    while !rest.is_empty() {
        let quote = rest.chars().next().filter(|&c| c == '\'' || c == '"')?;
        let mut chars = rest.char_indices().skip(1);
        loop {
            match chars.next()? {
                (at, c) if c == quote => {
                    rest = rest[at + 1..].trim_start();
                    break;
                }
                // Only a quote needs it; HAProxy's own are read with the format.
                (_, '\\') => match chars.next()?.1 {
                    c if c == quote => joined.push(c),
                    c => joined.extend(['\\', c]),
                },
                (_, c) => joined.push(c),
            }
        }
    }
    (!joined.is_empty()).then_some(joined)
}

/// HAProxy's if it has more of its items: either may have the other's sign as a literal.
fn dialect(text: &str) -> Dialect {
    let count = |sign: char, opens: &[char]| {
        let starts = text.match_indices(sign).filter_map(|(at, _)| text[at + 1..].chars().next());
        starts.filter(|c| c.is_ascii_alphabetic() || opens.contains(c)).count()
    };
    if count('%', &['[', '{', '(']) >= count('$', &['{', '_']) { Dialect::Haproxy } else { Dialect::Nginx }
}

/// Every item of HAProxy 1.8 to 3.2 that is a name.
const HAPROXY_NAMES: &[&str] = &[
    "o", "OG", "Bi", "Bp", "B", "CC", "CS", "H", "ID", "ST", "T", "Ta", "Tc", "Th", "Ti", "Tl", "Tq", "Tr",
    "TR", "Td", "Ts", "Tt", "Tu", "Tw", "U", "ac", "b", "bc", "bi", "bp", "bq", "ci", "cp", "f", "fc", "fi",
    "fp", "ft", "hr", "hrl", "hs", "hsl", "HM", "HP", "HPO", "HQ", "HU", "HV", "lc", "ms", "pid", "r", "rc",
    "rt", "s", "sc", "si", "sp", "sq", "sslc", "sslv", "t", "tr", "trg", "trl", "ts", "tsc",
];

/// Those that are encoded with `#`.
const HAPROXY_ENCODED: &[&str] = &["r", "HP", "HPO", "HQ", "HU", "hr", "hs", "hrl", "hsl"];

/// Configuration.txt, section 8.2.6 (`Custom log format`): `%name`, `%{flags}name`, `%(label){flags}[expression]`, `%%`. Spaces are
/// merged, and there is none at the beginning.
fn haproxy(text: &str) -> Result<Vec<Piece>, FormatError> {
    let (mut pieces, mut literal): (Vec<Piece>, Vec<u8>) = (Vec::new(), Vec::new());
    let mut is_quoted_by_default = false;
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        if let Some(escaped) = after.chars().next().filter(|_| c == '\\') {
            push(&mut literal, escaped);
            rest = &after[escaped.len_utf8()..];
        } else if c == ' ' {
            let is_first = pieces.is_empty() && literal.is_empty();
            if !is_first && literal.last() != Some(&b' ') {
                literal.push(b' ');
            }
            rest = after;
        } else if c != '%' || after.is_empty() {
            push(&mut literal, c);
            rest = after;
        } else if let Some(after) = after.strip_prefix('%') {
            literal.push(b'%');
            rest = after;
        } else {
            let word = Word::read(after)?;
            rest = word.rest;
            let is_quoted = word.quotes.unwrap_or(is_quoted_by_default);
            match word.item(is_quoted)? {
                Some(item) => {
                    if !literal.is_empty() {
                        pieces.push(Piece::Literal(std::mem::take(&mut literal)));
                    }
                    pieces.push(Piece::Item(item));
                }
                None => is_quoted_by_default = is_quoted,
            }
        }
    }
    if !literal.is_empty() {
        pieces.push(Piece::Literal(literal));
    }
    Ok(pieces)
}

fn push(literal: &mut Vec<u8>, c: char) {
    literal.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
}

/// An item of HAProxy's, taken apart.
struct Word<'t> {
    label: Option<&'t str>,
    /// What the flags say of quotes.
    quotes: Option<bool>,
    escapes: bool,
    /// `ci`, or `[src]`.
    noun: &'t str,
    rest: &'t str,
}

impl<'t> Word<'t> {
    fn read(text: &'t str) -> Result<Word<'t>, FormatError> {
        let (label, rest) = match text.strip_prefix('(') {
            // A type may follow the name: `%(age:sint)[...]`.
            Some(inner) => {
                let (inside, rest) = inner.split_once(')').ok_or_else(|| open(text))?;
                (inside.split(':').next(), rest)
            }
            None => (None, text),
        };
        let (flags, rest) = match rest.strip_prefix('{') {
            Some(inner) => inner.split_once('}').ok_or_else(|| open(text))?,
            None => ("", rest),
        };
        if let Some(encoded) = flags.split(',').find(|flag| ["+json", "+cbor", "+bin"].contains(flag)) {
            return Err(FormatError::Encoded(encoded.to_owned()));
        }
        let last = |on: &str, off: &str| {
            let given = flags.split(',').rev().find(|&flag| flag == on || flag == off)?;
            Some(given == on)
        };
        let end = match rest.starts_with('[') {
            true => closed(rest).ok_or_else(|| open(text))?,
            false => rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len()),
        };
        let (noun, rest) = rest.split_at(end);
        let escapes = last("+E", "-E") == Some(true);
        Ok(Word {
            label: label.filter(|label| !label.is_empty()),
            quotes: last("+Q", "-Q"),
            escapes,
            noun,
            rest,
        })
    }

    /// None: it is `%o`, which stands for nothing.
    fn item(&self, is_quoted: bool) -> Result<Option<Item>, FormatError> {
        let noun = format!("%{}", self.noun);
        if !self.noun.starts_with('[') && !HAPROXY_NAMES.contains(&self.noun) {
            return Err(FormatError::Unknown(noun));
        }
        let escape = match self.escapes {
            _ if HAPROXY_ENCODED.contains(&self.noun) => Escape::Hash,
            true => Escape::Json,
            false if self.noun.ends_with(",url_enc]") => Escape::Percent,
            false => Escape::None,
        };
        let label = self.label.map(str::to_owned);
        Ok((self.noun != "o").then_some(Item { noun, label, is_quoted, escape }))
    }
}

fn open(text: &str) -> FormatError {
    FormatError::Open(format!("%{}", text.chars().take(20).collect::<String>()))
}

/// Where the bracket that a text begins with is closed, behind it.
fn closed(text: &str) -> Option<usize> {
    let mut depth = 0;
    text.char_indices().find_map(|(at, c)| {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        (depth == 0).then_some(at + 1)
    })
}

/// `$name` and `${name}`.
fn nginx(text: &str, escape: Escape) -> Result<Vec<Piece>, FormatError> {
    let (mut pieces, mut literal) = (Vec::new(), Vec::new());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        let name = match after.strip_prefix('{') {
            _ if c != '$' => "",
            Some(inner) => inner.split_once('}').ok_or_else(|| FormatError::Open(rest.to_owned()))?.0,
            None => {
                let end = after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                &after[..end.unwrap_or(after.len())]
            }
        };
        if name.is_empty() {
            push(&mut literal, c);
            rest = after;
            continue;
        }
        if !literal.is_empty() {
            pieces.push(Piece::Literal(std::mem::take(&mut literal)));
        }
        let noun = format!("${name}");
        pieces.push(Piece::Item(Item { noun, label: None, is_quoted: false, escape }));
        let braces = if after.starts_with('{') { 2 } else { 0 };
        rest = &after[name.len() + braces..];
    }
    if !literal.is_empty() {
        pieces.push(Piece::Literal(literal));
    }
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;

    fn nouns(text: &str) -> Vec<String> {
        Format::parse(text).unwrap().items().map(|item| item.noun.clone()).collect()
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
        let items: Vec<&Item> = format.items().collect();
        assert_eq!(items.iter().map(|item| item.is_quoted).collect::<Vec<_>>(), [false, true, false]);
        assert_eq!(items[1].escape, Escape::Hash);
        assert_eq!((items[2].label.as_deref(), items[2].escape), (Some("owner"), Escape::Json));
        assert_eq!(format.pieces[0], Piece::Item(items[0].clone()), "no space before the first");
    }

    #[test]
    fn a_line_of_configuration_is_as_good() {
        let alone = Format::parse("$remote_addr [$msec] \"$request\"").unwrap();
        let line = "log_format main escape=default '$remote_addr [$msec] '\n    '\"$request\"';";
        assert_eq!(Format::parse(line).unwrap(), alone);
        let json = Format::parse("escape=json '{\"a\":\"$host\"}'").unwrap();
        assert_eq!(json.items().next().unwrap().escape, Escape::Json);
        let haproxy = Format::parse("log-format \"%ci \\\"%tr\\\"  %ST\"").unwrap();
        assert_eq!(haproxy.pieces, Format::parse("%ci\\ \"%tr\" %ST").unwrap().pieces);
    }

    #[test]
    fn what_is_no_format_is_told_why() {
        for (text, error) in [
            ("", "nothing in it that differs from line to line: expected items like %ci or $remote_addr"),
            (
                "haproxy",
                "nothing in it that differs from line to line: expected items like %ci or $remote_addr",
            ),
            ("%ci %xy", "%xy: HAProxy has no such item"),
            ("%ci%tr", "%ci and %tr have nothing between them: their values cannot be told apart"),
            ("$a$b", "$a and $b have nothing between them: their values cannot be told apart"),
            ("%[src", "\"%[src\" is not closed"),
            ("${host", "\"${host\" is not closed"),
            (
                "%{+json}o %ci",
                "+json: its lines are not text: give those that are to be replayed a log-format without it",
            ),
        ] {
            assert_eq!(Format::parse(text).unwrap_err().to_string(), error, "{text:?}");
        }
    }

    #[test]
    fn our_own_formats_are_those_that_we_ship() {
        let read = |path: &str| fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
        for file in ["haproxy-2.6-hold.cfg", "haproxy-2.6-lua.cfg", "haproxy-3.2-pause.cfg"] {
            let shipped = read(&format!("haproxy/{file}"));
            let line = shipped.lines().find(|line| line.trim().starts_with("log-format")).unwrap();
            assert_eq!(Format::parse(line).unwrap(), Format::parse(OURS_OF_HAPROXY).unwrap(), "{file}");
        }
        let shipped = read("nginx/nginx.conf");
        let (_, after) = shipped.split_once("log_format ").unwrap();
        let line = format!("log_format {}", after.split_once(';').unwrap().0);
        assert_eq!(Format::parse(&line).unwrap(), Format::parse(OURS_OF_NGINX).unwrap());
    }

    proptest! {
        #[test]
        fn any_text_is_a_format_or_none(text in "[ -~]{0,60}|[%$a-z\\[\\]{}()+ '\"\\\\]{0,40}|\\PC{0,30}") {
            let _ = Format::parse(&text);
        }
    }
}
