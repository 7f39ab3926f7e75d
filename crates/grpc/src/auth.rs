//! The messages of `envoy.service.auth.v3.Authorization`.

use std::collections::HashMap;

use bytes::Bytes;
use prost::{Enumeration, Message, Oneof};

use crate::{Entry, HeaderValue, Struct};

#[derive(Clone, PartialEq, Message)]
pub struct CheckRequest {
    #[prost(message, optional, tag = "1")]
    pub attributes: Option<Attributes>,
}

/// `envoy.service.auth.v3.AttributeContext`.
#[derive(Clone, PartialEq, Message)]
pub struct Attributes {
    /// The peer of the connection, regardless of any headers.
    #[prost(message, optional, tag = "1")]
    pub source: Option<Peer>,
    #[prost(message, optional, tag = "4")]
    pub request: Option<Request>,
    /// The names and values that the operator has set in Envoy's configuration.
    #[prost(map = "string, bytes", tag = "10")]
    pub context_extensions: HashMap<String, Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Peer {
    #[prost(message, optional, tag = "1")]
    pub address: Option<Address>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Address {
    #[prost(message, optional, tag = "1")]
    pub socket_address: Option<SocketAddress>,
}

#[derive(Clone, PartialEq, Message)]
pub struct SocketAddress {
    #[prost(bytes = "bytes", tag = "2")]
    pub address: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub struct Request {
    #[prost(message, optional, tag = "2")]
    pub http: Option<HttpRequest>,
}

#[derive(Clone, PartialEq, Message)]
pub struct HttpRequest {
    #[prost(bytes = "bytes", tag = "2")]
    pub method: Bytes,
    #[prost(message, repeated, tag = "3")]
    pub headers: Vec<Entry>,
    #[prost(bytes = "bytes", tag = "4")]
    pub path: Bytes,
    #[prost(bytes = "bytes", tag = "5")]
    pub host: Bytes,
    /// Sent instead of `headers` if Envoy's `encode_raw_headers` option is set.
    #[prost(message, optional, tag = "13")]
    pub header_map: Option<HeaderMap>,
}

#[derive(Clone, PartialEq, Message)]
pub struct HeaderMap {
    #[prost(message, repeated, tag = "1")]
    pub headers: Vec<HeaderValue>,
}

impl HttpRequest {
    /// The value of a header. `name` must be in lower case, because Envoy sends names in lower case.
    pub fn header(&self, name: &[u8]) -> Option<&Bytes> {
        let raw = self.header_map.iter().flat_map(|map| &map.headers);
        let raw = raw.map(|header| match header.raw_value.is_empty() {
            true => (&header.key, &header.value),
            false => (&header.key, &header.raw_value),
        });
        let texts = self.headers.iter().map(|header| (&header.key, &header.value));
        texts.chain(raw).find(|(key, _)| key.as_ref() == name).map(|(_, value)| value)
    }
}

#[derive(Clone, PartialEq, Message)]
pub struct CheckResponse {
    /// The code is 0 if the request may pass.
    #[prost(message, optional, tag = "1")]
    pub status: Option<NumberedStatus>,
    #[prost(oneof = "AuthAnswer", tags = "2, 3")]
    pub answer: Option<AuthAnswer>,
    #[prost(message, optional, tag = "4")]
    pub dynamic_metadata: Option<Struct>,
}

/// `google.rpc.Status`, or `envoy.type.v3.HttpStatus`.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct NumberedStatus {
    #[prost(int32, tag = "1")]
    pub code: i32,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum AuthAnswer {
    #[prost(message, tag = "2")]
    Denied(Denied),
    #[prost(message, tag = "3")]
    Ok(Allowed),
}

/// `DeniedHttpResponse`.
#[derive(Clone, PartialEq, Message)]
pub struct Denied {
    #[prost(message, optional, tag = "1")]
    pub status: Option<NumberedStatus>,
    #[prost(message, repeated, tag = "2")]
    pub headers: Vec<HeaderOption>,
}

/// `OkHttpResponse`.
#[derive(Clone, PartialEq, Message)]
pub struct Allowed {
    /// The headers to set in the request before it is passed on.
    #[prost(message, repeated, tag = "2")]
    pub headers: Vec<HeaderOption>,
    #[prost(string, repeated, tag = "5")]
    pub headers_to_remove: Vec<String>,
    #[prost(message, repeated, tag = "6")]
    pub response_headers_to_add: Vec<HeaderOption>,
}

/// `envoy.config.core.v3.HeaderValueOption`.
#[derive(Clone, PartialEq, Message)]
pub struct HeaderOption {
    #[prost(message, optional, tag = "1")]
    pub header: Option<HeaderValue>,
    #[prost(enumeration = "AppendAction", tag = "3")]
    pub append_action: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum AppendAction {
    AppendIfExistsOrAdd = 0,
    OverwriteIfExistsOrAdd = 2,
}

impl HeaderOption {
    /// An option that replaces all headers with this name.
    pub fn set(header: HeaderValue) -> HeaderOption {
        HeaderOption { header: Some(header), append_action: AppendAction::OverwriteIfExistsOrAdd.into() }
    }
}
