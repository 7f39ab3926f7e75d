//! A request from a log, kept until its turn.

use std::mem;
use std::net::IpAddr;
use std::num::NonZeroU16;

use slowlane_core::base::{Ending, Request, Value};

/// The maximum number of fields to read from a line.
pub(crate) const FIELDS_MAX: usize = 16;

/// Longer values are cut. No legitimate value in a key is this long.
pub(crate) const VALUE_BYTES_MAX: usize = 1_024;

/// Larger buffers are not kept for reuse, because up to 262144 records may be held at once.
pub(crate) const KEPT_BYTES_MAX: usize = 256;

/// The time and the fields of a request. The memory is reused for the next request.
#[derive(Clone, Debug, Default)]
pub(crate) struct LogRecord {
    /// The time of the request, in nanoseconds since 1970.
    pub(crate) at_ns: u64,
    /// The time until the answer, if the log contains it.
    pub(crate) took_ns: Option<u64>,
    /// The request's work, as far as the log shows it.
    pub(crate) ending: Ending,
    /// The number of the log from which the request comes. The log's plan names the fields.
    pub(crate) log: u32,
    pub(crate) source: Option<IpAddr>,
    /// The values of the other fields, concatenated.
    pub(crate) bytes: Vec<u8>,
    /// The end of each value. None if the log has no value for the field.
    pub(crate) ends: [Option<NonZeroU16>; FIELDS_MAX],
}

impl LogRecord {
    pub(crate) fn clear(&mut self) {
        let mut bytes = mem::take(&mut self.bytes);
        bytes.clear();
        bytes.shrink_to(KEPT_BYTES_MAX);
        *self = LogRecord { bytes, ..LogRecord::default() };
    }

    /// The request, with these names for its fields.
    pub(crate) fn request<'a>(&'a self, names: &'a [String]) -> Request<'a> {
        let mut request = Request::new();
        if let Some(source) = self.source {
            request.push(b"source", Value::address(source));
        }
        let mut begins = 0;
        let ends = self.ends.iter().map(|end| end.map(|end| usize::from(end.get())));
        for (name, end) in names.iter().zip(ends).filter_map(|(name, end)| Some((name, end?))) {
            request.push(name.as_bytes(), Value::Text(&self.bytes[begins..end]));
            begins = end;
        }
        request
    }
}
