//! The columns of one key in the table.

use serde::{Deserialize, Serialize};

use crate::base::Timestamp;
use crate::table::freq_ctr::FreqCtr;

/// A row as a reader of stick tables expects it, the same under every law.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// State of the law; only that law can interpret it.
    pub state: State,
    /// Requests received since the entry was created. It wraps at 32 bits, as in a stick table.
    pub http_req_cnt: u32,
    /// Estimated clients, in thousandths.
    pub gpt0: u32,
    /// Rate of the requests that the law throttles, per second.
    pub gpc0_rate: FreqCtr,
    /// Rate of those requests that were admitted, at once or after a delay.
    pub gpc1_rate: FreqCtr,
}

impl Entry {
    /// Counts a request under a law that throttles every request.
    pub fn ask(&mut self, cost: u32, now: Timestamp) {
        self.http_req_cnt = self.http_req_cnt.wrapping_add(cost);
        self.gpc0_rate.add(cost, now.ticks_ms());
    }

    /// Counts a request that was admitted, at once or after a delay.
    pub fn let_through(&mut self, cost: u32, now: Timestamp) {
        self.gpc1_rate.add(cost, now.ticks_ms());
    }
}

/// Memory of a law besides the columns: a moment and a count, or three counts. A fresh entry holds zeros.
///
/// Three words of 32 bits leave no gap in a row, so a row fits one cache line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State([u32; 3]);

impl State {
    /// The first two words as one number, usually a moment in nanoseconds.
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
