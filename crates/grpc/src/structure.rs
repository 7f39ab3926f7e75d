//! Parts of several messages: headers, durations, and the structures of dynamic metadata.

use bytes::Bytes;
use prost::{Message, Oneof};

/// `envoy.config.core.v3.HeaderValue`.
#[derive(Clone, PartialEq, Message)]
pub struct HeaderValue {
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
    /// Set instead of `value` if Envoy sends headers as raw bytes.
    #[prost(bytes = "bytes", tag = "3")]
    pub raw_value: Bytes,
}

impl HeaderValue {
    pub fn new(key: &'static str, value: impl Into<Bytes>) -> HeaderValue {
        HeaderValue { key: Bytes::from_static(key.as_bytes()), value: value.into(), raw_value: Bytes::new() }
    }
}

/// An entry of `map<string, string>`, or of a descriptor.
#[derive(Clone, PartialEq, Message)]
pub struct Entry {
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
}

/// `google.protobuf.Duration`.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct ProtoDuration {
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

impl ProtoDuration {
    /// The duration in microseconds, or 0 if it is negative.
    pub fn micros(self) -> u64 {
        let micros = self.seconds.saturating_mul(1_000_000).saturating_add((self.nanos / 1_000).into());
        u64::try_from(micros).unwrap_or(0)
    }
}

/// `google.protobuf.Struct`, limited to numbers and text.
#[derive(Clone, PartialEq, Message)]
pub struct Struct {
    #[prost(message, repeated, tag = "1")]
    pub fields: Vec<StructEntry>,
}

/// An entry of the `map<string, Value>` of a [`Struct`].
#[derive(Clone, PartialEq, Message)]
pub struct StructEntry {
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    #[prost(message, optional, tag = "2")]
    pub value: Option<Value>,
}

/// `google.protobuf.Value`.
#[derive(Clone, PartialEq, Message)]
pub struct Value {
    #[prost(oneof = "StructureKind", tags = "2, 3")]
    pub kind: Option<StructureKind>,
}

/// The content of a [`Value`].
#[derive(Clone, PartialEq, Oneof)]
pub enum StructureKind {
    #[prost(double, tag = "2")]
    Number(f64),
    #[prost(bytes = "bytes", tag = "3")]
    Text(Bytes),
}

impl Struct {
    /// Adds a number.
    #[must_use]
    pub fn number(self, name: &'static str, number: f64) -> Struct {
        self.with(name, StructureKind::Number(number))
    }

    /// Adds text.
    #[must_use]
    pub fn text(self, name: &'static str, text: impl Into<Bytes>) -> Struct {
        self.with(name, StructureKind::Text(text.into()))
    }

    fn with(mut self, name: &'static str, kind: StructureKind) -> Struct {
        let (key, value) = (Bytes::from_static(name.as_bytes()), Some(Value { kind: Some(kind) }));
        self.fields.push(StructEntry { key, value });
        self
    }
}

impl Value {
    /// The text of the value, or empty text if the value is something else.
    pub fn text(&self) -> &[u8] {
        if let Some(StructureKind::Text(text)) = &self.kind { text } else { b"" }
    }
}
