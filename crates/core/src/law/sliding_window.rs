//! The `sliding-window` law: the requests of the last window, estimated from the counts of two windows.
//!
//! ```text
//! N        = rate * window                    windows begin at multiples of their length
//! estimate = prev * (window - age) / window + curr        age: of the current window
//! estimate + cost > N: deny;                  else curr += cost
//! ```
//! This is the two-window rate of Cloudflare ("How we built rate limiting capable of scaling to millions of domains"),
//! Cortex (its proposal for a global rate limit) and Adobe. In Adobe's example, halfway through the current window,
//! half of the previous window's 4 requests, 2 in the current window and the request itself make an estimate of 5.
//!
//! The wait is Cortex's `limitForSecs`. While the current window has room, the wait is the excess divided by the rate
//! at which the previous window fades, `(estimate + cost - N) / (prev / window)`. Otherwise, the wait is the remaining
//! time of the current window, plus the same term with the current window as the previous one.
//!
//! The estimate assumes that the previous window was filled evenly. A client that fills the end of a window, and then
//! every gap that opens, gets at most 2N - 1 requests through in the time of one window. Of N evenly spaced requests
//! per window, about one is refused; of N - 1, none is. The burst has no effect.
//!
//! The state is the number of the window, `prev`, and `curr`.

use std::time::Duration;

use crate::base::{Timestamp, Verdict};
use crate::law::formula::{option, time};
use crate::law::{
    Admission, Arrival, AuxState, Judgement, Objective, OptionError, Options, Rule, Scale, Used, Window,
};
use crate::table::{Entry, Seen, State};

/// The `sliding-window` law for one objective.
///
/// ```
/// use slowlane_core::{law::{Arrival, Law, Objective, Options}, table::Entry, base::Timestamp};
///
/// // Adobe's example at 5/s: 4 in the previous window, 2 in this one, and one more halfway through it.
/// let objective = Objective { burst: 0, rate: "5/s".parse().unwrap() };
/// let law = Law::new("sliding-window", objective, Options::default()).unwrap();
/// let mut entry = Entry::default();
/// let mut ask = |ms| law.judge(&mut entry, None, &Arrival::at(Timestamp::from_millis(ms))).verdict.name();
/// assert_eq!([ask(9_900), ask(9_900), ask(9_900), ask(9_900)], ["pass"; 4]);
/// assert_eq!([ask(10_250), ask(10_250), ask(10_500), ask(10_500)], ["pass", "pass", "pass", "deny"]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingWindow {
    pub(super) window: Window,
}

impl SlidingWindow {
    pub(super) const fn new(window: Window) -> SlidingWindow {
        SlidingWindow { window: Window { is_sliding: true, ..window } }
    }

    pub(super) fn from_options(
        objective: Objective,
        options: &mut Options,
    ) -> Result<SlidingWindow, OptionError> {
        Ok(SlidingWindow::new(Window::from_options(objective, options)?))
    }
}

impl Rule for SlidingWindow {
    fn judge(&self, entry: &mut Entry, _: Option<&mut AuxState>, arrival: &Arrival) -> Judgement {
        entry.ask(arrival.cost, arrival.now);
        entry.gpt0 = 1_000;
        let mut counts = self.counts(&entry.state, arrival.now.as_nanos());
        let judgement = self.judge_counts(&mut counts, arrival.cost);
        SlidingWindow::store(&counts, &mut entry.state);
        if judgement.verdict.is_let_through() {
            entry.let_through(arrival.cost, arrival.now);
        }
        judgement
    }

    fn explain(&self, scale: &Scale, entry: &Entry, _: Option<&AuxState>, arrival: &Arrival) -> String {
        let Window { limit, window_ns, .. } = self.window;
        let (counts, cost) = (self.counts(&entry.state, arrival.now.as_nanos()), arrival.cost);
        let (Seen { prev, curr, age_ns, .. }, is_within) = (counts, cost <= self.remaining(&counts));
        let estimate = self.past(&counts) + f64::from(curr) + f64::from(cost);
        let [prev, curr] = [prev, curr].map(|counted| scale.count(counted));
        let (window, age) = (option(window_ns), time(age_ns));
        let text = format!("prev {prev} * ({window} - {age}) / {window} + curr {curr}");
        let text = self.window.compared(scale, &text, cost, estimate, is_within);
        match is_within || cost > limit {
            true => text,
            false => format!("{text}; wait {}", time(self.wait_ns(&counts, cost))),
        }
    }

    /// Subtracts a request from the window that counted it.
    fn take_back(&self, entry: &mut Entry, _: Option<&mut AuxState>, gone: &Admission) {
        let state = &mut entry.state;
        let (prev, curr) = ((state.wide() >> 32) as u32, state.wide() as u32);
        let window = gone.due.as_nanos() / self.window.window_ns;
        let (prev, curr) = match state.narrow().wrapping_sub(window as u32) {
            0 => (prev, curr.saturating_sub(gone.cost)),
            1 => (prev.saturating_sub(gone.cost), curr),
            _ => (prev, curr),
        };
        state.set_wide(u64::from(prev) << 32 | u64::from(curr));
    }

    fn charge_more(&self, entry: &mut Entry, cost: u32, now: Timestamp) {
        self.count(&mut entry.state, &Arrival { cost, ..Arrival::at(now) });
    }

    fn state_shape(&self) -> u64 {
        self.window.window_ns
    }

    fn memory(&self) -> Duration {
        self.window.duration() * 2
    }

    fn window(&self) -> Option<&Window> {
        Some(&self.window)
    }

    /// The requests of the previous window fade: they are weighted by the part of that window that still counts.
    fn used(&self, entry: &Entry, _: Option<&AuxState>, now: Timestamp) -> Option<Used> {
        let counts = self.counts(&entry.state, now.as_nanos());
        let window_ns = self.window.window_ns;
        let requests = (self.past(&counts) + f64::from(counts.curr)).ceil() as u32;
        let left = if counts.curr > 0 { 2 * window_ns - counts.age_ns } else { window_ns - counts.age_ns };
        let resets_at = (requests > 0).then(|| now + Duration::from_nanos(left));
        Some(Used { requests, limit: self.window.limit, resets_at })
    }
}

impl SlidingWindow {
    pub(super) fn store(counts: &Seen, state: &mut State) {
        state.set_narrow(counts.window as u32);
        state.set_wide(u64::from(counts.prev) << 32 | u64::from(counts.curr));
    }

    /// Judges a request by the counts of its key, and adds an admitted request to these counts.
    #[inline]
    pub(super) fn judge_counts(&self, counts: &mut Seen, cost: u32) -> Judgement {
        let room = self.remaining(counts);
        if cost > room {
            return match cost > self.window.limit {
                true => Judgement::never(room),
                false => Judgement::deny(self.wait_ns(counts, cost), room),
            };
        }
        counts.curr += cost;
        Judgement::new(Verdict::Pass, room - cost)
    }

    /// Counts a request, or an additional charge for a request, without judging it.
    pub(super) fn count(&self, state: &mut State, arrival: &Arrival) {
        let mut counts = self.counts(state, arrival.now.as_nanos());
        counts.curr = counts.curr.saturating_add(arrival.cost);
        SlidingWindow::store(&counts, state);
    }

    pub(super) fn counts(&self, state: &State, now_ns: u64) -> Seen {
        let (age_ns, window) = (now_ns % self.window.window_ns, now_ns / self.window.window_ns);
        let (prev, curr) = ((state.wide() >> 32) as u32, state.wide() as u32);
        let (prev, curr) = match (window as u32).wrapping_sub(state.narrow()) as i32 {
            0 => (prev, curr),
            1 => (curr, 0),
            // If the clock went back, this window takes over the count of the later window.
            ..0 => (0, curr),
            2.. => (0, 0),
        };
        Seen { window, age_ns, prev, curr }
    }

    /// The part of the previous window that still counts: `prev * (window - age) / window`.
    #[inline]
    fn past(&self, counts: &Seen) -> f64 {
        let window_ns = self.window.window_ns;
        f64::from(counts.prev) * ((window_ns - counts.age_ns) as f64 / window_ns as f64)
    }

    /// The value of `past`, rounded up.
    #[inline]
    fn faded(&self, counts: &Seen) -> u32 {
        if counts.prev == 0 {
            return 0;
        }
        let (window_ns, rest_ns) = (self.window.window_ns, self.window.window_ns - counts.age_ns);
        let past = u128::from(counts.prev) * u128::from(rest_ns);
        let reaches = |count: u32| u128::from(count) * u128::from(window_ns) >= past;
        // A 128-bit division would take longer than everything else in the law. This guess is off by at most one.
        let guess = self.past(counts) as u32;
        if !reaches(guess) { guess + 1 } else { guess - u32::from(guess > 0 && reaches(guess - 1)) }
    }

    /// How many requests of cost 1 would be admitted.
    #[inline]
    pub(super) fn remaining(&self, counts: &Seen) -> u32 {
        self.window.limit.saturating_sub(counts.curr.saturating_add(self.faded(counts)))
    }

    /// Cortex's `limitForSecs` in nanoseconds, for a request that has no room now but would fit into an empty window.
    pub(super) fn wait_ns(&self, counts: &Seen, cost: u32) -> u64 {
        let Window { limit, window_ns, .. } = self.window;
        let rest_ns = window_ns - counts.age_ns;
        // The age of a window at which the `past` requests of the window before it have faded to `room`.
        let faded_at = |past: u32, room: u32| {
            let left = match u64::from(room).checked_mul(window_ns) {
                // The product usually fits 64 bits, which is twice as fast.
                Some(room_ns) => room_ns / u64::from(past.max(1)),
                None => {
                    let left = u128::from(room) * u128::from(window_ns) / u128::from(past.max(1));
                    u64::try_from(left).unwrap_or(u64::MAX)
                }
            };
            window_ns.saturating_sub(left)
        };
        match limit.checked_sub(counts.curr.saturating_add(cost)) {
            Some(room) => faded_at(counts.prev, room).saturating_sub(counts.age_ns),
            None => rest_ns + faded_at(counts.curr, limit - cost),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a division of 128 bits.
        #[test]
        fn the_past_is_rounded_up_exactly(
            prev in prop_oneof![0..9u32, 0..1u32 << 22, any::<u32>()], window_ns in prop_oneof![1..9u64, 1..1u64 << 55],
            age in any::<prop::sample::Index>(),
        ) {
            let age_ns = age.index(window_ns as usize) as u64;
            let law = SlidingWindow::new(Window::new(1, window_ns));
            let exact = (u128::from(prev) * u128::from(window_ns - age_ns)).div_ceil(window_ns.into());
            let faded = law.faded(&Seen { window: 0, prev, curr: 0, age_ns });
            prop_assert_eq!(u128::from(faded), exact);
        }
    }
}
