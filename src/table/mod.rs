//! The table: a bounded store of entries by key, the counterpart of a HAProxy stick table.

mod entry;
mod freq_ctr;
mod shard;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use entry::Entry;
pub use freq_ctr::{FreqCtr, PERIOD_MS};
use shard::Shard;

use crate::key::Key;
use crate::time::Timestamp;

/// Locks are so short that this many keep a few threads apart; more would only split the bound finer.
const SHARDS_MAX: usize = 64;

/// Below this many entries a shard is too small for hashing to fill it evenly.
const SHARD_ENTRIES_MIN: usize = 4_096;

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

/// Entries by key, spread over shards so that threads seldom wait for each other.
///
/// A write re-arms an entry's expiry and a read does not. A full table gives up the entry that would
/// expire next.
///
/// ```
/// use std::time::Duration;
/// use slowlane::{key::Key, table::{Sizing, Table}, time::Timestamp};
///
/// let table = Table::new(Sizing { entries_max: 100, expire: Duration::from_secs(30) });
/// let (key, now) = (Key::from_bits(7), Timestamp::from_millis(1_000));
/// table.with(key, now, Duration::ZERO, |entry| entry.http_req_cnt += 1);
/// let (entry, left) = table.get(key, now).unwrap();
/// assert_eq!((entry.http_req_cnt, left.as_secs()), (1, 30));
/// assert_eq!(table.get(key, now + Duration::from_secs(30)), None);
/// ```
#[derive(Debug)]
pub struct Table {
    shards: Box<[Mutex<Shard>]>,
}

impl Table {
    /// Reserves room for every entry now, so that growing never makes a request wait. The system backs it
    /// with memory as it fills.
    pub fn new(sizing: Sizing) -> Table {
        let entries_max = sizing.entries_max.max(1) as usize;
        let shards = (entries_max / SHARD_ENTRIES_MIN).next_power_of_two().clamp(1, SHARDS_MAX);
        let per_shard = entries_max.div_ceil(shards) as u32;
        let shard = || Mutex::new(Shard::new(per_shard, sizing.expire));
        Table { shards: (0..shards).map(|_| shard()).collect() }
    }

    /// Gives `write` the entry of `key`, a fresh one if there is none, and re-arms its expiry: it is kept
    /// for the table's `expire` or for `keep`, whichever is longer.
    pub fn with<R>(
        &self,
        key: Key,
        now: Timestamp,
        keep: Duration,
        write: impl FnOnce(&mut Entry) -> R,
    ) -> R {
        write(self.shard(key).entry(key, now, keep))
    }

    /// A copy of the entry of `key` and the time it has left, if it has not expired.
    pub fn get(&self, key: Key, now: Timestamp) -> Option<(Entry, Duration)> {
        self.shard(key).get(key, now)
    }

    pub fn usage(&self) -> Usage {
        let mut total = Usage::default();
        for shard in &self.shards {
            let usage = lock(shard).usage();
            total.entries += usage.entries;
            total.evictions += usage.evictions;
        }
        total
    }

    /// The shard's number is taken from the middle of the key: a shard's own index uses both ends.
    fn shard(&self, key: Key) -> MutexGuard<'_, Shard> {
        let number = (key.bits() >> 40) as usize & (self.shards.len() - 1);
        lock(&self.shards[number])
    }
}

/// A writer that panicked has at worst left one entry half judged; the table serves on.
fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
