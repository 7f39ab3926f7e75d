//! A log format: what a proxy writes for each request, as literals and items.

use crate::access_log::directive::directive;
use crate::access_log::format_error::FormatError;
use crate::access_log::haproxy_format::haproxy;
use crate::access_log::known::KNOWN;
use crate::access_log::nginx_format::nginx;
use crate::access_log::piece::{Item, Piece};

/// The proxy in whose language a format is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// `%ci`, `%[src]`
    Haproxy,
    /// `$remote_addr`
    Nginx,
}

/// Items with literals between them. Two items never touch, or their values could not be told apart.
///
/// ```
/// use slowlane_lab::access_log::{Dialect, Format};
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

impl Format {
    /// The formats that are recognised without being named.
    pub fn known() -> Vec<Format> {
        let format = |&(name, text): &(&str, &str)| {
            let format = Format::parse(text).expect("a known format is a right one");
            Format { name: name.to_owned(), ..format }
        };
        KNOWN.iter().map(format).collect()
    }

    /// Reads HAProxy's `log-format` or nginx's `log_format`: the string alone, or its whole line of configuration.
    ///
    /// # Errors
    /// The text is no format, has an unknown variable, or names no field of a request.
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

    /// Reads a text that is a single item.
    pub(super) fn item(text: &str) -> Result<Item, FormatError> {
        match <[Piece; 1]>::try_from(Format::parse(text)?.pieces) {
            Ok([Piece::Item(item)]) => Ok(item),
            _ => Err(FormatError::NotOneItem(text.to_owned())),
        }
    }

    /// The name of a known format; the text of any other.
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

/// The proxy with more items in the text: each may use the other's sign in a literal.
fn dialect(text: &str) -> Dialect {
    let count = |sign: char, opens: &[char]| {
        let starts = text.match_indices(sign).filter_map(|(at, _)| text[at + 1..].chars().next());
        starts.filter(|c| c.is_ascii_alphabetic() || opens.contains(c)).count()
    };
    if count('%', &['[', '{', '(']) >= count('$', &['{', '_']) { Dialect::Haproxy } else { Dialect::Nginx }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;
    use crate::access_log::escape::Escape;
    use crate::access_log::known::{OURS_OF_HAPROXY, OURS_OF_NGINX};

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
    fn a_whole_line_of_configuration_is_read() {
        let alone = Format::parse("$remote_addr [$msec] \"$request\"").unwrap();
        let line = "log_format main escape=default '$remote_addr [$msec] '\n    '\"$request\"';";
        assert_eq!(Format::parse(line).unwrap(), alone);
        let json = Format::parse("escape=json '{\"a\":\"$host\"}'").unwrap();
        assert_eq!(json.items().next().unwrap().escape, Escape::Json);
        let haproxy = Format::parse("log-format \"%ci \\\"%tr\\\"  %ST\"").unwrap();
        assert_eq!(haproxy.pieces, Format::parse("%ci\\ \"%tr\" %ST").unwrap().pieces);
    }

    #[test]
    fn an_unreadable_format_has_a_reason() {
        for (text, error) in [
            ("", "no items: expected some, like %ci or $remote_addr"),
            ("haproxy", "no items: expected some, like %ci or $remote_addr"),
            ("%ci %xy", "%xy: not an item of HAProxy"),
            ("%ci%tr", "%ci and %tr touch: put something between them, like a space"),
            ("$a$b", "$a and $b touch: put something between them, like a space"),
            ("%[src", "\"%[src\" is not closed"),
            ("${host", "\"${host\" is not closed"),
            ("%{+json}o %ci", "+json: cannot be replayed: use a log-format without it"),
        ] {
            assert_eq!(Format::parse(text).unwrap_err().to_string(), error, "{text:?}");
        }
    }

    #[test]
    fn our_known_formats_are_the_shipped_ones() {
        let read = |path: &str| {
            fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)).unwrap()
        };
        for file in
            ["haproxy-2.6-hold.cfg", "haproxy-2.6-lua.cfg", "haproxy-3.2-pause.cfg", "haproxy-3.2-peers.cfg"]
        {
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
        fn any_text_is_a_format_or_an_error(text in "[ -~]{0,60}|[%$a-z\\[\\]{}()+ '\"\\\\]{0,40}|\\PC{0,30}") {
            let _ = Format::parse(&text);
        }
    }
}
