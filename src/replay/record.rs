//! A request as a log tells it, kept until its turn comes.

use std::net::IpAddr;

use crate::request::{Request, Value};

/// The most fields that are read from a line.
pub(super) const FIELDS_MAX: usize = 16;

/// The most of one value: no field that makes up a key is longer by right.
pub(super) const VALUE_BYTES_MAX: usize = 1_024;

/// A buffer that one long line has made larger is not kept.
const KEPT_BYTES_MAX: usize = 4 * VALUE_BYTES_MAX;

/// When a request came, and what it was. Its memory is used again for the next one.
#[derive(Clone, Debug, Default)]
pub(super) struct Record {
    /// When it came, in nanoseconds since 1970.
    pub(super) at_ns: u64,
    /// How long it took until it had been answered, where the log tells.
    pub(super) took_ns: Option<u64>,
    /// The number of the plan that says what its fields are.
    pub(super) plan: u32,
    pub(super) source: Option<IpAddr>,
    /// The values of the other fields, one after the other.
    pub(super) bytes: Vec<u8>,
    /// Where each of them ends; None: the log has nothing for it.
    pub(super) ends: [Option<u32>; FIELDS_MAX],
}

impl Record {
    pub(super) fn clear(&mut self) {
        if self.bytes.capacity() > KEPT_BYTES_MAX {
            self.bytes = Vec::new();
        }
        self.bytes.clear();
        (self.source, self.took_ns, self.ends) = (None, None, [None; FIELDS_MAX]);
    }

    /// Its fields by these names.
    pub(super) fn request<'a>(&'a self, names: &'a [String]) -> Request<'a> {
        let mut request = Request::new();
        if let Some(source) = self.source {
            request.push(b"source", Value::address(source));
        }
        let mut begins = 0;
        for (name, end) in names.iter().zip(self.ends) {
            let Some(end) = end else { continue };
            let end = end as usize;
            request.push(name.as_bytes(), Value::Text(&self.bytes[begins..end]));
            begins = end;
        }
        request
    }
}
