//! The fields of a layout, and their values in one request.

use std::fmt::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use arrayvec::ArrayVec;

use crate::base::address::peer;
use crate::base::host::Host;
use crate::base::key::KeyHasher;
use crate::base::network::{Network, v4_mask, v6_mask};
use crate::base::request::{FIELDS_MAX, Value, is_same_name};
use crate::policy::layout::{Layout, is_host};

/// The place of a field among the [`Fields`].
pub(super) type Place = usize;

#[derive(Debug)]
struct Field {
    name: String,
    head: Head,
    is_address: bool,
    is_host: bool,
}

/// The length of a name and eight of its bytes, which are all bytes of most names. Numbers are
/// compared faster than texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    length: usize,
    bytes: u64,
}

impl Head {
    fn of(name: &[u8]) -> Head {
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
}

impl Field {
    /// Turns text into an address if the field holds addresses, and into the one form of a host if it holds hosts.
    /// nginx sends an address as text, where HAProxy sends four or sixteen bytes.
    #[inline]
    fn value<'a>(&self, value: Value<'a>) -> Value<'a> {
        match value {
            Value::Text(text) if self.is_host && !text.is_empty() => host(text),
            Value::Text(text) if self.is_address => peer(text).map_or(value, Value::address),
            _ => value,
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

/// The field with the number of requests that a request counts for.
const COST: &str = "cost";

/// The fields that a request can carry, and the cost.
pub(super) const PLACES_MAX: usize = FIELDS_MAX + 1;

/// The fields that a policy uses, each once.
#[derive(Debug)]
pub(super) struct Fields {
    fields: Vec<Field>,
    cost: Place,
    ipv4_mask: Ipv4Addr,
    ipv6_mask: Ipv6Addr,
}

impl Fields {
    /// The fields of a layout and of `share` options. None if they are more than a request can carry.
    pub(super) fn new<'a>(layout: &'a Layout, shares: impl Iterator<Item = &'a str>) -> Option<Fields> {
        let mut names = layout.field_names();
        names.extend(shares);
        let is_too_many = names.len() > FIELDS_MAX;
        names.insert(COST);
        let cost = names.iter().position(|name| *name == COST).expect("it was just put in");
        let field = |name: &str| Field {
            name: name.to_owned(),
            head: Head::of(name.as_bytes()),
            is_address: layout.is_address(name),
            is_host: is_host(name),
        };
        (!is_too_many).then(|| Fields {
            fields: names.into_iter().map(field).collect(),
            cost,
            ipv4_mask: v4_mask(layout.ipv4_prefix()),
            ipv6_mask: v6_mask(layout.ipv6_prefix()),
        })
    }

    pub(super) fn places(&self, names: &[String]) -> Box<[Place]> {
        names.iter().map(|name| self.place(name)).collect()
    }

    pub(super) fn place(&self, name: &str) -> Place {
        let place = self.fields.iter().position(|field| field.name == name);
        place.expect("a field of the layout, or one that is shared by")
    }

    /// The field that holds hosts, if the policy knows one.
    pub(super) fn host(&self) -> Option<Place> {
        self.fields.iter().position(|field| field.is_host)
    }

    pub(super) fn count(&self) -> usize {
        self.fields.len()
    }

    pub(super) fn name(&self, place: Place) -> &str {
        &self.fields[place].name
    }

    /// Leading bits of an address that identify one customer, if not all do.
    pub(super) fn prefix(&self, place: Place, value: Value<'_>) -> Option<u8> {
        let (prefix, whole) = match value {
            Value::Address(IpAddr::V4(_)) => (self.ipv4_mask.to_bits().count_ones(), 32),
            Value::Address(IpAddr::V6(_)) => (self.ipv6_mask.to_bits().count_ones(), 128),
            Value::Text(_) | Value::Number(_) | Value::Name(_) | Value::NoHost(_) => return None,
        };
        (self.fields[place].is_address && prefix < whole).then_some(prefix as u8)
    }

    pub(super) fn cost<'a>(&self, values: Values<'_, 'a>) -> Option<Value<'a>> {
        values.0[self.cost]
    }

    /// The values that are present, with the names of their fields.
    pub(super) fn named<'s, 'a: 's>(
        &'s self,
        values: Values<'s, 'a>,
    ) -> impl Iterator<Item = (&'s [u8], Value<'s>)> {
        let named =
            |(field, value): (&'s Field, &'s Option<Value<'a>>)| Some((field.name.as_bytes(), (*value)?));
        self.fields.iter().zip(values.0).filter_map(named)
    }

    /// Adds a value to a key. An address field adds the network of one customer; other fields add the text
    /// that a map would hold. A missing value counts as an empty one.
    pub(super) fn hash(&self, hasher: &mut KeyHasher, place: Place, values: Values<'_, '_>) {
        match &values.0[place] {
            Some(Value::Address(address)) if self.fields[place].is_address => {
                hasher.address(self.customer(*address))
            }
            Some(value) => hasher.part(Text::default().of(value)),
            None => hasher.part(b""),
        };
    }

    /// The value that [`hash`](Fields::hash) adds, as text. A network shows its length unless it is a single
    /// address.
    pub(super) fn customer_text(&self, place: Place, values: Values<'_, '_>) -> Option<Vec<u8>> {
        let value = values.0[place].as_ref()?;
        Some(match *value {
            Value::Address(address) if self.fields[place].is_address => {
                let prefix = self.prefix(place, *value).unwrap_or(u8::MAX);
                Network::of(address, prefix).to_string().into_bytes()
            }
            _ => Text::default().of(value).to_vec(),
        })
    }

    fn customer(&self, address: IpAddr) -> IpAddr {
        match address {
            IpAddr::V4(v4) => IpAddr::V4(v4 & self.ipv4_mask),
            IpAddr::V6(v6) => IpAddr::V6(v6 & self.ipv6_mask),
        }
    }
}

/// A request that is filled field by field while its bytes are read.
#[derive(Debug)]
pub struct Draft<'p, 'v, 'a> {
    fields: &'p [Field],
    values: &'v mut [Option<Value<'a>>],
    /// Number of fields that the request may still carry.
    left: usize,
}

impl<'p, 'v, 'a> Draft<'p, 'v, 'a> {
    /// `values` has an empty place for each field.
    pub(super) fn new(fields: &'p Fields, values: &'v mut [Option<Value<'a>>]) -> Draft<'p, 'v, 'a> {
        Draft { fields: &fields.fields, values, left: FIELDS_MAX }
    }

    /// Takes a field. The first of a name counts; fields after the 32nd are ignored.
    #[inline]
    pub fn field(&mut self, name: &[u8], value: Value<'a>) {
        let Some(left) = self.left.checked_sub(1) else { return };
        self.left = left;
        let head = Head::of(name);
        let is_it = |field: &Field| field.head == head && (name.len() <= 8 || field.name.as_bytes() == name);
        let as_written = self.fields.iter().position(is_it);
        let place = as_written.or_else(|| self.place_of_other_spelling(name));
        if let Some(place) = place
            && self.values[place].is_none()
        {
            self.values[place] = Some(self.fields[place].value(value));
        }
    }

    /// Headers have `-` where variables have `_`; most names have neither.
    fn place_of_other_spelling(&self, name: &[u8]) -> Option<Place> {
        if !name.iter().any(|byte| matches!(byte, b'-' | b'_')) {
            return None;
        }
        self.fields.iter().position(|field| is_same_name(field.name.as_bytes(), name))
    }
}

/// The values of a request, one place for each of the [`Fields`].
#[derive(Clone, Copy)]
pub(super) struct Values<'v, 'a>(pub(super) &'v [Option<Value<'a>>]);

impl<'v, 'a> Values<'v, 'a> {
    pub(super) fn address(self, place: Place) -> Option<IpAddr> {
        match self.0[place] {
            Some(Value::Address(address)) => Some(address),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn is_no_host(self, place: Place) -> bool {
        matches!(self.0[place], Some(Value::NoHost(_)))
    }

    /// The values joined by `+`, or none if one is missing. A single text is not copied.
    pub(super) fn joined<'t>(self, places: &[Place], text: &'t mut Text) -> Option<&'t [u8]>
    where
        'v: 't,
    {
        match *places {
            [] => Some(b""),
            [place] => Some(text.of(self.0[place].as_ref()?)),
            [first, ref others @ ..] => {
                text.push(self.0[first].as_ref()?);
                for &place in others {
                    text.push_bytes(b"+");
                    text.push(self.0[place].as_ref()?);
                }
                Some(text.bytes())
            }
        }
    }
}

/// Bytes joined on the stack. Longer text is rare and may allocate.
const STACK_BYTES: usize = 256;

/// Values in the notation of a map: addresses in canonical form, numbers in decimal, hosts in lower case.
#[derive(Default)]
pub(super) struct Text {
    stack: ArrayVec<u8, STACK_BYTES>,
    heap: Vec<u8>,
}

impl Text {
    /// The notation of one value. Text is not copied.
    fn of<'t>(&'t mut self, value: &Value<'t>) -> &'t [u8] {
        if let Value::Text(text) = *value {
            return text;
        }
        self.push(value);
        self.bytes()
    }

    fn push(&mut self, value: &Value<'_>) {
        let written = match *value {
            Value::Text(text) | Value::NoHost(text) => return self.push_bytes(text),
            Value::Name(name) => {
                return name.iter().for_each(|byte| self.push_bytes(&[byte.to_ascii_lowercase()]));
            }
            Value::Address(address) => write!(self, "{address}"),
            Value::Number(number) => write!(self, "{number}"),
        };
        written.expect("memory takes all that is written");
    }

    fn push_bytes(&mut self, bytes: &[u8]) {
        if self.heap.is_empty() {
            if self.stack.try_extend_from_slice(bytes).is_ok() {
                return;
            }
            self.heap.extend_from_slice(&self.stack);
        }
        self.heap.extend_from_slice(bytes);
    }

    fn bytes(&self) -> &[u8] {
        if self.heap.is_empty() { &self.stack } else { &self.heap }
    }
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push_bytes(text.as_bytes());
        Ok(())
    }
}
