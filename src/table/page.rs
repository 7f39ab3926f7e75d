//! A page of a table: some of its rows, copied while their shard was locked.

use std::time::Duration;

use arrayvec::ArrayVec;

use crate::base::key::Key;
use crate::table::entry::Entry;

/// To copy as many takes a microsecond or two, and nobody is kept waiting for longer.
pub const PAGE_ROWS: usize = 64;

/// The rows of a page; some of those that were looked at may have been empty.
pub type Page = ArrayVec<Found, PAGE_ROWS>;

/// Where a page begins; the default is the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    pub(super) shard: usize,
    pub(super) row: u32,
}

/// A row as it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    pub key: Key,
    pub entry: Entry,
    /// Until it expires.
    pub left: Duration,
    /// The same as long as the entry lives, and no other entry's meanwhile: shard and number of its row.
    pub place: u64,
}

const ROW_BITS: u32 = u32::BITS;

impl Found {
    pub(super) fn of_shard(self, shard: usize) -> Found {
        Found { place: (shard as u64 + 1) << ROW_BITS | self.place, ..self }
    }
}
