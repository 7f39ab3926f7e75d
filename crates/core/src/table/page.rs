//! A page of a table: some rows, copied while their shard is locked.

use std::time::Duration;

use arrayvec::ArrayVec;

use crate::base::key::Key;
use crate::table::entry::Entry;

/// Rows per page. Copying them takes a microsecond or two, and no request waits longer than that.
pub const PAGE_ROWS: usize = 64;

/// The rows of a page. Empty and expired rows are left out, so a page may be short.
pub type Page = ArrayVec<Found, PAGE_ROWS>;

/// Start of a page. The default is the first page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    pub(super) shard: usize,
    pub(super) row: u32,
}

/// A copy of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    pub key: Key,
    pub entry: Entry,
    /// Time until it expires.
    pub left: Duration,
    /// Shard and number of its row. It stays the same for the life of the entry, and no other live entry has
    /// it.
    pub place: u64,
}

const ROW_BITS: u32 = u32::BITS;

impl Found {
    pub(super) fn of_shard(self, shard: usize) -> Found {
        // Shards count from 1 here, so a place never looks like a bare row number.
        Found { place: (shard as u64 + 1) << ROW_BITS | self.place, ..self }
    }
}
