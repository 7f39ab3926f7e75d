//! A host in canonical form, whatever spelling the client used.

use std::net::Ipv6Addr;

use crate::base::canonical;

/// The maximum length of a host name, in bytes, without a final dot (RFC 1035, section 2.3.4).
pub const NAME_BYTES_MAX: usize = 253;

/// A host without its port. Two spellings of a name differ at most in case, so they are equal in lower case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host<'a> {
    /// A name or an IPv4 address, as the client wrote it.
    Name {
        name: &'a [u8],
        /// Whether the name is already in lower case.
        is_lower: bool,
    },
    /// An IPv6 address, in brackets or alone.
    Ipv6(Ipv6Addr),
}

impl<'a> Host<'a> {
    /// Reads the value of a `Host` header: a name, optionally with a final dot, or a bracketed IPv6 address, then
    /// optionally a port. Also reads an IPv6 address without brackets. None for anything else, such as a list.
    ///
    /// A name has labels of letters, digits, `-`, `_` and non-ASCII bytes, separated by single dots. RFC 3986 allows
    /// more characters in a `reg-name`, but no DNS name uses them, and servers interpret them differently.
    ///
    /// ```
    /// use slowlane_core::base::Host;
    /// let name = |text: &'static str| Host::read(text.as_bytes());
    /// let shop = Some(Host::Name { name: b"shop.example", is_lower: true });
    /// assert_eq!([name("shop.example"), name("shop.example."), name("shop.example:80")], [shop; 3]);
    /// assert_eq!(name("[::1]:80"), Some(Host::Ipv6("::1".parse().unwrap())));
    /// assert_eq!([name("shop.example,x"), name("shop.example:x"), name("shop..example")], [None; 3]);
    /// ```
    #[inline]
    pub fn read(text: &'a [u8]) -> Option<Host<'a>> {
        // The text is nearly always a lower-case name. One pass without a branch detects such a name.
        let (mut all, mut twins, mut before) = (0, 0, Byte::DOT);
        for &byte in text {
            let class = CLASSES[usize::from(byte)];
            all |= class;
            twins |= class & before;
            before = class;
        }
        match (all & Byte::OTHER) | (twins & Byte::DOT) {
            0 => Host::named(text, all),
            _ => Host::read_rest(text),
        }
    }

    /// Reads text that is more than a name. The text is split at the first byte that cannot be part of a name.
    #[cold]
    fn read_rest(text: &'a [u8]) -> Option<Host<'a>> {
        let (mut all, mut before) = (0, Byte::DOT);
        let ends = |&byte: &u8| {
            let class = CLASSES[usize::from(byte)];
            let ends = class == Byte::OTHER || class & before & Byte::DOT != 0;
            if !ends {
                (all, before) = (all | class, class);
            }
            ends
        };
        let at = text.iter().position(ends)?;
        let (head, rest) = text.split_at(at);
        if let (b"", [b'[', inside @ ..]) = (head, rest) {
            let end = inside.iter().position(|&byte| byte == b']')?;
            return ipv6(&inside[..end]).filter(|_| is_port(&inside[end + 1..]));
        }
        match is_port(rest) {
            true => Host::named(head, all).or_else(|| ipv6(text)),
            false => ipv6(text),
        }
    }

    fn named(text: &'a [u8], all: u8) -> Option<Host<'a>> {
        let name = text.strip_suffix(b".").unwrap_or(text);
        let is_name = (1..=NAME_BYTES_MAX).contains(&name.len());
        is_name.then_some(Host::Name { name, is_lower: all & Byte::UPPER == 0 })
    }
}

/// The position of the path in text that joins a host and a path, like HAProxy's `base`.
pub fn path_of_base(text: &[u8]) -> usize {
    text.iter().position(|byte| matches!(byte, b'/' | b'*')).unwrap_or(text.len())
}

/// A host in canonical form, followed by `rest`. None if the text is not a host.
///
/// ```
/// use slowlane_core::base::in_one_form;
/// assert_eq!(in_one_form(b"Shop.Example.:80", b"/Login").unwrap(), b"shop.example/Login");
/// assert_eq!(in_one_form(b"[::0:1]:80", b"/").unwrap(), b"::1/");
/// assert_eq!(in_one_form(b"shop.example,x", b"/"), None);
/// ```
pub fn in_one_form(host: &[u8], rest: &[u8]) -> Option<Vec<u8>> {
    let form = match Host::read(host)? {
        Host::Name { name, .. } => name.to_ascii_lowercase(),
        Host::Ipv6(address) => canonical(address.into()).to_string().into_bytes(),
    };
    Some([&form, rest].concat())
}

/// Reads an IPv6 address without brackets. Such an address is not a valid `Host` header, but HAProxy can send one.
fn ipv6(text: &[u8]) -> Option<Host<'static>> {
    Some(Host::Ipv6(std::str::from_utf8(text).ok()?.parse().ok()?))
}

/// Whether the text is empty, or a colon and digits. A port may be empty (RFC 3986, section 3.2.3).
fn is_port(text: &[u8]) -> bool {
    match text {
        [] => true,
        [b':', digits @ ..] => digits.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

/// Classes of bytes in a host name, one bit for each class.
struct Byte;

impl Byte {
    const LABEL: u8 = 1;
    const UPPER: u8 = 2;
    const DOT: u8 = 4;
    /// A byte that occurs in no name.
    const OTHER: u8 = 8;
}

const CLASSES: [u8; 256] = {
    let mut classes = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        classes[byte] = match byte as u8 {
            b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | 0x80.. => Byte::LABEL,
            b'A'..=b'Z' => Byte::UPPER,
            b'.' => Byte::DOT,
            _ => Byte::OTHER,
        };
        byte += 1;
    }
    classes
};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(text: &str) -> Option<(&[u8], bool)> {
        match Host::read(text.as_bytes())? {
            Host::Name { name, is_lower } => Some((name, is_lower)),
            Host::Ipv6(_) => None,
        }
    }

    #[test]
    fn a_port_and_a_final_dot_are_no_part_of_a_name() {
        for text in ["shop.example", "shop.example.", "shop.example:", "shop.example:80", "shop.example.:80"]
        {
            assert_eq!(name(text), Some((&b"shop.example"[..], true)), "{text}");
        }
        assert_eq!(name("Shop.Example.:8443"), Some((&b"Shop.Example"[..], false)));
        assert_eq!(name("a_b-c.1"), Some((&b"a_b-c.1"[..], true)));
        assert_eq!(name("b\u{fc}cher.example"), Some(("b\u{fc}cher.example".as_bytes(), true)));
    }

    #[test]
    fn what_servers_read_in_different_ways_is_no_host() {
        let odd = [
            "",
            ".",
            ":",
            ":80",
            "..",
            ".shop.example",
            "shop..example",
            "shop.example..",
            "shop.example:80x",
            "shop.example:80:80",
            "shop.example,x",
            "x,shop.example",
            "shop.example, x",
            " shop.example",
            "shop.example ",
            "shop.example\t",
            "shop.example/",
            "ann@shop.example",
            "shop.example#",
            "shop%2eexample",
            "shop.example\\",
            "shop.example\0",
            "shop.example\u{7f}",
            "*.example",
            "2001:db8::1:x",
            "[::1",
            "::1]",
            "[]",
            "[::1]x",
            "[::1].",
            "[192.0.2.1]",
            "[fe80::1%eth0]",
            "[[::1]]",
            "x[::1]",
        ];
        for text in odd {
            assert_eq!(Host::read(text.as_bytes()), None, "{text:?}");
        }
        assert!(Host::read(&[b'a'; NAME_BYTES_MAX]).is_some());
        assert_eq!(Host::read(&[b'a'; NAME_BYTES_MAX + 1]), None);
    }

    #[test]
    fn an_address_in_brackets_has_one_form() {
        let address = Some(Host::Ipv6("2001:db8::1".parse().unwrap()));
        for text in ["[2001:db8::1]", "[2001:DB8:0:0::0001]:443", "[2001:db8:0::1]:", "2001:db8::1"] {
            assert_eq!(Host::read(text.as_bytes()), address, "{text}");
        }
    }

    proptest! {
        /// Reading is idempotent, and no spelling of the client changes the name.
        #[test]
        fn a_name_is_read_the_same_in_every_spelling(
            labels in prop::collection::vec("[a-zA-Z0-9_-]{1,20}", 1..6), dot: bool, port in prop::option::of("[0-9]{0,6}"),
        ) {
            let plain = labels.join(".");
            let mut text = plain.clone();
            if dot {
                text.push('.');
            }
            if let Some(port) = port {
                text = format!("{text}:{port}");
            }
            let is_lower = plain == plain.to_ascii_lowercase();
            prop_assert_eq!(name(&text), Some((plain.as_bytes(), is_lower)));
        }

        /// A host is made of the bytes that it came in, and none that a map or a log could misread.
        #[test]
        fn any_bytes_are_read_without_a_panic(text in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Some(Host::Name { name, .. }) = Host::read(&text) {
                prop_assert!(text.starts_with(name));
                prop_assert!(!name.iter().any(|byte| b" \t\r\n,:/[]%@".contains(byte)));
                prop_assert_eq!(Host::read(name), Host::read(&text));
            }
        }
    }
}
