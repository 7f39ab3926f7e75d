//! A request: its fields by name, borrowed from the bytes that the proxy sent.

use std::net::IpAddr;

use arrayvec::ArrayVec;

use crate::base::{Network, canonical};

/// The maximum number of fields in one request. Additional fields are ignored. The built-in types use three.
pub const FIELDS_MAX: usize = 32;

/// The value of a field. A request does not contain fields without a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)] // For copies in whole words, like `Data`.
pub enum Value<'a> {
    /// An address in canonical form: an IPv6 address that carries an IPv4 address has become the IPv4 address.
    Address(IpAddr),
    /// Any bytes, compared unchanged, whether UTF-8 or not.
    Text(&'a [u8]),
    Number(i64),
    /// A host name with upper-case letters, which counts as equal to the name in lower case.
    Name(&'a [u8]),
    /// The text of a host field that is not a [`Host`](crate::base::Host), or the value of a derived field whose map
    /// cannot be searched.
    NoHost(&'a [u8]),
    /// A host that is not in canonical form, followed by a path. Equal to the canonical form followed by the path.
    Base {
        text: &'a [u8],
        /// Where the path begins.
        path: usize,
    },
    /// The network of an address: the value of a derived field.
    Network(Network),
}

impl<'a> Value<'a> {
    /// The value of an address in its [canonical form](canonical).
    ///
    /// ```
    /// use slowlane_core::base::Value;
    /// let value = |text: &str| Value::address(text.parse().unwrap());
    /// assert_eq!([value("::ffff:192.0.2.1"), value("64:ff9b::192.0.2.1")], [value("192.0.2.1"); 2]);
    /// ```
    pub fn address(address: IpAddr) -> Value<'a> {
        Value::Address(canonical(address))
    }
}

/// A named fact about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    pub name: &'a [u8],
    pub value: Value<'a>,
}

/// The input of one decision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request<'a> {
    fields: ArrayVec<Field<'a>, FIELDS_MAX>,
}

impl<'a> Request<'a> {
    pub fn new() -> Request<'a> {
        Request::default()
    }

    /// Adds a field. The 33rd and later fields are dropped ([`FIELDS_MAX`]).
    pub fn push(&mut self, name: &'a [u8], value: Value<'a>) {
        let _ = self.fields.try_push(Field { name, value });
    }

    /// The first value with this name. `-` and `_` count as equal, because headers have `-` where variables have `_`.
    ///
    /// ```
    /// use slowlane_core::base::{Request, Value};
    /// let mut request = Request::new();
    /// request.push(b"website", Value::Text(b"shop.example"));
    /// assert_eq!(request.get(b"website"), Some(Value::Text(b"shop.example")));
    /// assert_eq!(request.get(b"owner"), None);
    /// request.push(b"api-key", Value::Number(7));
    /// assert_eq!(request.get(b"api_key"), Some(Value::Number(7)));
    /// ```
    pub fn get(&self, name: &[u8]) -> Option<Value<'a>> {
        self.fields.iter().find(|field| is_same_name(field.name, name)).map(|field| field.value)
    }

    /// The fields, in order of arrival.
    pub fn fields(&self) -> impl Iterator<Item = &Field<'a>> {
        self.fields.iter()
    }
}

/// Whether two names mean the same field. `-` and `_` count as equal.
pub fn is_same_name(one: &[u8], other: &[u8]) -> bool {
    let letter = |byte| if byte == b'-' { b'_' } else { byte };
    one.len() == other.len() && one.iter().zip(other).all(|(&a, &b)| a == b || letter(a) == letter(b))
}
