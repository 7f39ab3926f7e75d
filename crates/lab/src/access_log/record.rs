//! A request from a log, kept until its turn.

use std::net::IpAddr;

use slowlane_core::base::{Ending, Request, Value};

/// The maximum number of fields that are read from a line.
pub(crate) const FIELDS_MAX: usize = 16;

/// Longer values are cut. No legitimate value of a key is this long.
pub(crate) const VALUE_BYTES_MAX: usize = 1_024;

/// Larger buffers are not kept for reuse: up to 262144 records may be held at once.
pub(crate) const KEPT_BYTES_MAX: usize = 256;

/// The time and the fields of a request. Its memory is reused for the next one.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    /// The time of the request, in nanoseconds since 1970.
    pub(crate) at_ns: u64,
    /// The time until its answer, if the log has it.
    pub(crate) took_ns: Option<u64>,
    /// Its work, as far as the log has it.
    pub(crate) ending: Ending,
    /// The number of the log that it comes from, which names its fields.
    pub(crate) log: u32,
    pub(crate) source: Option<IpAddr>,
    /// The values of the other fields, concatenated.
    pub(crate) bytes: Vec<u8>,
    /// The end of each value, or [`NO_VALUE`].
    pub(crate) ends: [u16; FIELDS_MAX],
}

/// The log has no value for a field.
pub(crate) const NO_VALUE: u16 = u16::MAX;

impl Default for Record {
    fn default() -> Record {
        Record {
            at_ns: 0,
            took_ns: None,
            ending: Ending::default(),
            log: 0,
            source: None,
            bytes: Vec::new(),
            ends: [NO_VALUE; FIELDS_MAX],
        }
    }
}

impl Record {
    pub(crate) fn clear(&mut self) {
        if self.bytes.capacity() > KEPT_BYTES_MAX {
            self.bytes = Vec::new();
        }
        self.bytes.clear();
        (self.source, self.took_ns, self.ending) = (None, None, Ending::default());
        self.ends = [NO_VALUE; FIELDS_MAX];
    }

    /// Frees memory that was needed only during reading.
    pub(crate) fn tighten(&mut self) {
        if self.bytes.capacity() > KEPT_BYTES_MAX {
            self.bytes.shrink_to_fit();
        }
    }

    /// The request, with these names for its fields.
    pub(crate) fn request<'a>(&'a self, names: &'a [String]) -> Request<'a> {
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
