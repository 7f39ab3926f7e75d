//! Parts of several messages: headers, and the structures of dynamic metadata.

use std::collections::HashMap;

use bytes::Bytes;
use prost::{Message, Oneof};

/// `envoy.config.core.v3.HeaderValue`.
#[derive(Clone, PartialEq, Message)]
pub struct HeaderValue {
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
    /// Instead of `value`, if Envoy sends headers as they are.
    #[prost(bytes = "bytes", tag = "3")]
    pub raw_value: Bytes,
}

impl HeaderValue {
    pub fn new(key: &'static str, value: impl Into<Bytes>) -> HeaderValue {
        HeaderValue { key: Bytes::from_static(key.as_bytes()), value: value.into(), raw_value: Bytes::new() }
    }
}

/// `google.protobuf.Struct`, with numbers and texts.
#[derive(Clone, PartialEq, Message)]
pub struct Struct {
    #[prost(map = "string, message", tag = "1")]
    pub fields: HashMap<String, Value>,
}

/// `google.protobuf.Value`.
#[derive(Clone, PartialEq, Message)]
pub struct Value {
    #[prost(oneof = "StructureKind", tags = "2, 3")]
    pub kind: Option<StructureKind>,
}

/// What a [`Value`] holds.
#[derive(Clone, PartialEq, Oneof)]
pub enum StructureKind {
    #[prost(double, tag = "2")]
    Number(f64),
    #[prost(string, tag = "3")]
    Text(String),
}

impl Struct {
    /// Adds a number.
    #[must_use]
    pub fn number(self, name: &str, number: f64) -> Struct {
        self.with(name, StructureKind::Number(number))
    }

    /// Adds a text.
    #[must_use]
    pub fn text(self, name: &str, text: impl Into<String>) -> Struct {
        self.with(name, StructureKind::Text(text.into()))
    }

    fn with(mut self, name: &str, kind: StructureKind) -> Struct {
        self.fields.insert(name.into(), Value { kind: Some(kind) });
        self
    }
}
