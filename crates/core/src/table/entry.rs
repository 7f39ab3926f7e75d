//! The entry of one key in the table: its columns, as in a stick table, and the state of its law.

use serde::{Deserialize, Serialize};

use crate::base::Timestamp;

/// The columns that a reader of stick tables expects, which are the same under every law, and the state of the law.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The state of the law, which only that law can interpret.
    pub state: State,
    /// The requests since the entry was created, each counted by its cost. Wraps at 32 bits, as in a stick table.
    pub http_req_cnt: u32,
    /// The estimated number of clients, in thousandths.
    pub gpt0: u32,
    /// Rate of the requests that are subject to throttling: all requests, except under the `adaptive` law.
    pub gpc0_rate: FreqCtr,
    /// Rate of the requests subject to throttling that were admitted, at once or after a delay.
    pub gpc1_rate: FreqCtr,
}

impl Entry {
    /// Counts a request that is subject to throttling.
    pub fn ask(&mut self, cost: u32, now: Timestamp) {
        self.http_req_cnt = self.http_req_cnt.wrapping_add(cost);
        self.gpc0_rate.add(cost, now.ticks_ms());
    }

    /// Counts a request that was admitted, at once or after a delay.
    pub fn let_through(&mut self, cost: u32, now: Timestamp) {
        self.gpc1_rate.add(cost, now.ticks_ms());
    }
}

/// The state of a law: a moment and a count, or three counts. A fresh entry holds zeros.
///
/// Three words of 32 bits leave no gap in a row, so a row fits in one cache line.
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

/// The period of both rates of an entry: `gpc0_rate(1s)`, `gpc1_rate(1s)`.
pub const PERIOD_MS: u32 = 1_000;

/// A rate over the last second, counted exactly as HAProxy counts it (`freq_ctr.c`): in two windows of one
/// second, of which the older one fades out.
///
/// `now` is in wrapping milliseconds. An event two periods or more after the start of the last window opens a new
/// window at that moment. Otherwise, there is no gap between windows. All three numbers wrap at 32 bits, as in HAProxy.
///
/// ```
/// use slowlane_core::table::FreqCtr;
/// let mut requests = FreqCtr::default();
/// for _ in 0..10 {
///     requests.add(1, 60_000);
/// }
/// assert_eq!(requests.read(60_000), 10);
/// assert_eq!(requests.read(61_500), 5); // half of the next window has passed
/// assert_eq!(requests.read(62_000), 0);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FreqCtr {
    /// Start of the current window. Bit 0 is always clear, because HAProxy keeps a lock there.
    pub curr_tick: u32,
    pub curr_ctr: u32,
    pub prev_ctr: u32,
}

impl FreqCtr {
    /// Counts `events` at `now_ms`.
    pub fn add(&mut self, events: u32, now_ms: u32) {
        let since = self.since(now_ms);
        if since < PERIOD_MS {
            self.curr_ctr = self.curr_ctr.wrapping_add(events);
            return;
        }
        self.prev_ctr = self.curr_ctr;
        self.curr_ctr = events;
        self.curr_tick = self.curr_tick.wrapping_add(PERIOD_MS);
        if since >= 2 * PERIOD_MS {
            self.prev_ctr = 0;
            self.curr_tick = now_ms;
        }
        self.curr_tick &= !1;
    }

    /// Events per second at `now_ms`: the current window, plus the share of the previous one that lies within
    /// the last second. The share is rounded down. A lone event reads as 1 until its window has faded out.
    pub fn read(&self, now_ms: u32) -> u32 {
        let (since, period) = (self.since(now_ms), u64::from(PERIOD_MS));
        let (past, curr, since) = match since {
            0..=PERIOD_MS => (self.prev_ctr, self.curr_ctr, since),
            _ if since <= 2 * PERIOD_MS => (self.curr_ctr, 0, since - PERIOD_MS),
            _ => return 0,
        };
        if curr == 0 && past <= 1 {
            return past;
        }
        let (remain, past, curr) = (u64::from(PERIOD_MS - since), u64::from(past), u64::from(curr));
        ((past * remain + curr * period) / period) as u32
    }

    /// Milliseconds since the current window began.
    ///
    /// A reader's clock may be behind the writer's. A moment up to one period before the window counts as the
    /// window's beginning.
    fn since(&self, now_ms: u32) -> u32 {
        let since = now_ms.wrapping_sub(self.curr_tick);
        let is_before = since > u32::MAX - PERIOD_MS && (self.curr_ctr, self.prev_ctr) != (0, 0);
        if is_before { 0 } else { since }
    }
}
