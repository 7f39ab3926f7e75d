//! One shard: rows that never move, found by key and linked in the order of their expiry.

use std::hint::black_box;
use std::time::Duration;

use hashbrown::HashSet;

use crate::base::{Key, Timestamp};
use crate::table::entry::Entry;
use crate::table::index::Index;
use crate::table::spread::Spread;

/// The maximum number of expired rows that a write removes. Two for each added row are enough to empty any backlog.
const EXPIRED_PER_WRITE: usize = 2;

/// Lifetimes are rounded up to `expire` times 1, 4, 16 and so on. Rows of one class then expire in the order
/// of their writes, so a plain list keeps them sorted. If `expire` is at least 30 s, twelve classes reach
/// beyond [`LIFETIME_MAX`].
const CLASSES: usize = 12;

/// The longest lifetime of a row, whatever its class. It is well within the range of an [`Expiry`].
const LIFETIME_MAX: Duration = Duration::from_secs(366 * 86_400);

/// How far one thread's clock may be behind another's. A larger difference means that the clock was set back.
const SKEW_MAX: Duration = Duration::from_secs(1);

/// An entry with its place: 64 bytes, one cache line.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    key: u64,
    entry: Entry,
    expires: Expiry,
    older: u32,
    newer: u32,
}

const _: () = assert!(size_of::<Row>() == 64);

/// A copy of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    pub key: Key,
    pub entry: Entry,
    /// The time until the entry expires.
    pub left: Duration,
    /// The shard and the number of the entry's row. They stay the same for the life of the entry, and differ
    /// from those of any other live entry.
    pub place: u64,
}

const ROW_BITS: u32 = u32::BITS;

impl Found {
    pub(super) fn of_shard(self, shard: usize) -> Found {
        // Shards are counted from 1 here, so a place never looks like a bare row number.
        Found { place: (shard as u64 + 1) << ROW_BITS | self.place, ..self }
    }
}

impl Row {
    fn found(&self, number: u32, now: Timestamp) -> Found {
        Found {
            key: Key::from_bits(self.key),
            entry: self.entry,
            left: self.expires.left(now),
            place: number.into(),
        }
    }
}

/// Expiry of a row in wrapping units of 16 ms. 32 bits span two years: one ahead and one behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Expiry(u32);

const EXPIRY_UNIT_MS: u64 = 16;

impl Expiry {
    /// The first unit that is not before `moment`.
    fn at(moment: Timestamp) -> Expiry {
        Expiry(moment.as_nanos().div_ceil(EXPIRY_UNIT_MS * 1_000_000) as u32)
    }

    /// The number of units left at `now`; zero or negative after the expiry.
    fn units_left(self, now: Timestamp) -> i32 {
        let now = now.as_nanos() / (EXPIRY_UNIT_MS * 1_000_000);
        self.0.wrapping_sub(now as u32) as i32
    }

    fn is_over(self, now: Timestamp) -> bool {
        self.units_left(now) <= 0
    }

    /// Whether another expiry lies in the same stretch of 2^`bits` units.
    fn is_near(self, other: Expiry, bits: u32) -> bool {
        self.0 >> bits == other.0 >> bits
    }

    fn left(self, now: Timestamp) -> Duration {
        let of_unit = Duration::from_nanos(now.as_nanos() % (EXPIRY_UNIT_MS * 1_000_000));
        Duration::from_millis(self.units_left(now).max(0) as u64 * EXPIRY_UNIT_MS).saturating_sub(of_unit)
    }
}

/// Detects whether new keys arrive fast enough to fill the table within a few stretches.
#[derive(Clone, Copy, Debug, Default)]
struct Flood {
    until: Timestamp,
    counted: u32,
    counted_since: Timestamp,
}

impl Flood {
    /// Counts a new key. More than `many` new keys in one stretch start a flood that lasts for two stretches.
    fn add(&mut self, now: Timestamp, many: u32, stretch: Duration) {
        self.counted += 1;
        if self.counted > many {
            if now.since(self.counted_since) < stretch {
                self.until = now + 2 * stretch;
            }
            (self.counted, self.counted_since) = (0, now);
        }
    }

    fn is_on(&self, now: Timestamp) -> bool {
        now < self.until
    }
}

/// Counters of a table for operators.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub entries: u64,
    /// The number of live entries evicted because the table was full.
    pub evictions: u64,
}

/// Rows, an index over them, and one ring per class in the order of expiry.
/// ```text
///  index: key ─▶ row number            one ring per class, headed by a mark, which is one of the first rows:
///  rows:  │ mark 0 │ … │ mark 11 │ row │ row │ …     mark ─newer▶ oldest ─▶ … ─▶ newest ─▶ mark
/// ```
/// Unused rows form a chain through `newer`. The `older` of such a row is the row itself.
///
/// The alignment keeps two shards out of the same cache line, and out of two adjacent lines that are fetched together.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Shard {
    index: Index,
    rows: Vec<Row>,
    /// The first unused row of the chain.
    unused: Option<u32>,
    entries_max: u32,
    /// The lifetime of each class: `expire` first.
    lifetimes: [Duration; CLASSES],
    /// The length of a stretch, during which rows keep their places, is 2 to this power, in units.
    stretch_bits: u32,
    flood: Flood,
    evictions: u64,
    /// The earliest possible expiry. Until then, writes skip the scan for expired rows.
    quiet_until: Expiry,
    /// The latest moment of a write.
    latest: Timestamp,
    /// Keys written or removed since tracking began. None if nothing is tracked.
    touched: Option<HashSet<Key>>,
}

impl Shard {
    pub(super) fn new(entries_max: u32, expire: Duration, spread: Spread) -> Shard {
        let mut rows = Vec::with_capacity(CLASSES + entries_max as usize);
        for mark in 0..CLASSES as u32 {
            rows.push(Row { older: mark, newer: mark, ..Row::default() });
        }
        let index = Index::new(entries_max, spread);
        let stretch_bits = stretch_bits(expire);
        let quiet_until = Expiry::default();
        let flood = Flood::default();
        Shard {
            index,
            rows,
            unused: None,
            entries_max,
            lifetimes: std::array::from_fn(|class| lifetime(expire, class)),
            stretch_bits,
            flood,
            evictions: 0,
            quiet_until,
            latest: Timestamp::default(),
            touched: None,
        }
    }

    /// Starts recording the keys of all writes and removals. Returns the keys recorded so far.
    pub(super) fn track(&mut self) -> HashSet<Key> {
        self.touched.replace(HashSet::new()).unwrap_or_default()
    }

    /// Stops recording. Returns the recorded keys.
    pub(super) fn tracked(&mut self) -> HashSet<Key> {
        self.touched.take().unwrap_or_default()
    }

    #[inline]
    fn touch(&mut self, key: Key) {
        if let Some(touched) = &mut self.touched {
            touched.insert(key);
        }
    }

    /// The moment of a write: `now`, or the latest moment if another thread has written just after `now`.
    ///
    /// A thread reads the clock before it gets the lock. If laws and counters went back and forth between two moments,
    /// they would lose the time between them. HAProxy avoids this with one clock for all threads.
    pub(super) fn moment(&mut self, now: Timestamp) -> Timestamp {
        self.latest = if self.latest.since(now) > SKEW_MAX { now } else { self.latest.max(now) };
        self.latest
    }

    pub(super) fn usage(&self) -> Usage {
        Usage { entries: self.index.len() as u64, evictions: self.evictions }
    }

    /// Passes live rows to `report`. Checks at most `rows` rows, starting at row `from`, and returns the
    /// number of the next row, or `None` at the end.
    pub(super) fn page(
        &self,
        from: u32,
        rows: u32,
        now: Timestamp,
        mut report: impl FnMut(Found),
    ) -> Option<u32> {
        let from = from.max(CLASSES as u32);
        let end = from.saturating_add(rows).min(self.rows.len() as u32);
        for number in from..end {
            let row = &self.rows[number as usize];
            if row.older != number && !row.expires.is_over(now) {
                report(row.found(number, now));
            }
        }
        (end < self.rows.len() as u32).then_some(end)
    }

    /// A copy of the row of `key`, if it has not expired.
    pub(super) fn row(&self, key: Key, now: Timestamp) -> Option<Found> {
        let number = self.find(key)?;
        let row = &self.rows[number as usize];
        (!row.expires.is_over(now)).then(|| row.found(number, now))
    }

    /// Removes the row of `key` if `is_to_go` returns true.
    pub(super) fn remove(&mut self, key: Key, is_to_go: impl FnOnce(&Entry) -> bool) -> bool {
        match self.find(key) {
            Some(number) if is_to_go(&self.rows[number as usize].entry) => {
                self.give_up(number);
                true
            }
            _ => false,
        }
    }

    /// The entry of `key`, if it has not expired.
    pub(super) fn known(&mut self, key: Key, now: Timestamp) -> Option<&mut Entry> {
        let number = self.find(key)? as usize;
        self.touch(key);
        let row = &mut self.rows[number];
        (!row.expires.is_over(now)).then_some(&mut row.entry)
    }

    /// The entry of `key`, re-armed. It is fresh if the key is new or has expired.
    pub(super) fn entry(&mut self, key: Key, now: Timestamp, keep: Duration) -> &mut Entry {
        self.entry_in(0, key, now, keep)
    }

    /// Like [`entry`](Shard::entry), for a key that was in this row a moment ago; `row` is 0 if the key had no row.
    pub(super) fn entry_in(&mut self, row: u32, key: Key, now: Timestamp, keep: Duration) -> &mut Entry {
        self.touch(key);
        self.clear_expired(now);
        let class = self.class(keep);
        let expires = Expiry::at(now + self.lifetimes[class]);
        let known = if self.is_of(row, key) { Some(row) } else { self.find(key) };
        let number = match known {
            Some(number) => {
                self.re_arm(number, now, expires, class);
                number
            }
            None => {
                let number = self.add(key, now);
                self.rows[number as usize].expires = expires;
                self.link(number, class);
                number
            }
        };
        // This row may now be the first of all to expire.
        if expires.units_left(now) < self.quiet_until.units_left(now) {
            self.quiet_until = expires;
        }
        &mut self.rows[number as usize].entry
    }

    /// Gives a key its former entry, which expires after `left`. The row is placed after the other rows of its class,
    /// although it may expire before them, so it may be evicted or removed after rows that expire later.
    pub(super) fn put_back(&mut self, key: Key, entry: Entry, left: Duration, now: Timestamp) {
        *self.entry(key, now, left) = entry;
        let expires = Expiry::at(now + left);
        let number = self.find(key).expect("the key was just added");
        self.rows[number as usize].expires = expires;
        if expires.units_left(now) < self.quiet_until.units_left(now) {
            self.quiet_until = expires;
        }
    }

    /// Reads the memory that [`entry`](Shard::entry) will write: the row, and usually its neighbours in the
    /// order of expiry. Returns the row's number, or 0 for a new key.
    pub(super) fn look(&self, key: Key, now: Timestamp) -> u32 {
        let Some(number) = self.find(key) else { return 0 };
        let Row { expires, older, newer, .. } = self.rows[number as usize];
        if !self.keeps_its_place(expires, Expiry::at(now + self.lifetimes[0]), now) {
            // Without this, the compiler would drop the reads, because their results are not used.
            black_box((self.rows[older as usize].newer, self.rows[newer as usize].older));
        }
        number
    }

    /// Whether a row is in use and belongs to this key.
    fn is_of(&self, number: u32, key: Key) -> bool {
        let row = &self.rows[number as usize];
        number > 0 && row.key == key.bits() && row.older != number
    }

    fn find(&self, key: Key) -> Option<u32> {
        self.index.find(key, |number| self.rows[number as usize].key == key.bits())
    }

    /// A row for a new key, not yet in any ring.
    fn add(&mut self, key: Key, now: Timestamp) -> u32 {
        self.flood.add(now, self.entries_max / 8, self.stretch());
        if self.index.len() >= self.entries_max as usize {
            self.evict(now);
        }
        let row = Row { key: key.bits(), ..Row::default() };
        let number = match self.unused {
            Some(number) => {
                let next = self.rows[number as usize].newer;
                self.unused = (next != number).then_some(next);
                self.rows[number as usize] = row;
                number
            }
            None => {
                self.rows.push(row);
                self.rows.len() as u32 - 1
            }
        };
        let rows = &self.rows;
        self.index.insert(key, number, |number| Key::from_bits(rows[number as usize].key));
        number
    }

    fn re_arm(&mut self, number: u32, now: Timestamp, expires: Expiry, class: usize) {
        let row = &mut self.rows[number as usize];
        if row.expires.is_over(now) {
            row.entry = Entry::default();
        }
        let before = std::mem::replace(&mut row.expires, expires);
        if !self.keeps_its_place(before, expires, now) {
            self.unlink(number);
            self.link(number, class);
        }
    }

    /// A row whose expiry stays in the same stretch is not moved, because a move also writes to the row's old and new
    /// neighbours. During a flood, every row is moved, so that a key with more requests outlives the flood.
    fn keeps_its_place(&self, before: Expiry, expires: Expiry, now: Timestamp) -> bool {
        before.is_near(expires, self.stretch_bits) && !self.flood.is_on(now)
    }

    fn stretch(&self) -> Duration {
        Duration::from_millis(EXPIRY_UNIT_MS << self.stretch_bits)
    }

    /// Makes a row the newest of a class.
    fn link(&mut self, number: u32, class: usize) {
        let newest = self.rows[class].older;
        let row = &mut self.rows[number as usize];
        (row.older, row.newer) = (newest, class as u32);
        self.rows[newest as usize].newer = number;
        self.rows[class].older = number;
    }

    /// The first class with a lifetime of at least `keep`.
    fn class(&self, keep: Duration) -> usize {
        self.lifetimes.iter().position(|&lifetime| lifetime >= keep).unwrap_or(CLASSES - 1)
    }

    fn unlink(&mut self, number: u32) {
        let Row { older, newer, .. } = self.rows[number as usize];
        self.rows[older as usize].newer = newer;
        self.rows[newer as usize].older = older;
    }

    fn clear_expired(&mut self, now: Timestamp) {
        if !self.quiet_until.is_over(now) {
            return;
        }
        for _ in 0..EXPIRED_PER_WRITE {
            match self.next_to_expire(now) {
                Some(number) if self.rows[number as usize].expires.is_over(now) => self.give_up(number),
                Some(number) => return self.quiet_until = self.rows[number as usize].expires,
                None => return,
            }
        }
    }

    fn evict(&mut self, now: Timestamp) {
        let Some(number) = self.next_to_expire(now) else { return };
        if !self.rows[number as usize].expires.is_over(now) {
            self.evictions += 1;
        }
        self.give_up(number);
    }

    /// The row that expires next. The oldest row of each class expires first in its class, to within a
    /// stretch; of these rows, the one that expires earliest is next.
    fn next_to_expire(&self, now: Timestamp) -> Option<u32> {
        (0..CLASSES)
            .map(|mark| (mark as u32, self.rows[mark].newer))
            .filter(|(mark, oldest)| oldest != mark)
            .map(|(_, oldest)| oldest)
            .min_by_key(|&oldest| self.rows[oldest as usize].expires.units_left(now))
    }

    fn give_up(&mut self, number: u32) {
        let key = Key::from_bits(self.rows[number as usize].key);
        self.touch(key);
        self.unlink(number);
        let rows = &self.rows;
        self.index.remove(key, number, |number| Key::from_bits(rows[number as usize].key));
        let row = &mut self.rows[number as usize];
        // The end of the chain points at itself.
        (row.older, row.newer) = (number, self.unused.unwrap_or(number));
        self.unused = Some(number);
    }
}

/// The lifetime of a class: `expire` times a power of 4, but at most a year.
fn lifetime(expire: Duration, class: usize) -> Duration {
    expire.saturating_mul(1 << (2 * class)).min(LIFETIME_MAX)
}

/// The stretch is at most a sixteenth of `expire`.
fn stretch_bits(expire: Duration) -> u32 {
    let sixteenth = expire.as_millis() as u64 / EXPIRY_UNIT_MS / 16;
    sixteenth.checked_ilog2().unwrap_or(0).min(u32::BITS - 1)
}

#[cfg(test)]
#[path = "shard/tests.rs"]
mod tests;
