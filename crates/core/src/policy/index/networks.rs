//! `ip`: keys that begin with a network, which a `+` and the rest of the key may follow.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::hash::BuildHasher;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};

use crate::base::network::{read, untranslated};
use crate::base::v6_mask;
use crate::policy::{Pattern, PolicyErrorKind, quoted};

/// Networks of both families. The longest prefix wins; if two networks and their rests are equal, the first line wins.
#[derive(Debug)]
pub(in crate::policy) struct Networks {
    has_rest: bool,
    ipv4: Family<4>,
    ipv6: Family<16>,
    hasher: DefaultHashBuilder,
}

impl Networks {
    /// An empty index for keys like `192.0.2.0/24` or, with a rest, like `192.0.2.0/24+shop.example`.
    pub(in crate::policy) fn new(has_rest: bool) -> Networks {
        let (ipv4, ipv6) = (Family::default(), Family::default());
        Networks { has_rest, ipv4, ipv6, hasher: DefaultHashBuilder::default() }
    }

    /// Adds a pattern, unless an earlier one has the same network and rest. Returns that earlier pattern, if any.
    pub(in crate::policy) fn insert(
        &mut self,
        pattern: Pattern,
        text: &[u8],
    ) -> Result<Option<Pattern>, PolicyErrorKind> {
        let key = pattern.key(text);
        let network_length = if self.has_rest {
            key.iter().position(|&byte| byte == b'+').ok_or_else(|| PolicyErrorKind::NoRest(quoted(key)))?
        } else {
            key.len()
        };
        let network = read(&key[..network_length]).ok_or_else(|| PolicyErrorKind::Network(quoted(key)))?;
        let (address, prefix) =
            untranslated(network).ok_or_else(|| PolicyErrorKind::Translators(quoted(key)))?;
        let skipped = network_length + usize::from(self.has_rest);
        let rest = pattern.part(skipped, key.len() - skipped);
        Ok(match address {
            IpAddr::V4(v4) => self.ipv4.insert(ipv4_bits(v4), prefix, rest, text, &self.hasher),
            IpAddr::V6(v6) => self.ipv6.insert(v6.to_bits(), prefix, rest, text, &self.hasher),
        })
    }

    /// Reads the memory that [`find`](Networks::find) reads first, for keys without a rest.
    #[inline]
    pub(in crate::policy) fn look(&self, address: IpAddr) -> u32 {
        match address {
            IpAddr::V4(v4) => self.ipv4.look(ipv4_bits(v4), &self.hasher),
            IpAddr::V6(v6) => self.ipv6.look(v6.to_bits(), &self.hasher),
        }
    }

    /// The line of the longest prefix that matches the address, among the lines with this rest. As in HAProxy, an
    /// address is looked up among the networks of its own family, then among those of the other family.
    #[inline]
    pub(in crate::policy) fn find(&self, address: IpAddr, rest: &[u8], text: &[u8]) -> Option<Pattern> {
        let rest = Rest::new(rest, &self.hasher);
        let in_ipv4 = |v4: Ipv4Addr| self.ipv4.find(ipv4_bits(v4), rest, text, &self.hasher);
        let in_ipv6 = |v6: Ipv6Addr| self.ipv6.find(v6.to_bits(), rest, text, &self.hasher);
        match address {
            IpAddr::V4(v4) => in_ipv4(v4).or_else(|| in_ipv6(v4.to_ipv6_mapped())),
            IpAddr::V6(v6) => in_ipv6(v6).or_else(|| in_ipv4(embedded(v6)?)),
        }
    }

    /// The line for all IPv4 addresses, if keys have no rest.
    pub(in crate::policy) fn all_ipv4(&self) -> Option<Pattern> {
        self.ipv4.whole().map(|network| network.rest).next()
    }

    /// The line for all IPv6 addresses, if keys have no rest.
    pub(in crate::policy) fn all_ipv6(&self) -> Option<Pattern> {
        self.ipv6.whole().map(|network| network.rest).next()
    }

    /// The first line for all IPv4 addresses that has no counterpart, with the same rest, for all IPv6 addresses.
    pub(in crate::policy) fn ipv4_alone(&self, text: &[u8]) -> Option<Pattern> {
        let rests: HashSet<&[u8]> = self.ipv6.whole().map(|network| network.rest.key(text)).collect();
        let alone =
            |pattern: &Pattern| pattern.answer.place().is_some() && !rests.contains(pattern.key(text));
        self.ipv4.whole().map(|network| network.rest).filter(alone).min_by_key(|pattern| pattern.at())
    }
}

/// The IPv4 address that HAProxy sees in an IPv6 address: `::a.b.c.d` (RFC 4291) or 6to4 (RFC 3056). A
/// [canonical](crate::base::canonical) address is neither mapped nor translated.
fn embedded(v6: Ipv6Addr) -> Option<Ipv4Addr> {
    let bits = v6.to_bits();
    match v6.segments() {
        [0, 0, 0, 0, 0, 0, ..] => Some(Ipv4Addr::from_bits(bits as u32)),
        [0x2002, ..] => Some(Ipv4Addr::from_bits((bits >> 80) as u32)),
        _ => None,
    }
}

/// The bits of an IPv4 address, shifted to the top so that both families share masks.
fn ipv4_bits(v4: Ipv4Addr) -> u128 {
    u128::from(v4.to_bits()) << 96
}

/// The rest of a key, hashed once for all prefix lengths.
#[derive(Clone, Copy)]
struct Rest<'a> {
    bytes: &'a [u8],
    hash: u64,
}

impl<'a> Rest<'a> {
    fn new(bytes: &'a [u8], hasher: &DefaultHashBuilder) -> Rest<'a> {
        Rest { bytes, hash: if bytes.is_empty() { 0 } else { hasher.hash_one(bytes) } }
    }
}

/// A network and its pattern, in twelve bytes for IPv4 and twenty-four for IPv6.
#[derive(Clone, Copy, Debug)]
struct Network<const N: usize> {
    /// The bytes of the network's address: four for IPv4, sixteen for IPv6. A number instead of an array
    /// would need padding.
    bytes: [u8; N],
    rest: Pattern,
}

const _: () = assert!(size_of::<Network<4>>() == 12 && size_of::<Network<16>>() == 24);

/// The highest bytes of `bits`, as many as an address of the family has.
fn bytes_of<const N: usize>(bits: u128) -> [u8; N] {
    *bits.to_be_bytes().first_chunk().expect("an address has at most 16 bytes")
}

impl<const N: usize> Network<N> {
    /// The bits of the address, shifted to the top so that both families share masks.
    fn bits(&self) -> u128 {
        let mut all = [0; 16];
        all[..N].copy_from_slice(&self.bytes);
        u128::from_be_bytes(all)
    }
}

/// The networks of one prefix length.
#[derive(Debug)]
struct Length<const N: usize> {
    mask: u128,
    networks: HashTable<Network<N>>,
}

/// The networks of one family. A map has few prefix lengths, so one table per length is faster than a tree.
#[derive(Debug, Default)]
struct Family<const N: usize> {
    /// Sorted by prefix length, the longest first.
    lengths: Vec<Length<N>>,
}

impl<const N: usize> Family<N> {
    fn insert(
        &mut self,
        bits: u128,
        prefix: u8,
        rest: Pattern,
        text: &[u8],
        hasher: &DefaultHashBuilder,
    ) -> Option<Pattern> {
        let length = self.length(prefix);
        let network = Network { bytes: bytes_of(bits & length.mask), rest };
        let hash =
            |network: &Network<N>| hash(network.bits(), Rest::new(network.rest.key(text), hasher), hasher);
        let is_same =
            |other: &Network<N>| other.bytes == network.bytes && other.rest.key(text) == rest.key(text);
        match length.networks.entry(hash(&network), is_same, hash) {
            Entry::Occupied(first) => Some(first.get().rest),
            Entry::Vacant(vacant) => {
                vacant.insert(network);
                None
            }
        }
    }

    /// The networks that contain all addresses of the family.
    fn whole(&self) -> impl Iterator<Item = &Network<N>> {
        self.lengths.iter().filter(|length| length.mask == 0).flat_map(|length| length.networks.iter())
    }

    fn length(&mut self, prefix: u8) -> &mut Length<N> {
        let mask = v6_mask(prefix).to_bits();
        let place = self.lengths.binary_search_by_key(&Reverse(mask), |length| Reverse(length.mask));
        let place = place.unwrap_or_else(|place| {
            self.lengths.insert(place, Length { mask, networks: HashTable::new() });
            place
        });
        &mut self.lengths[place]
    }

    #[inline]
    fn look(&self, bits: u128, hasher: &DefaultHashBuilder) -> u32 {
        let look = |length: &Length<N>| {
            let hash = hash(bits & length.mask, Rest { bytes: b"", hash: 0 }, hasher);
            let slot = hash as usize & (length.networks.num_buckets() - 1);
            length.networks.get_bucket(slot).map_or(0, |network| network.rest.length() as u32)
        };
        self.lengths.iter().map(look).fold(0, u32::wrapping_add)
    }

    #[inline]
    fn find(&self, bits: u128, rest: Rest<'_>, text: &[u8], hasher: &DefaultHashBuilder) -> Option<Pattern> {
        self.lengths.iter().find_map(|length| {
            let bits = bits & length.mask;
            let is_rest = |network: &Network<N>| {
                // The text is elsewhere in memory, so it is read only if it can affect the result. Even an
                // empty comparison would read it.
                rest.bytes.len() == network.rest.length()
                    && (rest.bytes.is_empty() || network.rest.key(text) == rest.bytes)
            };
            let wanted = bytes_of(bits);
            let is_same = |network: &Network<N>| network.bytes == wanted && is_rest(network);
            Some(length.networks.find(hash(bits, rest, hasher), is_same)?.rest)
        })
    }
}

/// Hashes a network and a rest in one step. The rest is already a seeded hash, so clients cannot choose it.
fn hash(bits: u128, rest: Rest<'_>, hasher: &DefaultHashBuilder) -> u64 {
    hasher.hash_one(bits ^ u128::from(rest.hash))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::base::canonical;
    use crate::policy::{Answer, map};

    /// The networks of a map; each answers with its line number.
    fn networks(text: &str, has_rest: bool) -> Networks {
        let mut networks = Networks::new(has_rest);
        for line in map::lines(text.as_bytes()).map(Result::unwrap) {
            let pattern = Pattern::new(line.at, line.key, Answer::slo(line.number));
            networks.insert(pattern, text.as_bytes()).unwrap();
        }
        networks
    }

    /// The line that matches an address.
    fn find(text: &str, address: &str) -> Option<usize> {
        let address: IpAddr = address.parse().unwrap();
        let found = networks(text, false).find(canonical(address), b"", text.as_bytes());
        found.map(|pattern| pattern.answer.place().unwrap())
    }

    #[test]
    fn the_longest_prefix_wins_wherever_it_stands() {
        let map = "10.1.0.0/16\n10.0.0.0/8\n10.1.2.3\n0.0.0.0/0\n";
        assert_eq!(find(map, "10.1.2.3"), Some(3));
        assert_eq!(find(map, "10.1.2.4"), Some(1));
        assert_eq!(find(map, "10.2.0.0"), Some(2));
        assert_eq!(find(map, "192.0.2.1"), Some(4));
        assert_eq!(find(map, "2001:db8::1"), None);
    }

    #[test]
    fn host_bits_mean_nothing_and_the_first_of_two_wins() {
        assert_eq!(find("10.1.2.3/8\n10.9.9.9/8\n", "10.0.0.1"), Some(1));
        assert_eq!(find("2001:db8::1/32\n2001:db8::/32\n", "2001:db8:1::"), Some(1));
    }

    #[test]
    fn a_mask_may_be_dotted_if_its_ones_come_first() {
        assert_eq!(read(b"10.0.0.0/255.255.0.0"), read(b"10.0.0.0/16"));
        assert_eq!(read(b"10.0.0.0/0.0.0.0"), read(b"10.0.0.0/0"));
        assert_eq!(read(b"10.0.0.0/255.255.255.255"), read(b"10.0.0.0"));
        assert_eq!(read(b"10.0.0.0/255.0.255.0"), None);
    }

    #[test]
    fn invalid_networks_are_refused() {
        for key in ["", "/", "10", "10.0.0.0/", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/8/8", "10.0.0.256"] {
            assert_eq!(read(key.as_bytes()), None, "{key}");
        }
        for key in ["::/129", "::1/ffff::", "::/255.0.0.0", "fe80::1%eth0", "[::1]", "localhost", "010.0.0.1"]
        {
            assert_eq!(read(key.as_bytes()), None, "{key}");
        }
        assert_eq!(read(b"\xff"), None);
    }

    #[test]
    fn a_family_looks_into_the_other_after_its_own() {
        let map = "::ffff:10.1.0.0/112\n10.0.0.0/8\n::ffff:192.0.2.0/120\n::/0\n";
        assert_eq!(find(map, "10.1.0.1"), Some(2), "as in HAProxy");
        assert_eq!(find(map, "192.0.2.1"), Some(3));
        assert_eq!(find(map, "::ffff:192.0.2.1"), Some(3));
        assert_eq!(find(map, "203.0.113.1"), Some(4));

        let map = "192.0.2.0/24\n2002:c000:202::/48\n";
        assert_eq!(find(map, "2002:c000:201::1"), Some(1));
        assert_eq!(find(map, "2002:c000:202::1"), Some(2));
        assert_eq!(find(map, "::192.0.2.1"), Some(1));
    }

    #[test]
    fn networks_of_translated_addresses_are_networks_of_ipv4() {
        let map = "64:ff9b::192.0.2.0/120\n192.0.0.0/8\n64:ff9b::203.0.113.7\n64:ff9b:1::/48\n";
        for (address, line) in [
            ("192.0.2.1", Some(1)),
            ("64:ff9b::192.0.2.1", Some(1)),
            ("::ffff:192.0.2.1", Some(1)),
            ("64:ff9b::192.1.2.3", Some(2)),
            ("203.0.113.7", Some(3)),
            ("64:ff9b:1::192.0.2.1", Some(4)),
            ("64:ff9b::203.0.113.8", None),
        ] {
            assert_eq!(find(map, address), line, "{address}");
        }
        for key in [&b"64:ff9b::/96"[..], b"64:ff9b::1.2.3.4/96"] {
            let all = Pattern::new(0, key, Answer::NEXT);
            let refused = Networks::new(false).insert(all, key);
            assert!(matches!(refused, Err(PolicyErrorKind::Translators(_))), "{refused:?}");
        }
    }

    #[test]
    fn the_rest_is_part_of_the_key() {
        let map = "10.0.0.0/8+shop.example\n10.1.0.0/16+blog.example\n10.0.0.0/8+a+b\n10.0.0.0/8+\n";
        let networks = networks(map, true);
        let find = |rest: &[u8]| {
            let found = networks.find("10.1.2.3".parse().unwrap(), rest, map.as_bytes());
            found.map(|pattern| pattern.answer.place().unwrap())
        };
        assert_eq!(find(b"shop.example"), Some(1));
        assert_eq!(find(b"blog.example"), Some(2));
        assert_eq!(find(b"a+b"), Some(3));
        assert_eq!(find(b""), Some(4));
        assert_eq!(find(b"a"), None);

        let mut networks = Networks::new(true);
        let alone = Pattern::new(0, b"10.0.0.0/8", Answer::NEXT);
        assert_eq!(networks.insert(alone, b"10.0.0.0/8"), Err(PolicyErrorKind::NoRest("10.0.0.0/8".into())));
    }

    /// HAProxy's order, found by trying every line.
    fn brute_force(map: &[(IpAddr, u8)], address: IpAddr) -> Option<usize> {
        let longest = |address: IpAddr| {
            let covers = |&(network, prefix): &(IpAddr, u8)| match (network, address) {
                (IpAddr::V4(n), IpAddr::V4(a)) => {
                    (n.to_bits() ^ a.to_bits()).leading_zeros() >= prefix.into()
                }
                (IpAddr::V6(n), IpAddr::V6(a)) => {
                    (n.to_bits() ^ a.to_bits()).leading_zeros() >= prefix.into()
                }
                _ => false,
            };
            let lines = map.iter().enumerate().filter(|(_, network)| covers(network));
            lines.max_by_key(|&(index, &(_, prefix))| (prefix, Reverse(index))).map(|(index, _)| index + 1)
        };
        longest(address).or_else(|| match address {
            IpAddr::V4(v4) => longest(v4.to_ipv6_mapped().into()),
            IpAddr::V6(v6) => longest(embedded(v6)?.into()),
        })
    }

    /// Few distinct bits, so that addresses and networks often overlap.
    fn addresses() -> impl Strategy<Value = IpAddr> {
        let few = || prop::collection::vec(prop::sample::select(vec![0u8, 1, 10, 255]), 4);
        let v4 = few().prop_map(|bytes| Ipv4Addr::from_octets(bytes.try_into().unwrap()));
        let v6 = (prop::sample::select(vec!["::", "2001:db8::", "2002::", "::ffff:0:0", "64:ff9b::"]), few())
            .prop_map(|(network, bytes)| {
                let low = u128::from(u32::from_be_bytes(bytes.try_into().unwrap()));
                let shift = if network == "2002::" { 80 } else { 0 };
                Ipv6Addr::from_bits(network.parse::<Ipv6Addr>().unwrap().to_bits() | low << shift)
            });
        prop_oneof![v4.prop_map(IpAddr::V4), v6.prop_map(IpAddr::V6)]
    }

    proptest! {
        #[test]
        fn the_longest_prefix_wins_as_when_trying_every_line(
            map in prop::collection::vec((addresses(), 0u8..=128), 0..20),
            asked in prop::collection::vec(addresses(), 1..9),
        ) {
            let whole = |(address, prefix): (IpAddr, u8)| {
                (address, if address.is_ipv4() { prefix % 33 } else { prefix })
            };
            let map = map.into_iter().map(whole).filter(|&network| untranslated(network).is_some());
            let map: Vec<_> = map.collect();
            let text: String = map.iter().map(|(address, prefix)| format!("{address}/{prefix}\n")).collect();
            let map: Vec<_> = map.into_iter().filter_map(untranslated).collect();
            for address in asked.into_iter().map(canonical) {
                prop_assert_eq!(find(&text, &address.to_string()), brute_force(&map, address), "{}", address);
            }
        }
    }

    #[test]
    fn networks_and_rests_are_spread_by_their_hashes() {
        let hasher = DefaultHashBuilder::default();
        let of = |bits, rest: &[u8]| hash(bits, Rest::new(rest, &hasher), &hasher);
        let hashes = [of(1, b""), of(2, b""), of(1, b"shop.example"), of(1, b"blog.example")];
        assert_eq!(hashes.iter().collect::<HashSet<_>>().len(), hashes.len());
    }
}
