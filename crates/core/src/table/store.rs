//! Entries by key, spread over shards.

use std::hint::spin_loop;
use std::sync::{PoisonError, TryLockError};
use std::time::Duration;

use arrayvec::ArrayVec;

use crate::base::{Key, Timestamp};
use crate::table::entry::Entry;
use crate::table::locks::{Mutex, MutexGuard};
use crate::table::shard::{Found, Shard, Usage};
use crate::table::spread::Spread;

/// Locks are held so briefly that eight shards are enough to keep a few threads apart. More shards would be
/// slower, because a batch looks up the rows of one shard together.
const SHARDS_MAX: usize = 1 << SHARD_BITS_MAX;

const SHARD_BITS_MAX: u32 = 3;

/// With fewer entries than this, a shard is too small for hashing to fill it evenly.
const SHARD_ENTRIES_MIN: usize = 4_096;

/// The maximum number of rows that are read before the first is written, so that their memory accesses overlap.
const BATCH_MAX: usize = 32;

/// The number of attempts to take a lock before the thread sleeps. The pauses between attempts double, up to
/// a few microseconds.
const LOCK_TRIES: u32 = 9;

/// The maximum number of entries that one step can write: the rows of 16 SLOs, and the rows of two assured rates.
pub const EACH_MAX: usize = 18;

/// Limits on the number and the lifetime of a table's entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizing {
    /// Maximum number of entries, like `size` of a stick table; at least one.
    pub entries_max: u32,
    /// Lifetime of an entry after its last write, like `expire` of a stick table.
    pub expire: Duration,
}

/// Entries by key, spread over shards so that threads rarely contend.
///
/// A write re-arms an entry's expiry, but a read does not. A full table evicts the entry that expires next,
/// or one that expires at most a sixteenth of `expire` later.
///
/// ```
/// use std::time::Duration;
/// use slowlane_core::{base::{Key, Timestamp}, table::{Sizing, Table}};
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
    spread: Spread,
    entries_max: u32,
}

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

/// Keys grouped by shard.
struct ByShard {
    /// The shard of each key.
    numbers: [u8; BATCH_MAX],
    /// The indexes of the keys, group by group, each group in the order of the list.
    places: [u8; BATCH_MAX],
    /// The end of each group in `places`.
    ends: [usize; SHARDS_MAX],
}

impl Table {
    /// Reserves address space for every entry up front, so growth never makes a request wait. The system
    /// backs this space with memory as the table fills.
    pub fn new(sizing: Sizing) -> Table {
        let entries_max = sizing.entries_max.max(1) as usize;
        let shards = (entries_max / SHARD_ENTRIES_MIN).next_power_of_two().clamp(1, SHARDS_MAX);
        let per_shard = entries_max.div_ceil(shards) as u32;
        let spread = Spread::new();
        let shard = || Mutex::new(Shard::new(per_shard, sizing.expire, spread));
        Table { shards: (0..shards).map(|_| shard()).collect(), spread, entries_max: entries_max as u32 }
    }

    /// The maximum number of entries.
    pub fn entries_max(&self) -> u32 {
        self.entries_max
    }

    /// Passes the entry of `key`, or a fresh entry for a new key, to `write`, and re-arms the entry's expiry. The entry
    /// lives for the table's `expire` or, if longer, for `keep`, rounded up; but for at most 366 days.
    pub fn with<R>(
        &self,
        key: Key,
        now: Timestamp,
        keep: Duration,
        write: impl FnOnce(&mut Entry) -> R,
    ) -> R {
        write(self.shard(key).entry(key, now, keep))
    }

    /// Calls `write` with each key's index in the list, its entry and the current time, shard by shard. Equal keys come
    /// in the order of the list. Within a shard, the time never goes back, even if this thread's clock is behind.
    ///
    /// Up to 32 rows are read before the first of them is written, so that the memory fetches overlap.
    pub fn with_batch(
        &self,
        keys: &[(Key, Duration)],
        now: Timestamp,
        mut write: impl FnMut(usize, &mut Entry, Timestamp),
    ) {
        if let &[(key, keep)] = keys {
            let mut shard = self.shard(key);
            let now = shard.moment(now);
            return write(0, shard.entry(key, now, keep), now);
        }
        for (batch, keys) in keys.chunks(BATCH_MAX).enumerate() {
            let ByShard { numbers, places, ends } = self.by_shard(keys);
            let rows = self.look(keys, &numbers, &ends, now);
            let mut start = 0;
            for (shard, end) in self.shards.iter().zip(ends) {
                let ours = &places[start..end];
                start = end;
                if ours.is_empty() {
                    continue;
                }
                let mut shard = lock(shard);
                let now = shard.moment(now);
                for place in ours.iter().map(|&place| usize::from(place)) {
                    let (key, keep) = keys[place];
                    write(batch * BATCH_MAX + place, shard.entry_in(rows[place], key, now, keep), now);
                }
            }
        }
    }

    /// Reads the rows of a batch, whose groups of keys end at `ends`, and returns the row numbers: 0 for a
    /// key that has no row, or whose shard another thread has locked. Taking a lock waits for all earlier
    /// reads, so all shards are locked first.
    fn look(
        &self,
        keys: &[(Key, Duration)],
        numbers: &[u8; BATCH_MAX],
        ends: &[usize; SHARDS_MAX],
        now: Timestamp,
    ) -> [u32; BATCH_MAX] {
        let is_ours = |number: usize| ends[number] > if number == 0 { 0 } else { ends[number - 1] };
        let lock = |(number, shard)| is_ours(number).then(|| Mutex::try_lock(shard).ok()).flatten();
        let shards: ArrayVec<_, SHARDS_MAX> = self.shards.iter().enumerate().map(lock).collect();
        let mut rows = [0; BATCH_MAX];
        for ((row, &(key, _)), &number) in rows.iter_mut().zip(keys).zip(numbers) {
            let shard = shards.get(usize::from(number)).and_then(Option::as_ref);
            *row = shard.map_or(0, |shard| shard.look(key, now));
        }
        rows
    }

    /// At most [`BATCH_MAX`] keys, grouped by shard.
    fn by_shard(&self, keys: &[(Key, Duration)]) -> ByShard {
        let (mut numbers, mut ends) = ([0; BATCH_MAX], [0; SHARDS_MAX]);
        for (number, &(key, _)) in numbers.iter_mut().zip(keys) {
            *number = self.number(key) as u8;
            ends[usize::from(*number) % SHARDS_MAX] += 1;
        }
        for shard in 1..SHARDS_MAX {
            ends[shard] += ends[shard - 1];
        }
        let (mut places, mut starts) = ([0; BATCH_MAX], ends);
        for (place, &number) in numbers[..keys.len()].iter().enumerate().rev() {
            let start = &mut starts[usize::from(number) % SHARDS_MAX];
            *start -= 1;
            places[*start % BATCH_MAX] = place as u8;
        }
        ByShard { numbers, places, ends }
    }

    /// Passes the entries of up to [`EACH_MAX`] distinct keys and the moment to `write`, as one step. No
    /// other thread sees an intermediate state.
    ///
    /// The entries are copies, which are put back after the write, because adding one key may evict another.
    /// With `only_known`, a new key gets a fresh entry for the write, but this entry is not kept.
    pub fn with_each<R>(
        &self,
        keys: &[(Key, Duration)],
        now: Timestamp,
        only_known: bool,
        write: impl FnOnce(&mut [Entry], Timestamp) -> R,
    ) -> R {
        let mut numbers: ArrayVec<usize, EACH_MAX> = keys.iter().map(|&(key, _)| self.number(key)).collect();
        // Locks are always taken in the same order; otherwise two writers could deadlock.
        numbers.sort_unstable();
        let mut shards: ArrayVec<(usize, MutexGuard<'_, Shard>), EACH_MAX> = ArrayVec::new();
        for number in numbers {
            if shards.last().is_none_or(|&(locked, _)| locked != number) {
                shards.push((number, lock(&self.shards[number])));
            }
        }
        let now = shards.iter_mut().map(|(_, shard)| shard.moment(now)).max().unwrap_or(now);
        let mut entries: ArrayVec<Entry, EACH_MAX> = ArrayVec::new();
        for &(key, keep) in keys {
            let shard = locked(&mut shards, self.number(key));
            entries.push(match only_known {
                false => *shard.entry(key, now, keep),
                true => shard.known(key, now).map_or(Entry::default(), |entry| *entry),
            });
        }
        let result = write(&mut entries, now);
        for (&(key, keep), entry) in keys.iter().zip(entries) {
            let shard = locked(&mut shards, self.number(key));
            if !only_known || shard.known(key, now).is_some() {
                *shard.entry(key, now, keep) = entry;
            }
        }
        result
    }

    /// Passes the entry of `key` and the moment to `write`, if the entry exists. The entry's expiry does not change.
    pub fn with_known(&self, key: Key, now: Timestamp, write: impl FnOnce(&mut Entry, Timestamp)) {
        let mut shard = self.shard(key);
        let now = shard.moment(now);
        if let Some(entry) = shard.known(key, now) {
            write(entry, now);
        }
    }

    /// Gives `key` its former entry, which expires after `left`.
    pub fn put_back(&self, key: Key, entry: Entry, left: Duration, now: Timestamp) {
        self.shard(key).put_back(key, entry, left, now);
    }

    /// Starts recording the keys of all writes and removals. Returns the keys since the last call, in no
    /// particular order.
    pub fn track(&self) -> Vec<Key> {
        self.shards.iter().flat_map(|shard| lock(shard).track()).collect()
    }

    /// Stops recording. Returns the keys recorded so far, in no particular order.
    pub fn tracked(&self) -> Vec<Key> {
        self.shards.iter().flat_map(|shard| lock(shard).tracked()).collect()
    }

    /// A copy of the entry of `key` and its remaining lifetime, if it has not expired.
    pub fn get(&self, key: Key, now: Timestamp) -> Option<(Entry, Duration)> {
        self.row(key, now).map(|found| (found.entry, found.left))
    }

    /// A copy of the row of `key`, if it has not expired.
    pub fn row(&self, key: Key, now: Timestamp) -> Option<Found> {
        let number = self.number(key);
        let row = lock(&self.shards[number]).row(key, now)?;
        Some(row.of_shard(number))
    }

    /// Copies some rows to `page` and returns the start of the next page, or `None` at the end.
    ///
    /// A shard is locked for [`PAGE_ROWS`] rows at most, so a walk through the table slows no request down.
    /// Rows may change between pages. A row that exists throughout is seen once; a row that is added or
    /// removed may be missed.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use slowlane_core::{base::{Key, Timestamp}, table::{Cursor, Page, Sizing, Table}};
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

    /// Removes the entry of `key` if `is_to_go` returns true.
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

    /// The number of a key's shard, from the highest bits of its spread.
    fn number(&self, key: Key) -> usize {
        (self.spread.bits(key) >> (u64::BITS - SHARD_BITS_MAX)) as usize & (self.shards.len() - 1)
    }

    fn shard(&self, key: Key) -> MutexGuard<'_, Shard> {
        lock(&self.shards[self.number(key)])
    }
}

fn locked<'s>(shards: &'s mut [(usize, MutexGuard<'_, Shard>)], number: usize) -> &'s mut Shard {
    let shard = shards.iter_mut().find(|(locked, _)| *locked == number);
    &mut shard.expect("the shard of each key is locked").1
}

/// Locks a shard, even if a writer has panicked: at worst, the writer has left one entry half judged, and the table
/// keeps serving.
///
/// A shard is locked for less time than a thread takes to fall asleep. So a waiting thread first spins at growing
/// intervals. It sleeps only when the holder of the lock is probably not running.
pub(super) fn lock<T>(shard: &Mutex<T>) -> MutexGuard<'_, T> {
    for pauses in 0..LOCK_TRIES {
        match shard.try_lock() {
            Ok(shard) => return shard,
            Err(TryLockError::Poisoned(error)) => return error.into_inner(),
            Err(TryLockError::WouldBlock) => (0..1 << pauses).for_each(|_| spin_loop()),
        }
    }
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
