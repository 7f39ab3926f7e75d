//! The `sliding-buckets` law: a window cut into sub-windows; the oldest sub-window is dropped when a new one begins.
//!
//! ```text
//! N   = rate * window          n: buckets; a sub-window lasts window / n and begins at a multiple of it, to the
//!                              nanosecond
//! sum = the counts of the current sub-window and of the n - 1 before it
//! sum + cost > N: deny
//! sum + the count of the sub-window just dropped + cost > N + N / n: deny;     else count it
//! ```
//! The first condition is that of Sentinel's `LeapArray`. Alone, it lets 2N requests through in the time of one window:
//! N at the end of a sub-window, and N as soon as that sub-window is dropped, up to one sub-window too early.
//!
//! A span of one window touches n + 1 sub-windows, so the second condition admits at most `N * (1 + 1/n)` requests
//! (rounded up) in that span. This condition never refuses a client that keeps to the rate. The burst has no effect.
//!
//! The state is the number of the sub-window, and n + 1 counts in 64 bits. The larger N is, the fewer counts fit: an
//! SLO whose number of sub-windows does not fit is refused when it is read.

use std::time::Duration;

use crate::base::Verdict;
use crate::law::formula::{compared, time};
use crate::law::{
    Admission, Arrival, AuxState, Judgement, Objective, OptionError, Options, Rule, Scale, Window,
};
use crate::table::{Entry, State};

/// The default number of sub-windows if that many fit; otherwise, the default is the number that fits.
const BUCKETS_DEFAULT_MAX: u32 = 10;

const COUNTS_BITS: u32 = u64::BITS;

/// The `sliding-buckets` law for one objective.
///
/// ```
/// use slowlane_core::{law::{Arrival, Law, Objective, Options}, table::Entry, base::Timestamp};
///
/// // 10/s in two halves: ten pass at the end of one half. A half later they no longer count, but only five more
/// // may pass before the whole second is over.
/// let objective = Objective { burst: 0, rate: "10/s".parse().unwrap() };
/// let law = Law::new("sliding-buckets", objective, Options::new([("buckets", "2")])).unwrap();
/// let mut entry = Entry::default();
/// let mut ask = |ms| law.judge(&mut entry, None, &Arrival::at(Timestamp::from_millis(ms))).verdict.name();
/// for _ in 0..10 {
///     assert_eq!(ask(10_499), "pass");
/// }
/// assert_eq!(ask(10_999), "deny");
/// for _ in 0..5 {
///     assert_eq!(ask(11_000), "pass");
/// }
/// assert_eq!([ask(11_499), ask(11_500)], ["deny", "pass"]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingBuckets {
    window: Window,
    /// The maximum number of requests that n + 1 sub-windows may hold together.
    wide_limit: u32,
    buckets: u32,
    count_bits: u32,
}

/// The counts of an entry at one moment. The lowest bits hold the count of the current sub-window.
#[derive(Clone, Copy)]
struct Counts {
    number: u32,
    packed: u64,
}

impl Counts {
    fn store(self, state: &mut State) {
        state.set_narrow(self.number);
        state.set_wide(self.packed);
    }
}

impl SlidingBuckets {
    pub(super) fn from_options(
        objective: Objective,
        options: &mut Options,
    ) -> Result<SlidingBuckets, OptionError> {
        let window = Window::from_options(objective, options)?;
        let count_bits = u32::BITS - window.limit.leading_zeros();
        let buckets_max = COUNTS_BITS / count_bits - 1;
        let buckets = options.count("buckets", 1..=buckets_max)?;
        let buckets = buckets.unwrap_or(buckets_max.min(BUCKETS_DEFAULT_MAX)).max(1);
        let wide_limit = window.limit + window.limit.div_ceil(buckets);
        Ok(SlidingBuckets { window, wide_limit, buckets, count_bits })
    }
}

impl Rule for SlidingBuckets {
    fn judge(&self, entry: &mut Entry, _: Option<&mut AuxState>, arrival: &Arrival) -> Judgement {
        entry.ask(arrival.cost, arrival.now);
        entry.gpt0 = 1_000;
        let now_ns = arrival.now.as_nanos();
        let mut counts = self.counts(&entry.state, now_ns);
        let room = self.room(counts.packed);
        if arrival.cost > room {
            counts.store(&mut entry.state);
            return match arrival.cost > self.window.limit {
                true => Judgement::never(room),
                false => Judgement::deny(self.wait_ns(counts.packed, arrival.cost, now_ns), room),
            };
        }
        counts.packed += u64::from(arrival.cost);
        counts.store(&mut entry.state);
        entry.let_through(arrival.cost, arrival.now);
        Judgement::new(Verdict::Pass, room - arrival.cost)
    }

    fn explain(&self, scale: &Scale, entry: &Entry, _: Option<&AuxState>, arrival: &Arrival) -> String {
        let (now_ns, cost, buckets) = (arrival.now.as_nanos(), arrival.cost, self.buckets);
        let packed = self.counts(&entry.state, now_ns).packed;
        let (sum, left) = (self.sum(packed), self.count(packed, buckets));
        let (wanted, wide) = (sum.saturating_add(cost), sum.saturating_add(left).saturating_add(cost));
        let (text, is_within) = (format!("sum {sum} of {buckets} sub-windows"), wanted <= self.window.limit);
        let mut text = self.window.compared(scale, &text, cost, wanted.into(), is_within);
        if is_within {
            let (within, wide_limit) = (compared(wide <= self.wide_limit), self.wide_limit);
            text += &format!(
                "; plus {left} of the previous sub-window = {wide} {within} N + N / {buckets} = {wide_limit}"
            );
        }
        if cost > self.room(packed) && cost <= self.window.limit {
            text += &format!("; wait {}", time(self.wait_ns(packed, cost, now_ns)));
        }
        text
    }

    /// Subtracts a request from the sub-window that counted it.
    fn take_back(&self, entry: &mut Entry, _: Option<&mut AuxState>, gone: &Admission) {
        let state = &mut entry.state;
        let back = state.narrow().wrapping_sub(self.number(gone.due.as_nanos()) as u32);
        if back <= self.buckets {
            let counted = self.count(state.wide(), back).min(gone.cost);
            state.set_wide(state.wide() - (u64::from(counted) << (back * self.count_bits)));
        }
    }

    fn state_shape(&self) -> u64 {
        self.window.window_ns ^ u64::from(self.buckets) << 56 ^ u64::from(self.count_bits) << 48
    }

    fn memory(&self) -> Duration {
        Duration::from_nanos(self.window.window_ns + self.window.window_ns.div_ceil(u64::from(self.buckets)))
    }

    fn window(&self) -> Option<&Window> {
        Some(&self.window)
    }
}

impl SlidingBuckets {
    /// The number of the sub-window that contains a moment.
    ///
    /// Sub-windows are equally long to the nanosecond, and n of them are exactly one window. Otherwise, a window would
    /// now and then count one request too many from a client that keeps to the rate.
    fn number(&self, moment_ns: u64) -> u64 {
        let buckets = u64::from(self.buckets);
        moment_ns / self.window.window_ns * buckets
            + moment_ns % self.window.window_ns * buckets / self.window.window_ns
    }

    fn begins_ns(&self, number: u64) -> u64 {
        let buckets = u64::from(self.buckets);
        number / buckets * self.window.window_ns
            + (number % buckets * self.window.window_ns).div_ceil(buckets)
    }

    fn counts(&self, state: &State, now_ns: u64) -> Counts {
        let number = self.number(now_ns) as u32;
        let packed = match number.wrapping_sub(state.narrow()) as i32 {
            0.. => self.later(state.wide(), number.wrapping_sub(state.narrow())),
            // If the clock went back, the latest count becomes the count of the current sub-window.
            ..0 => state.wide(),
        };
        Counts { number, packed }
    }

    /// The counts as they will be after this many sub-windows.
    fn later(&self, packed: u64, sub_windows: u32) -> u64 {
        let shifted = packed.checked_shl(sub_windows.saturating_mul(self.count_bits)).unwrap_or(0);
        match COUNTS_BITS - (self.buckets + 1) * self.count_bits {
            0 => shifted,
            unused => shifted << unused >> unused,
        }
    }

    fn count(&self, packed: u64, back: u32) -> u32 {
        (packed >> (back * self.count_bits) & ((1 << self.count_bits) - 1)) as u32
    }

    fn sum(&self, packed: u64) -> u32 {
        (0..self.buckets).map(|back| self.count(packed, back)).sum()
    }

    /// How many more requests both conditions admit.
    fn room(&self, packed: u64) -> u32 {
        let sum = self.sum(packed);
        let wide_sum = sum.saturating_add(self.count(packed, self.buckets));
        self.window.limit.saturating_sub(sum).min(self.wide_limit.saturating_sub(wide_sum))
    }

    /// The time until the first sub-window with room, for a request that fits into an empty window.
    fn wait_ns(&self, packed: u64, cost: u32, now_ns: u64) -> u64 {
        let has_room = |&later: &u32| self.room(self.later(packed, later)) >= cost;
        let later = (1..=self.buckets).find(has_room).unwrap_or(self.buckets + 1);
        self.begins_ns(self.number(now_ns) + u64::from(later)) - now_ns
    }
}
