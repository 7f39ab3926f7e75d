//! A sketch: estimated counts of any number of keys in a fixed amount of memory.
//!
//! The Count-Min sketch of Cormode and Muthukrishnan ("An Improved Data Stream Summary", Journal of Algorithms, 2005)
//! over two windows, with atomics instead of a lock:
//!
//! ```text
//!          column 0   1   2   …                    a key has one cell in each row, chosen by its own bits
//! row 0 │  cell  │ cell │ cell │ …                  a request adds its cost to all of them
//! row 1 │  cell  │ cell │ cell │ …                  the count of a key is the least of its cells
//!
//! cell: window, modulo 2^20 ─ 20 bits │ count of the window before ─ 22 bits │ count of the window ─ 22 bits
//! ```
//! A cell contains the counts of all keys that share it, so no count is ever too low. In one row, the other
//! keys add total / columns to the count of a key on average, and more than ten times as much in at most one
//! case in ten (Markov). All rows have such an error at once in at most one case in 10^rows.
//!
//! A new window costs nothing: a cell is updated when it is used. Unused cells are cleared long before their 20 bits
//! wrap around.

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::base::{Key, Timestamp};
use crate::table::locks::AtomicU64;

/// The maximum number of rows. The confidence of six rows, 1 - 10^-6, is as good as certainty.
pub const ROWS_MAX: u32 = 6;

/// The maximum number of bits of a column's index. Three rows share the 64 bits of a key.
pub const COLUMN_BITS_MAX: u32 = 21;

const ROWS_PER_WORD: u32 = u64::BITS / COLUMN_BITS_MAX;

const COUNT_BITS: u32 = 22;

/// The largest count that a cell can hold. Additional requests do not increase the count.
pub const COUNT_MAX: u32 = (1 << COUNT_BITS) - 1;

const EPOCH_BITS: u32 = u64::BITS - 2 * COUNT_BITS;

/// The number of windows in which every unused cell is cleared once: an eighth of the epochs. So no cell
/// falls behind by nearly half of the epochs, at which point it would seem to be ahead.
const CLEARED_IN: u64 = 1 << (EPOCH_BITS - 3);

/// How far one thread's clock may be behind another's. A larger difference means that the clock was set back.
const SKEW_MAX: Duration = Duration::from_secs(1);

/// The numbers of rows and columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub rows: u32,
    /// The number of columns is 2 to this power.
    pub column_bits: u32,
}

impl Shape {
    /// The memory of a sketch, in bytes.
    pub const fn bytes(self) -> usize {
        self.cells() * size_of::<u64>()
    }

    const fn cells(self) -> usize {
        (self.rows as usize) << self.column_bits
    }
}

/// The counts of a key at one moment. They are never too low, but may include requests of other keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The number of the window. Windows begin at multiples of their length.
    pub window: u64,
    /// The age of the window.
    pub age_ns: u64,
    /// The count of the previous window.
    pub prev: u32,
    /// The count of the current window.
    pub curr: u32,
}

/// Estimated counts of any number of keys.
///
/// ```
/// use std::time::Duration;
/// use slowlane_core::{base::{Key, Timestamp}, table::{Shape, Sketch}};
///
/// let sketch = Sketch::new(Shape { rows: 2, column_bits: 10 }, Duration::from_secs(1));
/// assert_eq!(sketch.bytes(), 2 * 1_024 * 8);
/// let (key, second) = (Key::from_bits(7), |number: u64| Timestamp::from_millis(number * 1_000));
/// for _ in 0..3 {
///     sketch.with(key, 5, second(60), |_| (true, ()));
/// }
/// let counts = |at| (sketch.read(key, at).prev, sketch.read(key, at).curr);
/// assert_eq!([counts(second(60)), counts(second(61)), counts(second(62))], [(0, 15), (15, 0), (0, 0)]);
/// ```
#[derive(Debug)]
pub struct Sketch {
    cells: Box<[AtomicU64]>,
    shape: Shape,
    window_ns: u64,
    /// The number of the latest window.
    latest: AtomicU64,
    /// The moment of the first use. `u64::MAX` before that.
    first_ns: AtomicU64,
}

impl Sketch {
    /// An empty sketch. Counts fade within two windows.
    pub fn new(shape: Shape, window: Duration) -> Sketch {
        let cells = (0..shape.cells()).map(|_| AtomicU64::new(0)).collect();
        Sketch {
            cells,
            shape,
            window_ns: window.as_nanos() as u64,
            latest: AtomicU64::new(0),
            first_ns: AtomicU64::new(u64::MAX),
        }
    }

    pub fn bytes(&self) -> usize {
        self.shape.bytes()
    }

    /// Passes the counts of a key to `judge`, and adds the cost to these counts if `judge` says so. Also returns the
    /// moment of the counts: `now`, or the beginning of the latest window if this thread's clock is behind.
    ///
    /// `judge` is called again if another thread has counted in the meantime. Only its last answer is used,
    /// so no two requests get the same place.
    #[inline]
    pub fn with<R>(
        &self,
        key: Key,
        cost: u32,
        now: Timestamp,
        judge: impl Fn(&Seen) -> (bool, R),
    ) -> (R, Timestamp) {
        let at = self.at(now);
        let moment = Timestamp::from_nanos(at.window * self.window_ns + at.age_ns);
        let seen = self.seen(key, at);
        let (counts, result) = judge(&seen);
        if !counts {
            return (result, moment);
        }
        let before = self.add(key, cost, at, seen);
        if before == seen {
            return (result, moment);
        }
        let (counts, result) = judge(&before);
        if !counts {
            self.subtract(key, cost, at.window);
        }
        (result, moment)
    }

    /// The counts of a key.
    pub fn read(&self, key: Key, now: Timestamp) -> Seen {
        self.seen(key, self.at(now))
    }

    /// Takes back the cost of a request that was counted at this moment. If later windows have begun, the
    /// cost may stay counted.
    pub fn take_back(&self, key: Key, cost: u32, at: Timestamp) {
        // Requests before the sketch's first moment were counted in another sketch.
        if at.as_nanos() >= self.first_ns.load(Relaxed) {
            self.subtract(key, cost, at.as_nanos() / self.window_ns);
        }
    }

    #[inline]
    fn seen(&self, key: Key, at: Seen) -> Seen {
        let cells = || self.places(key).map(|place| Cell(self.cells[place].load(Relaxed)));
        // Another thread may have begun the next window in the meantime.
        let is_next = cells().any(|cell| cell.windows_to(at.window) == -1);
        let at = if is_next { Seen::none(at.window + 1, 0) } else { at };
        cells().fold(at, |seen, cell| seen.least(cell))
    }

    /// Adds the cost to a window, and returns the previous counts of that window.
    #[inline]
    fn add(&self, key: Key, cost: u32, at: Seen, seen: Seen) -> Seen {
        // The count of the previous window hardly changes any more, so an earlier reading of it remains valid.
        let prev = if seen.window == at.window { seen.prev } else { COUNT_MAX };
        self.places(key).fold(Seen { prev, curr: COUNT_MAX, ..seen }, |seen, place| {
            seen.least(self.update(place, |cell| Some(cell.with(cost, at.window))))
        })
    }

    fn subtract(&self, key: Key, cost: u32, window: u64) {
        for place in self.places(key) {
            self.update(place, |cell| cell.without(cost, window));
        }
    }

    /// Changes a cell atomically, and returns its old value.
    #[inline]
    fn update(&self, place: usize, change: impl Fn(Cell) -> Option<Cell>) -> Cell {
        let mut cell = Cell(self.cells[place].load(Relaxed));
        while let Some(next) = change(cell) {
            match self.cells[place].compare_exchange_weak(cell.0, next.0, Relaxed, Relaxed) {
                Ok(_) => break,
                Err(other) => cell = Cell(other),
            }
        }
        cell
    }

    /// The cells of a key, one in each row. Each row uses different bits of the key. A key is a keyed hash,
    /// so clients cannot choose colliding keys.
    #[inline]
    fn places(&self, key: Key) -> impl Iterator<Item = usize> {
        let Shape { rows, column_bits } = self.shape;
        let bits = key.bits();
        (0..rows).map(move |row| {
            let word = if row < ROWS_PER_WORD { bits } else { mixed(bits) };
            let column = word >> (row % ROWS_PER_WORD * COLUMN_BITS_MAX) & ((1 << column_bits) - 1);
            (row as usize) << column_bits | column as usize
        })
    }

    /// The window of a moment, with the largest possible counts.
    ///
    /// A thread whose clock is slightly behind counts in the latest window, so no cell goes back.
    #[inline]
    fn at(&self, now: Timestamp) -> Seen {
        let window = self.latest.load(Relaxed);
        let age_ns = now.as_nanos().wrapping_sub(window * self.window_ns);
        if age_ns < self.window_ns { Seen::none(window, age_ns) } else { self.turn(window, now) }
    }

    #[cold]
    fn turn(&self, latest: u64, now: Timestamp) -> Seen {
        let (window, age_ns) = (now.as_nanos() / self.window_ns, now.as_nanos() % self.window_ns);
        let begin = Timestamp::from_nanos(latest * self.window_ns);
        if window < latest && begin.since(now) <= SKEW_MAX {
            return Seen::none(latest, 0);
        }
        if latest == 0 {
            self.first_ns.fetch_min(now.as_nanos(), Relaxed);
        }
        if self.latest.compare_exchange(latest, window, Relaxed, Relaxed).is_ok() {
            self.clear(latest, window);
        }
        Seen::none(window, age_ns)
    }

    /// Clears unused cells, some in each window, or all cells after a long pause. Adapts to a clock that was set back.
    fn clear(&self, from: u64, to: u64) {
        let cells = self.cells.len() as u64;
        let each = cells.div_ceil(CLEARED_IN);
        match to.checked_sub(from) {
            // Nothing has been counted yet.
            _ if from == 0 => {}
            Some(passed) if passed < CLEARED_IN => {
                let first = from % CLEARED_IN * each;
                self.update_all(first..first + passed * each, |cell| cell.is_over(to).then_some(Cell(0)));
            }
            // After this long, 20 bits cannot show the age of a cell. Requests that other threads count in
            // the meantime are lost. Clearing takes a few milliseconds per million cells, but only after a
            // pause of a hundred thousand windows.
            Some(_) => self.update_all(0..cells, |_| Some(Cell(0))),
            // The clock was set back: counts of later windows move to this one, and fade with it.
            None => self.update_all(0..cells, |cell| (!cell.is_near(to)).then(|| cell.moved_to(to))),
        }
    }

    fn update_all(&self, places: Range<u64>, change: impl Fn(Cell) -> Option<Cell>) {
        for place in places {
            self.update((place % self.cells.len() as u64) as usize, &change);
        }
    }
}

impl Seen {
    fn none(window: u64, age_ns: u64) -> Seen {
        Seen { window, age_ns, prev: COUNT_MAX, curr: COUNT_MAX }
    }

    /// Each of these counts, or the cell's count if that is smaller.
    #[inline]
    fn least(self, cell: Cell) -> Seen {
        let (prev, curr) = cell.at(self.window);
        Seen { prev: self.prev.min(prev), curr: self.curr.min(curr), ..self }
    }
}

/// The counts of some keys in two windows.
#[derive(Clone, Copy)]
struct Cell(u64);

const EPOCH_MASK: u64 = (1 << EPOCH_BITS) - 1;

impl Cell {
    fn new(window: u64, prev: u32, curr: u32) -> Cell {
        Cell((window & EPOCH_MASK) << (2 * COUNT_BITS) | u64::from(prev) << COUNT_BITS | u64::from(curr))
    }

    fn prev(self) -> u32 {
        (self.0 >> COUNT_BITS) as u32 & COUNT_MAX
    }

    fn curr(self) -> u32 {
        self.0 as u32 & COUNT_MAX
    }

    /// The number of windows from the cell's own window to another; negative if the cell is ahead.
    #[inline]
    fn windows_to(self, window: u64) -> i32 {
        let unused = u32::BITS - EPOCH_BITS;
        let since = (window as u32).wrapping_sub((self.0 >> (2 * COUNT_BITS)) as u32);
        (since << unused) as i32 >> unused
    }

    /// The counts of a window and of the previous one.
    #[inline]
    fn at(self, window: u64) -> (u32, u32) {
        match self.windows_to(window) {
            0 => (self.prev(), self.curr()),
            1 => (self.curr(), 0),
            2.. => (0, 0),
            // The cell has advanced: the count of the previous window is lost, and could have been anything.
            -1 => (COUNT_MAX, self.prev()),
            // The clock was set back: this window takes over the count of the later one.
            ..-1 => (0, self.curr()),
        }
    }

    /// Adds a cost in a window. A cell that has since advanced to the next window adds the cost to its count
    /// of the previous window, as the cells of the other rows do.
    #[inline]
    fn with(self, cost: u32, window: u64) -> Cell {
        let more = |count: u32| count.saturating_add(cost).min(COUNT_MAX);
        if self.windows_to(window) == -1 {
            return Cell::new(window + 1, more(self.prev()), self.curr());
        }
        let (prev, curr) = self.at(window);
        Cell::new(window, prev, more(curr))
    }

    /// Removes a cost that the cell has counted in a window. None if the cell no longer holds the count of
    /// that window. A full count stays full, because its true value is not known.
    fn without(self, cost: u32, window: u64) -> Option<Cell> {
        let less = |count: u32| if count == COUNT_MAX { count } else { count.saturating_sub(cost) };
        match self.windows_to(window) {
            0 => Some(Cell::new(window, self.prev(), less(self.curr()))),
            -1 => Some(Cell::new(window + 1, less(self.prev()), self.curr())),
            _ => None,
        }
    }

    /// Whether the cell has counts, all of them from windows that no longer matter.
    fn is_over(self, window: u64) -> bool {
        self.0 != 0 && self.windows_to(window) >= 2
    }

    /// Whether the cell is empty, or belongs to this window or an adjacent one.
    fn is_near(self, window: u64) -> bool {
        self.0 == 0 || matches!(self.windows_to(window), -1..=1)
    }

    /// The cell with its counts moved from a later window to this one.
    fn moved_to(self, window: u64) -> Cell {
        let (prev, curr) = self.at(window);
        Cell::new(window, prev, curr)
    }
}

/// Mixes the bits of a key once more, with the finalizer of splitmix64.
fn mixed(bits: u64) -> u64 {
    let bits = (bits ^ bits >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let bits = (bits ^ bits >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ bits >> 31
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::HashMap;
    use std::thread;

    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Few cells, so that all keys meet.
    const TIGHT: Shape = Shape { rows: 2, column_bits: 2 };

    fn counts(sketch: &Sketch, key: u64, now: Timestamp) -> (u32, u32) {
        let Seen { prev, curr, .. } = sketch.read(Key::from_bits(key), now);
        (prev, curr)
    }

    fn count(sketch: &Sketch, key: u64, cost: u32, now: Timestamp) {
        sketch.with(Key::from_bits(key), cost, now, |_| (true, ()));
    }

    proptest! {
        /// Of both windows, whatever is counted and taken back, with clocks that differ by half a second.
        #[test]
        fn no_count_is_ever_too_low(
            steps in prop::collection::vec((0..20u64, 1..5u32, 0..400u64, 0..500u64, any::<bool>()), 1..300),
            rows in 1..=ROWS_MAX, column_bits in 0..4u32,
        ) {
            let sketch = Sketch::new(Shape { rows, column_bits }, SECOND);
            let mut exact: HashMap<(u64, u64), u32> = HashMap::new();
            let (mut now_ms, mut last) = (60_000, None);
            for (number, cost, pause_ms, behind_ms, is_taken_back) in steps {
                now_ms += pause_ms;
                let key = mixed(number);
                let now = Timestamp::from_millis(now_ms - behind_ms);
                let ((), now) = sketch.with(Key::from_bits(key), cost, now, |_| (true, ()));
                let window = now.as_nanos() / 1_000_000_000;
                *exact.entry((key, window)).or_default() += cost;
                if let (true, Some((key, cost, at, window))) = (is_taken_back, last) {
                    sketch.take_back(Key::from_bits(key), cost, at);
                    *exact.get_mut(&(key, window)).unwrap() -= cost;
                }
                last = (!is_taken_back).then_some((key, cost, now, window));
                let of = |window| exact.get(&(key, window)).copied().unwrap_or(0);
                let (prev, curr) = counts(&sketch, key, now);
                prop_assert!(prev >= of(window - 1) && curr >= of(window), "{} {} at {}", prev, curr, now_ms);
            }
        }
    }

    /// 100,000 requests of 20,000 keys, a few of them busy: error 10 / columns, confidence 1 - 10^-rows.
    #[test]
    fn few_counts_are_too_high_by_more_than_the_error() {
        const TOTAL: u32 = 100_000;
        for (rows, column_bits) in [(1, 10), (2, 10), (3, 10), (2, 7)] {
            let sketch = Sketch::new(Shape { rows, column_bits }, SECOND);
            let (mut exact, mut rng) = (HashMap::new(), fastrand::Rng::with_seed(1));
            let now = Timestamp::from_millis(60_000);
            for _ in 0..TOTAL {
                let number = rng.u64(0..20_000) * rng.u64(0..20_000) / 20_000;
                count(&sketch, mixed(number + 1), 1, now);
                *exact.entry(mixed(number + 1)).or_insert(0u32) += 1;
            }
            let error = (10 * TOTAL) >> column_bits;
            let is_over = |&(&key, &own): &(&u64, &u32)| counts(&sketch, key, now).1 > own + error;
            let over = exact.iter().filter(is_over).count();
            let allowed = exact.len() / 10usize.pow(rows);
            assert!(over <= allowed, "{rows} rows, {column_bits}: {over} of {}", exact.len());
        }
    }

    /// A cell that rests would count again when its 20 bits of a window come round. Half-way, it would look ahead of
    /// its time.
    #[test]
    fn what_rests_for_a_million_windows_is_forgotten() {
        const HALF: u64 = 1 << (EPOCH_BITS - 1);
        let window = |number: u64| Timestamp::from_millis(number * 1_000);
        for (step, end) in [1, 1_000, CLEARED_IN - 1, CLEARED_IN, 2 * HALF]
            .into_iter()
            .flat_map(|step| [HALF, HALF + 2, 2 * HALF, 2 * HALF + 1].map(|end| (step, end)))
        {
            let sketch = Sketch::new(Shape { rows: 1, column_bits: 4 }, SECOND);
            let (busy, resting) = (0, 1);
            let start = 1 << 30;
            count(&sketch, resting, 7, window(start));
            for past in (1..=end).step_by(step as usize) {
                count(&sketch, busy, 1, window(start + past));
            }
            assert_eq!(
                counts(&sketch, resting, window(start + end)),
                (0, 0),
                "{end} windows, {step} at a time"
            );
        }
    }

    /// With the seed 0, the generator of Steele, Lea and Flood (2014) begins like this. Its state grows by the golden
    /// ratio.
    #[test]
    fn more_bits_of_a_key_are_those_of_splitmix64() {
        const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
        assert_eq!(mixed(GOLDEN), 0xE220_A839_7B1D_CDAF);
        assert_eq!(mixed(GOLDEN.wrapping_mul(2)), 0x6E78_9E6A_A1B9_65F4);
    }

    #[test]
    fn windows_are_numbered_from_the_first_on() {
        let (sketch, key) = (Sketch::new(TIGHT, SECOND), Key::from_bits(1));
        let ms = Timestamp::from_millis;
        count(&sketch, 1, 3, ms(1_500));
        let seen = Seen { window: 1, age_ns: 500_000_000, prev: 0, curr: 3 };
        assert_eq!(sketch.read(key, ms(1_500)), seen);
        assert_eq!([counts(&sketch, 1, ms(2_500)), counts(&sketch, 1, ms(3_500))], [(3, 0), (0, 0)]);
    }

    /// With two cells for each window of a round, 102 windows clear the first 204.
    #[test]
    fn a_large_sketch_clears_several_cells_in_each_window() {
        let sketch = Sketch::new(Shape { rows: 1, column_bits: 18 }, SECOND);
        let window = |number: u64| Timestamp::from_millis(number * 1_000);
        let start = 1 << 30;
        (100..300).for_each(|key| count(&sketch, key, 7, window(start)));
        (1..=102).for_each(|past| count(&sketch, 1 << 17, 1, window(start + past)));
        let rests = |place: &usize| sketch.cells[*place].load(Relaxed) != 0;
        assert!((100..300).filter(rests).eq(204..300));
    }

    #[test]
    fn a_full_count_stays_full() {
        let sketch = Sketch::new(TIGHT, SECOND);
        let now = Timestamp::from_millis(60_000);
        (0..5).for_each(|_| count(&sketch, 1, 1_000_000, now));
        assert_eq!(counts(&sketch, 1, now), (0, COUNT_MAX));
        sketch.take_back(Key::from_bits(1), 1_000_000, now);
        assert_eq!(counts(&sketch, 1, now), (0, COUNT_MAX), "how much is left is not known");
    }

    #[test]
    fn a_clock_that_was_set_back_is_believed() {
        let sketch = Sketch::new(TIGHT, SECOND);
        let second = |number: u64| Timestamp::from_millis(number * 1_000);
        count(&sketch, 1, 3, second(7_200));
        assert_eq!([counts(&sketch, 1, second(3_600)), counts(&sketch, 1, second(3_601))], [(0, 3), (3, 0)]);
        assert_eq!(
            counts(&sketch, 1, second(3_602)),
            (0, 0),
            "it does not last until the clock is there again"
        );
        count(&sketch, 1, 3, second(7_200));
        assert_eq!(counts(&sketch, 1, second(3_600)), (0, 3));
        count(&sketch, 1, 1, second(3_600));
        assert_eq!([counts(&sketch, 1, second(3_601)), counts(&sketch, 1, second(3_602))], [(4, 0), (0, 0)]);
    }

    #[test]
    fn a_request_of_another_sketch_is_not_taken_back() {
        let sketch = Sketch::new(TIGHT, SECOND);
        count(&sketch, 1, 3, Timestamp::from_millis(60_500));
        sketch.take_back(Key::from_bits(1), 3, Timestamp::from_millis(60_499));
        assert_eq!(counts(&sketch, 1, Timestamp::from_millis(60_500)), (0, 3));
        sketch.take_back(Key::from_bits(1), 3, Timestamp::from_millis(60_500));
        assert_eq!(counts(&sketch, 1, Timestamp::from_millis(60_500)), (0, 0));
    }

    /// Another thread takes the only place, after this one has seen it.
    #[test]
    fn no_place_is_given_twice() {
        let sketch = Sketch::new(TIGHT, SECOND);
        let now = Timestamp::from_millis(60_000);
        let other = Cell::new(true);
        let (is_given, _) = sketch.with(Key::from_bits(1), 1, now, |seen| {
            if other.take() {
                count(&sketch, 1, 1, now);
            }
            (seen.curr == 0, seen.curr == 0)
        });
        assert!(!is_given);
        assert_eq!(counts(&sketch, 1, now), (0, 1));
    }

    /// Another thread begins the next window, after this one has read its clock.
    #[test]
    fn a_request_counts_in_its_own_window_although_the_next_has_begun() {
        let sketch = Sketch::new(TIGHT, SECOND);
        let (now, next) = (Timestamp::from_millis(60_999), Timestamp::from_millis(61_000));
        // The other key shares one of the two cells.
        let (own, other_key) = (1, 1 | 1 << COLUMN_BITS_MAX);
        count(&sketch, own, 2, now);
        let other = Cell::new(true);
        sketch.with(Key::from_bits(own), 3, now, |_| {
            if other.take() {
                count(&sketch, other_key, 1, next);
            }
            (true, ())
        });
        let (prev, curr) = counts(&sketch, own, next);
        assert_eq!((prev, curr), (5, 0));
    }

    /// Threads count as fast as they can, and nothing is lost.
    #[test]
    fn nothing_is_lost_between_threads() {
        let sketch = Sketch::new(TIGHT, SECOND);
        let now = Timestamp::from_millis(60_000);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..50_000).for_each(|_| count(&sketch, 1, 1, now)));
            }
        });
        assert_eq!(counts(&sketch, 1, now), (0, 200_000));
    }
}
