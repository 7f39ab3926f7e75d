//! `sliding-window`: the requests of the last window, estimated from the counts of two.
//!
//! ```text
//! N        = rate * window                    windows begin at multiples of their length
//! estimate = prev * (window - age) / window + curr        age: of the current window
//! estimate + cost > N: deny;                  else curr += cost
//! ```
//! The two-window rate of Cloudflare ("How we built rate limiting capable of scaling to millions of domains"), Cortex
//! (its proposal for a global rate limit) and Adobe. In Adobe's example the estimate is 5: 4 in the window before, 2
//! half-way into this one, and the request itself.
//!
//! The wait is Cortex's `limitForSecs`. While the current window has room, it is the excess divided by the rate at
//! which the window before fades, `(estimate + cost - N) / (prev / window)`. Otherwise it is the rest of the current
//! window, and then the same with that window as the one before.
//!
//! The estimate assumes that the window before was filled evenly. A client that fills its end, and then every
//! opening, gets at most 2N - 1 into one window's time. Of N evenly spaced requests per window about one is refused;
//! of N - 1, none. The burst plays no part.
//!
//! The state is the number of the window, `prev`, and `curr`.

use std::time::Duration;

use crate::base::quota::Quota;
use crate::base::verdict::Verdict;
use crate::law::admission::Admission;
use crate::law::annex::Annex;
use crate::law::arrival::Arrival;
use crate::law::formula::{compared, number, option, time};
use crate::law::judgement::Judgement;
use crate::law::objective::Objective;
use crate::law::options::{OptionError, Options};
use crate::law::rule::Rule;
use crate::law::window::Window;
use crate::law::windowed::Windowed;
use crate::table::{Entry, State};

/// The law `sliding-window` for one objective.
///
/// ```
/// use slowlane::{law::{Arrival, Law, Objective, Options}, table::Entry, base::time::Timestamp};
///
/// // Adobe's example at 5/s: 4 in the window before, 2 in this one, and half a window later the fifth.
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

/// The state of an entry at one moment.
#[derive(Clone, Copy)]
struct Counts {
    number: u32,
    prev: u32,
    curr: u32,
    age_ns: u64,
}

impl Counts {
    fn store(self, state: &mut State) {
        state.set_narrow(self.number);
        state.set_wide(u64::from(self.prev) << 32 | u64::from(self.curr));
    }
}

impl SlidingWindow {
    pub(super) fn from_options(
        objective: Objective,
        options: &mut Options,
    ) -> Result<SlidingWindow, OptionError> {
        Ok(SlidingWindow { window: Window::from_options(objective, options)? })
    }
}

impl Rule for SlidingWindow {
    fn judge(&self, entry: &mut Entry, _: Option<&mut Annex>, arrival: &Arrival) -> Judgement {
        entry.ask(arrival.cost, arrival.now);
        entry.gpt0 = 1_000;
        let mut counts = self.counts(&entry.state, arrival.now.as_nanos());
        if !self.has_room(&counts, arrival.cost) {
            counts.store(&mut entry.state);
            return match arrival.cost > self.window.limit {
                true => Judgement::never(self.remaining(&counts)),
                false => Judgement::deny(self.wait_ns(&counts, arrival.cost), self.remaining(&counts)),
            };
        }
        counts.curr += arrival.cost;
        counts.store(&mut entry.state);
        entry.let_through(arrival.cost, arrival.now);
        Judgement::new(Verdict::Pass, self.remaining(&counts))
    }

    fn explain(&self, objective: &Objective, entry: &Entry, _: Option<&Annex>, arrival: &Arrival) -> String {
        let Window { limit, window_ns } = self.window;
        let (counts, cost) = (self.counts(&entry.state, arrival.now.as_nanos()), arrival.cost);
        let (Counts { prev, curr, age_ns, .. }, is_within) = (counts, self.has_room(&counts, cost));
        let faded = f64::from(prev) * ((window_ns - age_ns) as f64 / window_ns as f64);
        let estimate = number(faded + f64::from(curr) + f64::from(cost));
        let (compared, explained) = (compared(is_within), self.window.explained(objective.rate));
        let wait = match is_within || cost > limit {
            true => String::new(),
            false => format!("; wait {}", time(self.wait_ns(&counts, cost))),
        };
        format!(
            "prev {prev} * ({window} - {age}) / {window} + curr {curr} + cost {cost} = {estimate} \
             {compared} {explained}{wait}",
            window = option(window_ns),
            age = time(age_ns),
        )
    }

    /// Subtracts a request from the window that counted it.
    fn take_back(&self, entry: &mut Entry, _: Option<&mut Annex>, gone: &Admission) {
        let state = &mut entry.state;
        let (prev, curr) = ((state.wide() >> 32) as u32, state.wide() as u32);
        let (prev, curr) = match state.narrow().wrapping_sub(self.number(gone.due.as_nanos())) {
            0 => (prev, curr.saturating_sub(gone.cost)),
            1 => (prev.saturating_sub(gone.cost), curr),
            _ => (prev, curr),
        };
        state.set_wide(u64::from(prev) << 32 | u64::from(curr));
    }

    fn state_shape(&self) -> u64 {
        self.window.window_ns
    }

    fn memory(&self) -> Duration {
        self.window.duration() * 2
    }

    fn quota(&self, _: Objective) -> Quota {
        self.window.quota()
    }

    fn promise(&self, _: Objective) -> String {
        self.window.promise()
    }

    fn windowed(&self) -> Option<Windowed> {
        Some(Windowed::new(&self.window, true))
    }

    fn split(&self, nodes: u32) -> Self {
        Self { window: self.window.split(nodes) }
    }
}

impl SlidingWindow {
    /// Counts a request that another law lets through.
    pub(super) fn count(&self, state: &mut State, arrival: &Arrival) {
        let mut counts = self.counts(state, arrival.now.as_nanos());
        counts.curr = counts.curr.saturating_add(arrival.cost);
        counts.store(state);
    }

    /// How many requests of cost 1 would be let through.
    pub(super) fn room_of(&self, state: &State, now_ns: u64) -> u32 {
        self.remaining(&self.counts(state, now_ns))
    }

    /// The wait of a request that has no room now, and would fit into an empty window.
    pub(super) fn wait_of(&self, state: &State, arrival: &Arrival) -> u64 {
        self.wait_ns(&self.counts(state, arrival.now.as_nanos()), arrival.cost)
    }

    /// Whether both windows are empty.
    pub(super) fn has_faded(&self, state: &State, now_ns: u64) -> bool {
        let counts = self.counts(state, now_ns);
        (counts.prev, counts.curr) == (0, 0)
    }

    fn counts(&self, state: &State, now_ns: u64) -> Counts {
        let (age_ns, number) = (now_ns % self.window.window_ns, self.number(now_ns));
        let (prev, curr) = ((state.wide() >> 32) as u32, state.wide() as u32);
        let (prev, curr) = match number.wrapping_sub(state.narrow()) as i32 {
            0 => (prev, curr),
            1 => (curr, 0),
            // The clock went back: the counts of the later window stand for this one.
            ..0 => (0, curr),
            2.. => (0, 0),
        };
        Counts { number, prev, curr, age_ns }
    }

    /// The limit minus the estimate, times the window: in whole numbers nothing is rounded.
    fn room(&self, counts: &Counts) -> i128 {
        let window = i128::from(self.window.window_ns);
        let past = i128::from(counts.prev) * (window - i128::from(counts.age_ns));
        (i128::from(self.window.limit) - i128::from(counts.curr)) * window - past
    }

    fn has_room(&self, counts: &Counts, cost: u32) -> bool {
        self.room(counts) >= i128::from(cost) * i128::from(self.window.window_ns)
    }

    fn remaining(&self, counts: &Counts) -> u32 {
        (self.room(counts).max(0) / i128::from(self.window.window_ns)) as u32
    }

    /// Cortex's `limitForSecs` in nanoseconds, for a request that has no room now and would fit into an empty window.
    fn wait_ns(&self, counts: &Counts, cost: u32) -> u64 {
        let Window { limit, window_ns } = self.window;
        let rest_ns = window_ns - counts.age_ns;
        // The age at which the remainder of a past window leaves `room`.
        let faded_at = |past: u32, room: u32| {
            let left = u128::from(room) * u128::from(window_ns) / u128::from(past.max(1));
            window_ns.saturating_sub(u64::try_from(left).unwrap_or(u64::MAX))
        };
        match limit.checked_sub(counts.curr.saturating_add(cost)) {
            Some(room) => faded_at(counts.prev, room).saturating_sub(counts.age_ns),
            None => rest_ns + faded_at(counts.curr, limit - cost),
        }
    }

    fn number(&self, moment_ns: u64) -> u32 {
        (moment_ns / self.window.window_ns) as u32
    }
}
