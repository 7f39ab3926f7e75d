//! A request as a log tells it, kept until its turn comes.

use std::net::IpAddr;

use crate::base::request::{Request, Value};

/// The most fields that are read from a line.
pub(in crate::tools) const FIELDS_MAX: usize = 16;

/// The most of one value: no field that makes up a key is longer by right.
pub(in crate::tools) const VALUE_BYTES_MAX: usize = 1_024;

/// A buffer that a long line has made larger is not kept: there may be some 262144 of them.
pub(in crate::tools) const KEPT_BYTES_MAX: usize = 256;

/// When a request came, and what it was. Its memory is used again for the next one.
#[derive(Clone, Debug)]
pub(in crate::tools) struct Record {
    /// When it came, in nanoseconds since 1970.
    pub(in crate::tools) at_ns: u64,
    /// How long it took until it had been answered, where the log tells.
    pub(in crate::tools) took_ns: Option<u64>,
    /// The number of the log that it comes from, which names its fields.
    pub(in crate::tools) log: u32,
    pub(in crate::tools) source: Option<IpAddr>,
    /// The values of the other fields, one after the other.
    pub(in crate::tools) bytes: Vec<u8>,
    /// Where each of them ends, or [`NO_VALUE`].
    pub(in crate::tools) ends: [u16; FIELDS_MAX],
}

/// The log has nothing for a field.
pub(in crate::tools) const NO_VALUE: u16 = u16::MAX;

impl Default for Record {
    fn default() -> Record {
        Record {
            at_ns: 0,
            took_ns: None,
            log: 0,
            source: None,
            bytes: Vec::new(),
            ends: [NO_VALUE; FIELDS_MAX],
        }
    }
}

impl Record {
    pub(in crate::tools) fn clear(&mut self) {
        if self.bytes.capacity() > KEPT_BYTES_MAX {
            self.bytes = Vec::new();
        }
        self.bytes.clear();
        (self.source, self.took_ns, self.ends) = (None, None, [NO_VALUE; FIELDS_MAX]);
    }

    /// Gives back what its fields have grown into while they were read.
    pub(in crate::tools) fn tighten(&mut self) {
        if self.bytes.capacity() > KEPT_BYTES_MAX {
            self.bytes.shrink_to_fit();
        }
    }

    /// Its fields by these names.
    pub(in crate::tools) fn request<'a>(&'a self, names: &'a [String]) -> Request<'a> {
        let mut request = Request::new();
        if let Some(source) = self.source {
            request.push(b"source", Value::address(source));
        }
        let mut begins = 0;
        let ends = self.ends.iter().map(|&end| usize::from(end));
        for (name, end) in names.iter().zip(ends).filter(|&(_, end)| end != usize::from(NO_VALUE)) {
            request.push(name.as_bytes(), Value::Text(&self.bytes[begins..end]));
            begins = end;
        }
        request
    }
}
