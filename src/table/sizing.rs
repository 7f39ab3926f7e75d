//! How large a table may become, and how full it is.

use std::time::Duration;

/// How large a table may become and how long it remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizing {
    /// The most entries, as `size` of a stick table; at least one.
    pub entries_max: u32,
    /// How long an entry outlives its last write, as `expire` of a stick table.
    pub expire: Duration,
}

/// The numbers of a table that an operator watches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub entries: u64,
    /// Live entries that had to go because the table was full.
    pub evictions: u64,
}
