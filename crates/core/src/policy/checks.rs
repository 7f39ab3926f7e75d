//! Warnings and errors about lines of a map that probably do not do what the operator intended.

use std::net::IpAddr;

use crate::policy::read::hosts;
use crate::policy::{Line, Lookup, Method, PolicyErrorKind, WarningKind, is_host, quoted};

impl Lookup {
    /// The first warning about a line of a map, or None if the line is not suspicious.
    pub(super) fn warning(&self, line: &Line<'_>) -> Option<WarningKind> {
        let is_suspicious = |&byte: &u8| matches!(byte, b'"' | b'\'' | b'*' | b'#' | b'/');
        // Fast path: nearly every line of a large map returns here.
        if !line.value.is_empty() && !line.key.iter().any(is_suspicious) {
            return None;
        }
        self.warn_of_key(line.key, line.value).or_else(|| self.warn_of_website(line.key))
    }

    /// The error for a line whose key has a `*` in the middle of a host. Such a line never matches, because
    /// no client can send this host. A `*` at either end causes only a warning.
    pub(super) fn error(&self, line: &Line<'_>) -> Option<PolicyErrorKind> {
        let (fields, method) = (&self.fields, self.method);
        if !line.key.contains(&b'*') || method == Method::Reg {
            return None;
        }
        let host = fields.iter().position(|field| is_host(field))?;
        let range = hosts::part(line.key, fields.len(), host, 0)?;
        match &line.key[range] {
            [_, middle @ .., _] if middle.contains(&b'*') => {
                Some(PolicyErrorKind::Wildcard(quoted(line.key)))
            }
            _ => None,
        }
    }

    fn warn_of_key(&self, key: &[u8], value: &[u8]) -> Option<WarningKind> {
        // In an `ip` map, the part of a key that follows the address and a `+` is compared as text.
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

    /// The warning about a key whose website has a scheme or a path. Such a key never matches, because the
    /// website of a request is only a host.
    fn warn_of_website(&self, key: &[u8]) -> Option<WarningKind> {
        let website = match (self.fields.as_slice(), self.method) {
            ([website], Method::Str) if website == "website" => key,
            ([source, website], Method::Ip) if source == "source" && website == "website" => {
                &key[key.iter().position(|&byte| byte == b'+')? + 1..]
            }
            _ => return None,
        };
        let website = std::str::from_utf8(website).ok().filter(|website| website.contains('/'))?;
        let (rest, what) =
            website.split_once("://").map_or((website, "a slash"), |(_, rest)| (rest, "a scheme"));
        let meant = host(rest).to_ascii_lowercase();
        Some(WarningKind::Website { key: quoted(key), what, meant: quoted(meant.as_bytes()) })
    }
}

/// The host without any port or path after it. Colons within the brackets of an IPv6 address do not begin a port.
fn host(text: &str) -> &str {
    let bracket = text.rfind(']').unwrap_or(0);
    let end = text[bracket..].find([':', '/']).map_or(text.len(), |end| bracket + end);
    &text[..end]
}

/// The character that stands between a key and an SLO where a space belongs, such as the `=` in `acme=1001`.
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
    use crate::policy::map;

    fn lookup(fields: &[&str], method: Method) -> Lookup {
        let fields = fields.iter().map(|&field| field.to_owned()).collect();
        Lookup { fields, file: PathBuf::from("a.map"), method, is_added: false }
    }

    fn warning(fields: &[&str], method: Method, line: &str) -> Option<String> {
        let line = map::lines(line.as_bytes()).next().unwrap().unwrap();
        lookup(fields, method).warning(&line).map(|warning| warning.to_string())
    }

    fn of_website(fields: &[&str], method: Method, key: &[u8]) -> Option<WarningKind> {
        lookup(fields, method).warn_of_website(key)
    }

    #[test]
    fn lines_that_are_hardly_meant_are_named_with_the_remedy() {
        for (fields, method, line, expected) in [
            (&["website"][..], Method::Str, "\"shop.example\" 2001", "has quotes, which are part of the key"),
            (&["website"], Method::Str, "'shop.example' 2001", "has quotes, which are part of the key"),
            (&["website"], Method::Str, "*.example.com 2001", "str treats * as an ordinary character"),
            (&["website"], Method::End, "*.example.com 2001", "end treats * as an ordinary character"),
            (&["path"], Method::Beg, "/api/* 2001", "beg treats * as an ordinary character"),
            (&["source", "website"], Method::Ip, "::/0+*.example.com 5001", "ip treats * as an ordinary"),
            (&["owner"], Method::Str, "acme=1001", "put a space before the SLO instead of ="),
            (&["owner"], Method::Str, "acme:1001", "put a space before the SLO instead of :"),
            (&["owner"], Method::Str, "a=1001", "put a space before the SLO instead of ="),
            (&["owner"], Method::Str, "=1001", "has no value, so it selects SLO 0: write the id"),
            (&["source"], Method::Ip, "192.0.2.1", "has no value, so it selects SLO 0"),
            (&["website"], Method::Str, "shop.example", "has no value, so it selects SLO 0"),
            (&["website"], Method::Str, "192.0.2.0/24 2001", "is a network, but is compared as text"),
            (&["owner"], Method::Str, "2001:db8::/32 1001", "is a network, but is compared as text"),
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
            (&["owner"], Method::Str, "a*b.example -1"),
            (&["path"], Method::Beg, "/a#b 1"),
            (&["path"], Method::Reg, "^/a\"*# 1"),
            (&["owner"], Method::Str, "acme=1001 1001"),
            (&["source"], Method::Ip, "192.0.2.0/24 3001"),
        ] {
            assert_eq!(warning(fields, method, line), None, "{line}");
        }
    }

    #[test]
    fn a_wildcard_in_the_middle_of_a_host_is_an_error() {
        let is_error = |fields: &[&str], method, key: &str| {
            let line = format!("{key} 2001");
            let line = map::lines(line.as_bytes()).next().unwrap().unwrap();
            lookup(fields, method).error(&line).is_some()
        };
        let middle = ["shop.*.example", "a*b.example", "*.shop.*.example", "shop.**"];
        for method in [Method::Str, Method::Beg, Method::End, Method::Dom] {
            assert!(middle.iter().all(|key| is_error(&["website"], method, key)), "{method:?}");
            let at_the_end = ["*.example", "shop.*", "*", "shop.example", "**"];
            assert!(!at_the_end.iter().any(|key| is_error(&["website"], method, key)), "{method:?}");
        }
        assert!(is_error(&["source", "website"], Method::Ip, "::/0+shop.*.example"));
        assert!(!is_error(&["source", "website"], Method::Ip, "::/0+*.example"));
        assert!(middle.iter().all(|key| !is_error(&["website"], Method::Reg, key)));
        assert!(middle.iter().all(|key| !is_error(&["owner"], Method::Str, key)));
    }

    #[test]
    fn a_website_that_never_matches_is_a_warning_with_the_right_spelling() {
        let meant = |key: &str| match of_website(&["website"], Method::Str, key.as_bytes())? {
            WarningKind::Website { what, meant, .. } => Some((what, meant)),
            _ => None,
        };
        for (key, what) in [
            ("https://shop.example/", "a scheme"),
            ("HTTPS://Shop.example:8443/a", "a scheme"),
            ("shop.example/", "a slash"),
        ] {
            assert_eq!(meant(key), Some((what, "shop.example".to_owned())), "{key}");
        }
        assert_eq!(meant("[::1]:8080/"), Some(("a slash", "[::1]".to_owned())));
        for key in
            ["shop.example", "[2001:db8::1]", "192.0.2.1", "localhost", "", "größe.example", "a_b", "-"]
        {
            assert_eq!(meant(key), None, "{key}");
        }
        assert!(of_website(&["source", "website"], Method::Ip, b"2001:db8::/32+shop.example").is_none());
        assert!(of_website(&["source", "website"], Method::Ip, b"2001:DB8::/32+Shop.example/").is_some());
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_website_or_doubtful(key in prop::collection::vec(any::<u8>(), 0..40)) {
            of_website(&["website"], Method::Str, &key);
            of_website(&["source", "website"], Method::Ip, &key);
        }

        #[test]
        fn the_suggested_website_is_valid(key in "[A-Za-z.:/]{0,20}") {
            if let Some(WarningKind::Website { meant, .. }) = of_website(&["website"], Method::Str, key.as_bytes()) {
                prop_assert_eq!(of_website(&["website"], Method::Str, meant.as_bytes()), None);
            }
        }

        #[test]
        fn any_line_is_fine_or_doubtful(text in prop::collection::vec(any::<u8>(), 1..40)) {
            for method in Method::ALL {
                let lookup = Lookup { fields: vec!["website".into()], file: "a".into(), method, is_added: false };
                for line in map::lines(&text).flatten() {
                    lookup.warning(&line);
                }
            }
        }
    }
}
