//! Clients' addresses: the notations in which proxies write them, and IPv6 addresses that carry IPv4 addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV4};

/// The first 96 bits of `::ffff:0:0/96`, whose addresses are IPv4-mapped (RFC 4291, section 2.5.5.2).
const MAPPED: u128 = 0xffff;

/// The first 96 bits of `64:ff9b::/96`, under which translators represent IPv4 addresses (RFC 6052, section 2.1).
const TRANSLATED: u128 = 0x0064_ff9b << 64;

/// The IPv4 address that an IPv6 address carries, if the latter is IPv4-mapped or has the translators'
/// well-known prefix. Any other address is returned unchanged.
///
/// ```
/// use slowlane_core::base::canonical;
/// let read = |text: &str| canonical(text.parse().unwrap()).to_string();
/// assert_eq!([read("::ffff:192.0.2.1"), read("64:ff9b::c000:201")], ["192.0.2.1"; 2]);
/// assert_eq!(read("64:ff9b:1::c000:201"), "64:ff9b:1::c000:201");
/// ```
#[inline]
pub const fn canonical(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else { return address };
    match v6.to_bits() >> 32 {
        MAPPED | TRANSLATED => IpAddr::V4(Ipv4Addr::from_bits(v6.to_bits() as u32)),
        _ => address,
    }
}

/// Whether a translator has made this address from an IPv4 address.
pub(crate) const fn is_translated(address: Ipv6Addr) -> bool {
    address.to_bits() >> 32 == TRANSLATED
}

/// The IP address of a peer, as proxies write it: alone, with a port, in brackets, with a zone or between blanks.
///
/// None unless the text stands for exactly one address: a list has several, and a name has none.
///
/// ```
/// use slowlane_core::base::peer;
/// let read = |text: &str| peer(text.as_bytes()).map(|address| address.to_string());
/// for text in ["192.0.2.1", "192.0.2.1:1234", "[192.0.2.1]:80", " 192.0.2.1\t"] {
///     assert_eq!(read(text).unwrap(), "192.0.2.1");
/// }
/// for text in ["2001:db8::1", "[2001:db8::1]", "[2001:db8::1]:443", "2001:DB8::1%eth0", "[2001:db8::1%2]:443"] {
///     assert_eq!(read(text).unwrap(), "2001:db8::1");
/// }
/// for text in ["192.0.2.1, 10.0.0.1", "192.0.2.1:", "192.0.2.1:x", "shop.example:1", "unix:", "-", "192.0.2", ""] {
///     assert_eq!(read(text), None);
/// }
/// ```
pub fn peer(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?;
    match text.parse() {
        Ok(address) => Some(address),
        Err(_) => dressed(text),
    }
}

/// Reads an address with a port, a zone, or surrounding brackets or blanks.
#[cold]
fn dressed(text: &str) -> Option<IpAddr> {
    let text = text.trim_matches(|letter: char| letter.is_ascii_whitespace());
    if let Some(inside) = text.strip_prefix('[') {
        let (address, rest) = inside.split_once(']')?;
        return alone(address).filter(|_| is_port(rest));
    }
    alone(text).or_else(|| Some(IpAddr::V4(*text.parse::<SocketAddrV4>().ok()?.ip())))
}

/// Reads a bare address, which may have a zone if it is IPv6 (RFC 4007, section 11).
fn alone(text: &str) -> Option<IpAddr> {
    let zoned = || {
        let (address, zone) = text.split_once('%')?;
        let is_zone =
            !zone.is_empty() && zone.bytes().all(|byte| byte.is_ascii_graphic() && !b",;%[]".contains(&byte));
        Some(IpAddr::V6(address.parse().ok().filter(|_| is_zone)?))
    };
    text.parse().ok().or_else(zoned)
}

/// Whether the text is empty, or a colon and a port.
fn is_port(text: &str) -> bool {
    let digits = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok();
    text.is_empty() || text.strip_prefix(':').is_some_and(digits)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn an_address_is_the_same_however_a_proxy_writes_it(
            bits in any::<u128>(), is_ipv4 in any::<bool>(), port in any::<u16>(), before in "[ \t]{0,2}",
        ) {
            let address: IpAddr =
                if is_ipv4 { Ipv4Addr::from_bits(bits as u32).into() } else { Ipv6Addr::from_bits(bits).into() };
            let with_port = if is_ipv4 { format!("{address}:{port}") } else { format!("[{address}]:{port}") };
            for text in [address.to_string(), with_port, format!("[{address}]"), format!("[{address}]:{port}")] {
                prop_assert_eq!(peer(format!("{before}{text} ").as_bytes()), Some(address), "{}", text);
                for list in [format!("{text}, {text}"), format!("{text},{text}"), format!("{text} {text}")] {
                    prop_assert_eq!(peer(list.as_bytes()), None, "{}", list);
                }
            }
        }

        #[test]
        fn any_bytes_are_an_address_or_none(text in "[0-9a-f:.%\\[\\], x-]{0,24}") {
            peer(text.as_bytes());
        }

        /// The form of the standard library for mapped addresses, and the same for translated ones.
        #[test]
        fn an_address_that_carries_ipv4_is_that_address(bits in any::<u128>(), v4 in any::<u32>()) {
            let v4 = Ipv4Addr::from_bits(v4);
            let translated = Ipv6Addr::from_bits(TRANSLATED << 32 | u128::from(v4.to_bits()));
            prop_assert_eq!(canonical(v4.to_ipv6_mapped().into()), IpAddr::V4(v4));
            prop_assert_eq!(canonical(translated.into()), IpAddr::V4(v4));
            prop_assert_eq!(canonical(v4.into()), IpAddr::V4(v4));
            let any = IpAddr::V6(Ipv6Addr::from_bits(bits));
            prop_assert_eq!(canonical(any), any.to_canonical());
        }
    }
}
