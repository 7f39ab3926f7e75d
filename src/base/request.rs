//! A request as a proxy tells it: fields, by name, borrowed from the wire.

use std::net::IpAddr;

use arrayvec::ArrayVec;

/// The most fields one request may carry; later ones are ignored. The built-in types use three.
pub const FIELDS_MAX: usize = 32;

/// The value of a field. A field that the proxy knew nothing of has no value: it is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)] // It is then copied by whole words, as `Data` is.
pub enum Value<'a> {
    /// An address; IPv4-mapped IPv6 is written as the IPv4 it maps.
    Address(IpAddr),
    /// Any bytes: names are compared as they came, UTF-8 or not.
    Text(&'a [u8]),
    Number(i64),
}

impl<'a> Value<'a> {
    /// ```
    /// use slowlane::base::request::Value;
    /// assert_eq!(Value::address("::ffff:192.0.2.1".parse().unwrap()),
    ///            Value::address("192.0.2.1".parse().unwrap()));
    /// ```
    pub fn address(address: IpAddr) -> Value<'a> {
        Value::Address(address.to_canonical())
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

    /// Adds a field; the 33rd and later are dropped.
    pub fn push(&mut self, name: &'a [u8], value: Value<'a>) {
        let _ = self.fields.try_push(Field { name, value });
    }

    /// The first value that goes by this name; `-` and `_` are one letter in it, for headers have `-` where
    /// variables have `_`.
    ///
    /// ```
    /// use slowlane::base::request::{Request, Value};
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

    /// In the order in which they came.
    pub fn fields(&self) -> impl Iterator<Item = &Field<'a>> {
        self.fields.iter()
    }
}

/// Whether two names are of one field.
pub fn is_same_name(one: &[u8], other: &[u8]) -> bool {
    let letter = |byte| if byte == b'-' { b'_' } else { byte };
    one.len() == other.len() && one.iter().zip(other).all(|(&a, &b)| a == b || letter(a) == letter(b))
}
