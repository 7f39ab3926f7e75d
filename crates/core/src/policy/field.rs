//! A field: its name, the kind of its values and, for a derived field, how slowlane derives it from another field.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::base::{Host, Network, Value, is_same_name, path_of_base, peer};
use crate::policy::layout::is_base;
use crate::policy::watch::Watch;
use crate::policy::{Derivation, LookupMap, Place, is_host};

/// A field that a policy or a block uses.
#[derive(Debug)]
pub(super) struct Field {
    name: String,
    head: Head,
    is_address: bool,
    is_host: bool,
    is_base: bool,
    /// Whether the field holds addresses, hosts or bases. If so, maps and keys use a converted form of the values.
    converts: bool,
    /// None if only blocks use the field.
    watch: Option<(Arc<Watch>, Place)>,
}

/// The length of a name and eight of its bytes: most names have no more. Numbers are compared faster than text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    length: usize,
    bytes: u64,
}

impl Head {
    pub(super) fn of(name: &[u8]) -> Head {
        let bytes = match (name.first_chunk(), name.first_chunk(), name.last_chunk()) {
            (Some(&first), ..) => u64::from_le_bytes(first),
            // With five to seven bytes, the two chunks overlap.
            (None, Some(&first), Some(&last)) => {
                u64::from(u32::from_le_bytes(first)) << 32 | u64::from(u32::from_le_bytes(last))
            }
            _ => name.iter().fold(0, |bytes, &byte| bytes << 8 | u64::from(byte)),
        };
        Head { length: name.len(), bytes }
    }

    /// Whether the name may contain a `-` or `_`, and so could be spelled differently.
    #[inline]
    pub(super) fn may_be_spelled_otherwise(self) -> bool {
        const ONES: u64 = u64::from_le_bytes([1; 8]);
        // The subtraction sets the highest bit of each byte of `other` that is 0.
        let has = |byte: u8| {
            let other = self.bytes ^ (ONES * u64::from(byte));
            other.wrapping_sub(ONES) & !other & (ONES << 7) != 0
        };
        self.length > 8 || has(b'-') || has(b'_')
    }
}

impl Field {
    /// A field with this name. `is_address` says whether the field holds addresses.
    pub(super) fn new(name: &str, is_address: bool) -> Field {
        let (is_host, is_base) = (is_host(name), is_base(name));
        Field {
            name: name.to_owned(),
            head: Head::of(name.as_bytes()),
            is_address,
            is_host,
            is_base,
            converts: is_address || is_host || is_base,
            watch: None,
        }
    }

    /// The same field, set up to report to `watch` any value that is not an address, if the field holds addresses.
    pub(super) fn watched(self, watch: &Arc<Watch>, place: Place) -> Field {
        Field { watch: Some((watch.clone(), place)), ..self }
    }

    /// A field that the policy does not use. Under every policy, the field `source` holds addresses.
    pub(super) fn extra(name: &str) -> Field {
        Field::new(name, name == "source")
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Whether the field's values begin with a host.
    pub(super) fn has_host(&self) -> bool {
        self.is_host || self.is_base
    }

    pub(super) fn is_address(&self) -> bool {
        self.is_address
    }

    /// Whether a name is spelled exactly as the policy spells the field's name.
    #[inline]
    pub(super) fn is_written(&self, head: Head, name: &[u8]) -> bool {
        self.head == head && (name.len() <= 8 || self.name.as_bytes() == name)
    }

    /// Whether a name is the field's name. `-` and `_` count as equal.
    pub(super) fn is_named(&self, name: &[u8]) -> bool {
        is_same_name(self.name.as_bytes(), name)
    }

    /// Converts text to an address if the field holds addresses, and to canonical form if it holds hosts.
    /// nginx sends addresses as text, and HAProxy sends them as four or sixteen bytes.
    pub(super) fn value<'a>(&self, value: Value<'a>) -> Value<'a> {
        let mut slot = None;
        self.put(value, &mut slot);
        slot.unwrap_or(value)
    }

    /// Converts a value and puts it into `slot`.
    #[inline]
    pub(super) fn put<'a>(&self, value: Value<'a>, slot: &mut Option<Value<'a>>) {
        if self.converts && !matches!(value, Value::Address(_)) {
            return self.put_converted(value, slot);
        }
        *slot = Some(value);
    }

    // This function is separate because, inlined into `put`, it would make the compiler copy all values byte by byte.
    #[inline(never)]
    fn put_converted<'a>(&self, value: Value<'a>, slot: &mut Option<Value<'a>>) {
        *slot = Some(match value {
            Value::Text(text) if self.is_host && !text.is_empty() => host(text),
            Value::Text(text) if self.is_base => base(text),
            Value::Text(_) | Value::Number(_) if self.is_address => {
                let address = if let Value::Text(text) = value { peer(text) } else { None };
                if address.is_none() {
                    self.has_no_address();
                }
                address.map_or(value, Value::address)
            }
            _ => value,
        });
    }

    /// Reports that a value is not an address where an address is needed.
    #[cold]
    #[inline(never)]
    fn has_no_address(&self) {
        if let Some((watch, place)) = &self.watch {
            watch.suspect(*place);
        }
    }
}

#[inline]
fn host(text: &[u8]) -> Value<'_> {
    match Host::read(text) {
        Some(Host::Name { name, is_lower: true }) => Value::Text(name),
        Some(Host::Name { name, is_lower: false }) => Value::Name(name),
        Some(Host::Ipv6(address)) => Value::address(address.into()),
        None => Value::NoHost(text),
    }
}

/// Reads the value of a `base` field. If the request has no host, the value is only a path.
fn base(text: &[u8]) -> Value<'_> {
    let path = path_of_base(text);
    match Host::read(&text[..path]) {
        _ if path == 0 => Value::Text(text),
        Some(Host::Name { name, is_lower: true }) if name.len() == path => Value::Text(text),
        Some(_) => Value::Base { text, path },
        None => Value::NoHost(text),
    }
}

/// A derived field among the fields of a policy.
#[derive(Debug)]
pub(super) struct Derived {
    pub(super) from: Place,
    pub(super) to: Place,
    /// The index of the field's [`Maker`].
    pub(super) maker: usize,
    /// Whether a decision or a block reads the derived field. If neither does, its value is not computed.
    pub(super) is_needed: AtomicBool,
}

/// How a derived field is made, whether or not the policy uses the field.
#[derive(Debug)]
pub(super) struct Maker {
    pub(super) name: String,
    pub(super) derivation: Derivation,
    /// The map that derives the field, if a map does. Only the origin of the field is looked up in this map.
    pub(super) map: Option<LookupMap>,
}

impl Maker {
    /// The value of the derived field, given the value of its origin.
    #[inline]
    pub(super) fn make<'a>(&'a self, field: &Field, from: &Option<Value<'a>>) -> Option<Value<'a>> {
        match (&self.derivation, from) {
            (&Derivation::Network { ipv4_prefix, ipv6_prefix, .. }, &Some(Value::Address(address))) => {
                let prefix = if address.is_ipv4() { ipv4_prefix } else { ipv6_prefix };
                Some(Value::Network(Network::of(address, prefix)))
            }
            _ => self.map.as_ref()?.value(from).map(|value| field.value(value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_looks_like_an_address_is_one_in_a_field_of_addresses_only() {
        for text in [&b"192.0.2.1:80"[..], b"2001:DB8::1"] {
            let read = |is_address| Field::new("peer", is_address).value(Value::Text(text));
            assert_eq!([read(false), read(true)], [Value::Text(text), Value::address(peer(text).unwrap())]);
        }
    }
}
