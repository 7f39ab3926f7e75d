//! What the table keeps of one key.

use crate::table::FreqCtr;

/// A row as a stick-table user reads it, whatever law writes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The law's own word: for `pace` the moment at which its bucket is full again, in nanoseconds.
    pub state: u64,
    /// Requests asked about since the entry came to be.
    pub http_req_cnt: u32,
    /// Estimated clients, in thousandths.
    pub gpt0: u32,
    /// Requests per second that the law throttles.
    pub gpc0_rate: FreqCtr,
    /// Of these, the ones it let through, at once or after a delay.
    pub gpc1_rate: FreqCtr,
}
