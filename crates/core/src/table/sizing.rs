//! The bounds of a table, and its fill level.

use std::time::Duration;

/// Bounds of a table in entries and in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizing {
    /// Most entries, like `size` of a stick table; at least one.
    pub entries_max: u32,
    /// Lifetime of an entry after its last write, like `expire` of a stick table.
    pub expire: Duration,
}

/// Numbers of a table for the operator to watch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub entries: u64,
    /// Live entries evicted because the table was full.
    pub evictions: u64,
}
