//! Lines of a map that are valid, and hardly what was meant.

use std::net::IpAddr;

use crate::policy::error::quoted;
use crate::policy::layout::{Lookup, Method};
use crate::policy::read::map::Line;
use crate::policy::warning::{WarningKind, WebsitePart};

/// The doubts about the lines of a lookup's map.
#[derive(Clone, Copy, Debug)]
pub(super) struct Checks {
    method: Method,
    website: Option<WebsitePart>,
}

impl Checks {
    pub(super) fn of(lookup: &Lookup) -> Checks {
        Checks { method: lookup.method, website: WebsitePart::of(lookup) }
    }

    /// The first reason to doubt a line.
    pub(super) fn warning(self, line: &Line<'_>) -> Option<WarningKind> {
        let is_suspicious = |&byte: &u8| matches!(byte, b'"' | b'\'' | b'*' | b'#' | b'/');
        // Nearly every line of a large map ends here.
        let found = match line.value.is_empty() || line.key.iter().any(is_suspicious) {
            true => self.warn_of_key(line.key, line.value),
            false => None,
        };
        found.or_else(|| self.website?.warning(line.key))
    }

    fn warn_of_key(self, key: &[u8], value: &[u8]) -> Option<WarningKind> {
        // After an address and a `+`, the rest is compared as a text.
        let text = match self.method {
            Method::Ip => key.iter().position(|&byte| byte == b'+').map_or(key, |at| &key[at + 1..]),
            _ => key,
        };
        let is_regex = self.method == Method::Reg;
        if key.starts_with(b"#") || !is_regex && key.contains(&b'#') && self.method != Method::Beg {
            return Some(WarningKind::Comment(quoted(key)));
        }
        if value.is_empty() {
            let is_joined = separator(key);
            return Some(is_joined.map_or(WarningKind::NoValue(quoted(key)), |separator| {
                WarningKind::Joined { key: quoted(key), separator }
            }));
        }
        if !is_regex && matches!(text, [b'"' | b'\'', ..] | [.., b'"' | b'\'']) {
            return Some(WarningKind::Quotes(quoted(key)));
        }
        if !is_regex && matches!(text, [b'*', ..] | [.., b'*']) {
            return Some(WarningKind::Wildcard { key: quoted(key), method: self.method.name() });
        }
        (self.method == Method::Str && is_network(key)).then(|| WarningKind::Network(quoted(key)))
    }
}

/// The character between a key and the number of an SLO, where a blank is missing: `acme=1001`.
fn separator(key: &[u8]) -> Option<char> {
    let digits = key.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let before = *key[..key.len() - digits].last()?;
    let is_joined = (1..=4).contains(&digits) && matches!(before, b'=' | b',' | b';' | b':' | b'|');
    (is_joined && digits + 1 < key.len()).then_some(char::from(before))
}

fn is_network(key: &[u8]) -> bool {
    let Some((address, prefix)) = std::str::from_utf8(key).ok().and_then(|key| key.split_once('/')) else {
        return false;
    };
    address.parse::<IpAddr>().is_ok() && (prefix.parse::<u8>().is_ok() || prefix.parse::<IpAddr>().is_ok())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use proptest::prelude::*;

    use super::*;
    use crate::policy::read::map;

    fn warning(fields: &[&str], method: Method, line: &str) -> Option<String> {
        let fields: Vec<String> = fields.iter().map(|&field| field.to_owned()).collect();
        let lookup = Lookup { fields, file: PathBuf::from("a.map"), method };
        let line = map::lines(line.as_bytes()).next().unwrap().unwrap();
        Checks::of(&lookup).warning(&line).map(|warning| warning.to_string())
    }

    #[test]
    fn lines_that_are_hardly_meant_are_named_with_the_remedy() {
        for (fields, method, line, expected) in [
            (&["website"][..], Method::Str, "\"shop.example\" 2001", "has quotes, which are part of the key"),
            (&["website"], Method::Str, "'shop.example' 2001", "has quotes, which are part of the key"),
            (&["website"], Method::Str, "*.example.com 2001", "str takes * for an ordinary character"),
            (&["website"], Method::End, "*.example.com 2001", "end takes * for an ordinary character"),
            (&["path"], Method::Beg, "/api/* 2001", "beg takes * for an ordinary character"),
            (&["source", "website"], Method::Ip, "::/0+*.example.com 5001", "ip takes * for an ordinary"),
            (&["owner"], Method::Str, "acme=1001", "put a blank before the SLO instead of ="),
            (&["owner"], Method::Str, "acme:1001", "put a blank before the SLO instead of :"),
            (&["source"], Method::Ip, "192.0.2.1", "has no value, which names SLO 0"),
            (&["website"], Method::Str, "shop.example", "has no value, which names SLO 0"),
            (&["website"], Method::Str, "192.0.2.0/24 2001", "is a network, and is compared as a text"),
            (&["owner"], Method::Str, "2001:db8::/32 1001", "is a network, and is compared as a text"),
            (&["website"], Method::Str, "shop.example#ours 2001", "a comment needs a line of its own"),
            (&["website"], Method::Str, " # 2001", "a comment needs a line of its own"),
            (&["website"], Method::Str, " #shop.example", "a comment needs a line of its own"),
            (&["website"], Method::Str, "http://shop.example 2001", "has a scheme"),
        ] {
            let reported = warning(fields, method, line);
            assert!(
                reported.as_ref().is_some_and(|reported| reported.contains(expected)),
                "{line}: {reported:?}"
            );
        }
        for (fields, method, line) in [
            (&["website"][..], Method::Str, "192.0.2.1 2001"),
            (&["website"], Method::Str, "shop.example 0"),
            (&["website"], Method::Str, "a*b.example -1"),
            (&["path"], Method::Beg, "/a#b 1"),
            (&["path"], Method::Reg, "^/a\"*# 1"),
            (&["owner"], Method::Str, "acme=1001 1001"),
            (&["source"], Method::Ip, "192.0.2.0/24 3001"),
        ] {
            assert_eq!(warning(fields, method, line), None, "{line}");
        }
    }

    proptest! {
        #[test]
        fn any_line_is_fine_or_doubtful(text in prop::collection::vec(any::<u8>(), 1..40)) {
            for method in Method::ALL {
                let lookup = Lookup { fields: vec!["website".into()], file: "a".into(), method };
                for line in map::lines(&text).flatten() {
                    Checks::of(&lookup).warning(&line);
                }
            }
        }
    }
}
