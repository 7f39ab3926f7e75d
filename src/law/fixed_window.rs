//! `fixed-window`: at most N requests in a window that begins with its first request.
//!
//! ```text
//! N = rate * window
//! now >= start + window: start = now, count = 0
//! count + cost > N: deny;                     else count += cost
//! ```
//! Source: J. Fu, "Throttling Solutions in Standalone and Distributed Scenarios", section "Simple Window". In any
//! time of one window at most 2N pass: N just before its end, and N just after. The burst plays no part.
//!
//! The state is `start` in nanoseconds, and `count`.

use std::time::Duration;

use crate::base::quota::Quota;
use crate::base::verdict::Verdict;
use crate::law::admission::Admission;
use crate::law::annex::Annex;
use crate::law::arrival::Arrival;
use crate::law::formula::{compared, time};
use crate::law::judgement::Judgement;
use crate::law::objective::Objective;
use crate::law::options::{OptionError, Options};
use crate::law::rule::Rule;
use crate::law::window::Window;
use crate::law::windowed::Windowed;
use crate::table::Entry;

/// The law `fixed-window` for one objective.
///
/// ```
/// use slowlane::{law::{Arrival, Law, Objective, Options}, table::Entry, base::time::Timestamp};
///
/// // Two in the second that begins with the first.
/// let objective = Objective { burst: 0, rate: "2/s".parse().unwrap() };
/// let law = Law::new("fixed-window", objective, Options::default()).unwrap();
/// let mut entry = Entry::default();
/// let mut ask = |ms| law.judge(&mut entry, None, &Arrival::at(Timestamp::from_millis(ms))).verdict.name();
/// assert_eq!([ask(9_500), ask(9_600), ask(10_499), ask(10_500)], ["pass", "pass", "deny", "pass"]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedWindow {
    window: Window,
}

impl FixedWindow {
    pub(super) fn from_options(
        objective: Objective,
        options: &mut Options,
    ) -> Result<FixedWindow, OptionError> {
        Ok(FixedWindow { window: Window::from_options(objective, options)? })
    }
}

impl Rule for FixedWindow {
    fn judge(&self, entry: &mut Entry, _: Option<&mut Annex>, arrival: &Arrival) -> Judgement {
        entry.ask(arrival.cost, arrival.now);
        entry.gpt0 = 1_000;
        let Window { limit, window_ns } = self.window;
        let now_ns = arrival.now.as_nanos();
        let (start, count) = self.at(entry, now_ns);
        let counted = count.saturating_add(arrival.cost);
        if counted > limit {
            let remaining = limit.saturating_sub(count);
            if count > 0 {
                // A denied request does not begin a window.
                entry.state.set_wide(start);
                entry.state.set_narrow(count);
            }
            return match arrival.cost > limit {
                true => Judgement::never(remaining),
                false => Judgement::deny(window_ns - (now_ns - start), remaining),
            };
        }
        entry.state.set_wide(start);
        entry.state.set_narrow(counted);
        entry.let_through(arrival.cost, arrival.now);
        Judgement::new(Verdict::Pass, limit - counted)
    }

    fn explain(&self, objective: &Objective, entry: &Entry, _: Option<&Annex>, arrival: &Arrival) -> String {
        let (now_ns, cost) = (arrival.now.as_nanos(), arrival.cost);
        let (start, count) = self.at(entry, now_ns);
        let counted = count.saturating_add(cost);
        let is_within = counted <= self.window.limit;
        let (compared, limit) = (compared(is_within), self.window.explained(objective.rate));
        let ends = time(self.window.window_ns - (now_ns - start));
        match cost > self.window.limit {
            true => format!("cost {cost} > {limit}"),
            false => format!(
                "count {count} + cost {cost} = {counted} {compared} {limit}; the window ends in {ends}"
            ),
        }
    }

    /// Subtracts a request from the current window, if that window counted it.
    fn take_back(&self, entry: &mut Entry, _: Option<&mut Annex>, gone: &Admission) {
        if gone.due.as_nanos() >= entry.state.wide() {
            entry.state.set_narrow(entry.state.narrow().saturating_sub(gone.cost));
        }
    }

    fn memory(&self) -> Duration {
        self.window.duration()
    }

    fn quota(&self, _: Objective) -> Quota {
        self.window.quota()
    }

    fn promise(&self, _: Objective) -> String {
        self.window.promise()
    }

    fn windowed(&self) -> Option<Windowed> {
        Some(Windowed::new(&self.window, false))
    }

    fn split(&self, nodes: u32) -> Self {
        Self { window: self.window.split(nodes) }
    }
}

impl FixedWindow {
    /// The start of the current window, and its count.
    fn at(&self, entry: &Entry, now_ns: u64) -> (u64, u32) {
        match entry.state.wide() {
            start if start > now_ns => (now_ns, entry.state.narrow()),
            start if now_ns - start < self.window.window_ns => (start, entry.state.narrow()),
            _ => (now_ns, 0),
        }
    }
}
