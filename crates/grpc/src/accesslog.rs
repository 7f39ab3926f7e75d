//! The messages of `envoy.service.accesslog.v3.AccessLogService`.

use prost::Message;

use crate::{Entry, ProtoDuration, Struct, Value};

/// `StreamAccessLogsMessage`: the log entries since the previous message.
#[derive(Clone, PartialEq, Message)]
pub struct LogMessage {
    #[prost(message, optional, tag = "2")]
    pub http: Option<HttpEntries>,
}

#[derive(Clone, PartialEq, Message)]
pub struct HttpEntries {
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<HttpEntry>,
}

/// `envoy.data.accesslog.v3.HTTPAccessLogEntry`.
#[derive(Clone, PartialEq, Message)]
pub struct HttpEntry {
    #[prost(message, optional, tag = "1")]
    pub common: Option<CommonProperties>,
    #[prost(message, optional, tag = "3")]
    pub request: Option<LoggedRequest>,
}

/// `AccessLogCommon`. All durations are counted from the beginning of the request.
#[derive(Clone, PartialEq, Message)]
pub struct CommonProperties {
    #[prost(message, optional, tag = "7")]
    pub to_upstream: Option<ProtoDuration>,
    #[prost(message, optional, tag = "10")]
    pub from_upstream: Option<ProtoDuration>,
    #[prost(message, optional, tag = "17")]
    pub metadata: Option<Metadata>,
    #[prost(message, optional, tag = "23")]
    pub duration: Option<ProtoDuration>,
    #[prost(uint64, tag = "29")]
    pub bytes_sent: u64,
    /// `AccessLogType`.
    #[prost(int32, tag = "33")]
    pub kind: i32,
}

/// `envoy.config.core.v3.Metadata`: the facts that filters have recorded about the request. Some of these
/// facts may be text that clients chose.
#[derive(Clone, PartialEq, Message)]
pub struct Metadata {
    #[prost(message, repeated, tag = "1")]
    pub filters: Vec<FilterEntry>,
}

/// An entry of `map<string, Struct>`.
#[derive(Clone, PartialEq, Message)]
pub struct FilterEntry {
    #[prost(message, optional, tag = "2")]
    pub facts: Option<Struct>,
}

/// `HTTPRequestProperties`.
#[derive(Clone, PartialEq, Message)]
pub struct LoggedRequest {
    /// The headers named in `additional_request_headers_to_log`.
    #[prost(message, repeated, tag = "13")]
    pub headers: Vec<Entry>,
}

impl CommonProperties {
    /// Whether the entry marks the end of the request; an entry without a type does, too. Envoy also logs
    /// streams while they are open, and each attempt to reach an upstream.
    pub fn is_end(&self) -> bool {
        const NOT_SET: i32 = 0;
        const DOWNSTREAM_END: i32 = 6;
        matches!(self.kind, NOT_SET | DOWNSTREAM_END)
    }

    /// The text of the first fact with one of these names, from any filter. Empty if the fact is not text.
    pub fn fact(&self, names: [&[u8]; 2]) -> Option<&[u8]> {
        let filters = self.metadata.iter().flat_map(|metadata| &metadata.filters);
        let mut facts = filters.filter_map(|filter| filter.facts.as_ref()).flat_map(|facts| &facts.fields);
        let found = facts.find(|fact| names.contains(&fact.key.as_ref()))?;
        found.value.as_ref().map(Value::text)
    }
}
