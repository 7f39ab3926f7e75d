//! What the table keeps of one key.

use crate::base::time::Timestamp;
use crate::table::freq_ctr::FreqCtr;

/// A row as a stick-table user reads it, whatever law writes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The law's own.
    pub state: State,
    /// Requests asked about since the entry came to be; it wraps, as a stick table's does.
    pub http_req_cnt: u32,
    /// Estimated clients, in thousandths.
    pub gpt0: u32,
    /// Requests per second that the law throttles.
    pub gpc0_rate: FreqCtr,
    /// Of these, the ones it let through, at once or after a delay.
    pub gpc1_rate: FreqCtr,
}

impl Entry {
    /// Counts a request that is asked about, under a law that throttles all of them.
    pub fn ask(&mut self, cost: u32, now: Timestamp) {
        self.http_req_cnt = self.http_req_cnt.wrapping_add(cost);
        self.gpc0_rate.add(cost, now.ticks_ms());
    }

    /// Counts a request that is let through, at once or after a delay.
    pub fn let_through(&mut self, cost: u32, now: Timestamp) {
        self.gpc1_rate.add(cost, now.ticks_ms());
    }
}

/// What a law remembers beside the columns: a moment, or two counts, and one count more. All are zero in a
/// fresh entry.
///
/// It is three words of 32 bits, so that a row has no gap and keeps to one line of the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State([u32; 3]);

impl State {
    /// The first two words as one number, mostly a moment in nanoseconds.
    pub const fn wide(&self) -> u64 {
        (self.0[0] as u64) << 32 | self.0[1] as u64
    }

    pub const fn set_wide(&mut self, wide: u64) {
        self.0[0] = (wide >> 32) as u32;
        self.0[1] = wide as u32;
    }

    /// The third word.
    pub const fn narrow(&self) -> u32 {
        self.0[2]
    }

    pub const fn set_narrow(&mut self, narrow: u32) {
        self.0[2] = narrow;
    }
}
