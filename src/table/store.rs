//! Entries by key, spread over shards.

use std::hash::{BuildHasher, RandomState};
use std::hint::{black_box, spin_loop};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use arrayvec::ArrayVec;

use crate::base::key::Key;
use crate::base::time::Timestamp;
use crate::table::entry::Entry;
use crate::table::page::{Cursor, Found, PAGE_ROWS, Page};
use crate::table::shard::Shard;
use crate::table::sizing::{Sizing, Usage};

/// Locks are so short that this many keep a few threads apart. Of requests that come together those of one shard are
/// looked up side by side, so there should not be many more.
const SHARDS_MAX: usize = 8;

/// Below this many entries a shard is too small for hashing to fill it evenly.
const SHARD_ENTRIES_MIN: usize = 4_096;

/// As many rows are looked at before the first is written.
const BATCH_MAX: usize = 32;

/// The last of the intervals between them is some microseconds.
const LOCK_TRIES: u32 = 9;

/// The most entries that are written as one step.
pub const EACH_MAX: usize = 4;

/// Entries by key, spread over shards so that threads seldom wait for each other.
///
/// A write re-arms an entry's expiry and a read does not. A full table gives up the entry that would
/// expire next, or one that would no more than a sixteenth of `expire` later.
///
/// ```
/// use std::time::Duration;
/// use slowlane::{base::key::Key, table::{Sizing, Table}, base::time::Timestamp};
///
/// let table = Table::new(Sizing { entries_max: 100, expire: Duration::from_secs(30) });
/// let (key, now) = (Key::from_bits(7), Timestamp::from_millis(1_000));
/// table.with(key, now, Duration::ZERO, |entry| entry.http_req_cnt += 1);
/// let (entry, left) = table.get(key, now).unwrap();
/// assert_eq!((entry.http_req_cnt, left.as_secs()), (1, 30));
/// assert_eq!(table.get(key, now + Duration::from_millis(30_016)), None); // it may be 16 ms late
/// ```
#[derive(Debug)]
pub struct Table {
    shards: Box<[Mutex<Shard>]>,
    entries_max: u32,
}

impl Table {
    /// Reserves room for every entry now, so that growing never makes a request wait. The system backs it
    /// with memory as it fills.
    pub fn new(sizing: Sizing) -> Table {
        let entries_max = sizing.entries_max.max(1) as usize;
        let shards = (entries_max / SHARD_ENTRIES_MIN).next_power_of_two().clamp(1, SHARDS_MAX);
        let per_shard = entries_max.div_ceil(shards) as u32;
        // The standard library's own secrets are drawn from the system.
        let secret = RandomState::new().hash_one(per_shard);
        let shard = || Mutex::new(Shard::new(per_shard, sizing.expire, secret));
        Table { shards: (0..shards).map(|_| shard()).collect(), entries_max: entries_max as u32 }
    }

    /// The most entries that it was made for.
    pub fn entries_max(&self) -> u32 {
        self.entries_max
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

    /// Gives `write` the entry of each key in turn, with the key's place in the list; in the order of the shards. A key may
    /// come more than once.
    ///
    /// All rows of a shard are looked at before the first is written: so the memory brings them at the
    /// same time, and not one after the other.
    pub fn with_batch(
        &self,
        keys: &[(Key, Duration)],
        now: Timestamp,
        mut write: impl FnMut(usize, &mut Entry),
    ) {
        if let &[(key, keep)] = keys {
            return write(0, self.shard(key).entry(key, now, keep));
        }
        for (batch, keys) in keys.chunks(BATCH_MAX).enumerate() {
            let (places, ends) = self.by_shard(keys);
            let mut start = 0;
            for (shard, end) in self.shards.iter().zip(ends) {
                let ours = &places[start..end];
                start = end;
                if ours.is_empty() {
                    continue;
                }
                let mut shard = lock(shard);
                let looks = ours.iter().map(|&place| shard.look(keys[usize::from(place)].0, now));
                black_box(looks.fold(0, u32::wrapping_add));
                for place in ours.iter().map(|&place| usize::from(place)) {
                    let (key, keep) = keys[place];
                    write(batch * BATCH_MAX + place, shard.entry(key, now, keep));
                }
            }
        }
    }

    /// The places of at most [`BATCH_MAX`] keys, those of one shard together and in their order; and where those of
    /// each shard end.
    fn by_shard(&self, keys: &[(Key, Duration)]) -> ([u8; BATCH_MAX], [usize; SHARDS_MAX]) {
        let mut ends = [0; SHARDS_MAX];
        for &(key, _) in keys {
            ends[self.number(key)] += 1;
        }
        for shard in 1..SHARDS_MAX {
            ends[shard] += ends[shard - 1];
        }
        let (mut places, mut starts) = ([0; BATCH_MAX], ends);
        for (place, &(key, _)) in keys.iter().enumerate().rev() {
            let start = &mut starts[self.number(key)];
            *start -= 1;
            places[*start] = place as u8;
        }
        (places, ends)
    }

    /// Gives `write` the entries of up to [`EACH_MAX`] keys, none of them twice, as one step: nobody else sees them in
    /// between.
    ///
    /// They are copies, put back when all are written: to enter one may push out another.
    pub fn with_each<R>(
        &self,
        keys: &[(Key, Duration)],
        now: Timestamp,
        write: impl FnOnce(&mut [Entry]) -> R,
    ) -> R {
        let mut numbers: ArrayVec<usize, EACH_MAX> = keys.iter().map(|&(key, _)| self.number(key)).collect();
        // Always in the same order, or two writers would wait for each other.
        numbers.sort_unstable();
        let mut shards: ArrayVec<(usize, MutexGuard<'_, Shard>), EACH_MAX> = ArrayVec::new();
        for number in numbers {
            if shards.last().is_none_or(|&(locked, _)| locked != number) {
                shards.push((number, lock(&self.shards[number])));
            }
        }
        let mut entries: ArrayVec<Entry, EACH_MAX> = ArrayVec::new();
        for &(key, keep) in keys {
            entries.push(*locked(&mut shards, self.number(key)).entry(key, now, keep));
        }
        let result = write(&mut entries);
        for (&(key, keep), entry) in keys.iter().zip(entries) {
            *locked(&mut shards, self.number(key)).entry(key, now, keep) = entry;
        }
        result
    }

    /// Gives `write` the entry of `key` if there is one, and leaves its expiry as it is.
    pub fn with_known(&self, key: Key, now: Timestamp, write: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self.shard(key).known(key, now) {
            write(entry);
        }
    }

    /// A copy of the entry of `key` and the time it has left, if it has not expired.
    pub fn get(&self, key: Key, now: Timestamp) -> Option<(Entry, Duration)> {
        self.shard(key).get(key, now)
    }

    /// A copy of the row of `key`, if it has not expired.
    pub fn row(&self, key: Key, now: Timestamp) -> Option<Found> {
        let number = self.number(key);
        let row = lock(&self.shards[number]).row(key, now)?;
        Some(row.of_shard(number))
    }

    /// Copies of some rows, and where the next page begins; none behind the last.
    ///
    /// A shard is locked for [`PAGE_ROWS`] rows at most, so whoever walks through all of them makes nobody wait. Rows
    /// change between two pages: one that lives all the while is seen once, one that comes or goes meanwhile perhaps.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use slowlane::{base::key::Key, table::{Cursor, Page, Sizing, Table}, base::time::Timestamp};
    /// # let table = Table::new(Sizing { entries_max: 1_000, expire: Duration::from_secs(30) });
    /// # let now = Timestamp::from_millis(1_000);
    /// for bits in 0..500 {
    ///     table.with(Key::from_bits(bits), now, Duration::ZERO, |entry| entry.http_req_cnt += 1);
    /// }
    /// let (mut page, mut next, mut seen) = (Page::new(), Some(Cursor::default()), 0);
    /// while let Some(cursor) = next {
    ///     next = table.page(cursor, now, &mut page);
    ///     seen += page.len();
    /// }
    /// assert_eq!(seen, 500);
    /// ```
    pub fn page(&self, cursor: Cursor, now: Timestamp, page: &mut Page) -> Option<Cursor> {
        page.clear();
        let Cursor { shard, row } = cursor;
        let next = lock(self.shards.get(shard)?)
            .page(row, PAGE_ROWS as u32, now, |found| page.push(found.of_shard(shard)));
        match next {
            Some(row) => Some(Cursor { shard, row }),
            None => (shard + 1 < self.shards.len()).then_some(Cursor { shard: shard + 1, row: 0 }),
        }
    }

    /// Forgets the entry of `key`, if it has one that is to go.
    pub fn remove(&self, key: Key, is_to_go: impl FnOnce(&Entry) -> bool) -> bool {
        self.shard(key).remove(key, is_to_go)
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
    fn number(&self, key: Key) -> usize {
        (key.bits() >> 40) as usize & (self.shards.len() - 1)
    }

    fn shard(&self, key: Key) -> MutexGuard<'_, Shard> {
        lock(&self.shards[self.number(key)])
    }
}

fn locked<'s>(shards: &'s mut [(usize, MutexGuard<'_, Shard>)], number: usize) -> &'s mut Shard {
    let shard = shards.iter_mut().find(|(locked, _)| *locked == number);
    &mut shard.expect("the shard of each key is locked").1
}

/// A writer that panicked has at worst left one entry half judged; the table serves on.
///
/// A shard is locked for less time than it takes to go to sleep: so another thread is waited for, at growing intervals, in
/// which it may well lock it more than once. Only one that is not running is slept for.
fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    for pauses in 0..LOCK_TRIES {
        match shard.try_lock() {
            Ok(shard) => return shard,
            Err(TryLockError::Poisoned(error)) => return error.into_inner(),
            Err(TryLockError::WouldBlock) => (0..1 << pauses).for_each(|_| spin_loop()),
        }
    }
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
