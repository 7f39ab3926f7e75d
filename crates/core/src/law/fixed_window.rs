//! The `fixed-window` law: at most N requests in a window, which is a calendar period or begins with its first request.
//!
//! ```text
//! N = rate * window
//! now >= start + window: start = now, count = 0
//! count + cost > N: deny;                     else count += cost
//! ```
//! Source: J. Fu, "Throttling Solutions in Standalone and Distributed Scenarios", section "Simple Window". In a span as
//! long as a window, at most 2N pass: N just before a window ends, and N just after. The burst has no effect.
//!
//! With `reset=calendar`, windows are calendar periods in UTC, such as hours, days or months. This is the default for a
//! rate per month without `window=`. With `reset=first`, a month is the 30 days from the first request on.
//!
//! The state is `start` in nanoseconds, and `count`. A calendar window starts at a time on the wall clock: if that
//! clock is set forward into another window, the count starts again; if the clock is set back, the count stays.

use std::time::Duration;

use crate::base::{Period, Timestamp, Verdict, date::Calendar};
use crate::law::formula::time;
use crate::law::{
    Admission, Arrival, AuxState, Judgement, Objective, OptionError, Options, Rule, Scale, Used, Window,
};
use crate::table::Entry;

/// The `fixed-window` law for one objective.
///
/// ```
/// use slowlane_core::{law::{Arrival, Law, Objective, Options}, table::Entry, base::Timestamp};
///
/// // Two in the second that begins with the first of them.
/// let objective = Objective { burst: 0, rate: "2/s".parse().unwrap() };
/// let law = Law::new("fixed-window", objective, Options::default()).unwrap();
/// let mut entry = Entry::default();
/// let mut ask = |ms| law.judge(&mut entry, None, &Arrival::at(Timestamp::from_millis(ms))).verdict.name();
/// assert_eq!([ask(9_500), ask(9_600), ask(10_499), ask(10_500)], ["pass", "pass", "deny", "pass"]);
///
/// // A thousand in each calendar month.
/// let objective = Objective { burst: 0, rate: "1000/month".parse().unwrap() };
/// let law = Law::new("fixed-window", objective, Options::default()).unwrap();
/// assert_eq!(law.describe(objective), "1000 in each month (UTC)");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedWindow {
    pub(super) window: Window,
}

/// The value of `reset` for calendar windows.
const CALENDAR: &str = "calendar";

impl FixedWindow {
    pub(super) fn from_options(
        objective: Objective,
        options: &mut Options,
    ) -> Result<FixedWindow, OptionError> {
        let reset = options.choice("reset", ["first", CALENDAR])?;
        let period = objective.rate.named_period();
        let is_calendar = match reset {
            Some(reset) => reset == CALENDAR,
            None => period == Period::Month && options.get("window").is_none(),
        };
        if is_calendar && options.get("window").is_some() {
            let (value, expected) =
                (CALENDAR.to_owned(), "no window=, because the rate's period is the window");
            return Err(OptionError::Unfit { name: "reset", value, expected });
        }
        let calendar = is_calendar.then(|| Calendar::of(period));
        Ok(FixedWindow { window: Window { calendar, ..Window::from_options(objective, options)? } })
    }
}

impl Rule for FixedWindow {
    fn judge(&self, entry: &mut Entry, _: Option<&mut AuxState>, arrival: &Arrival) -> Judgement {
        entry.ask(arrival.cost, arrival.now);
        entry.gpt0 = 1_000;
        let limit = self.window.limit;
        let (start, end, count) = self.at(entry, arrival.now);
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
                false => Judgement::deny(end - arrival.now.as_nanos(), remaining),
            };
        }
        entry.state.set_wide(start);
        entry.state.set_narrow(counted);
        entry.let_through(arrival.cost, arrival.now);
        Judgement::new(Verdict::Pass, limit - counted)
    }

    fn explain(&self, scale: &Scale, entry: &Entry, _: Option<&AuxState>, arrival: &Arrival) -> String {
        let (_, end, count) = self.at(entry, arrival.now);
        let counted = count.saturating_add(arrival.cost);
        if arrival.cost > self.window.limit {
            return format!("cost {} > {}", scale.count(arrival.cost), self.window.explained(scale));
        }
        let (text, is_within) = (format!("count {}", scale.count(count)), counted <= self.window.limit);
        let text = self.window.compared(scale, &text, arrival.cost, counted.into(), is_within);
        format!("{text}; the window ends in {}", time(end - arrival.now.as_nanos()))
    }

    /// Subtracts a request from the current window if that window counted the request.
    fn take_back(&self, entry: &mut Entry, _: Option<&mut AuxState>, gone: &Admission) {
        let due = self.window.calendar.map_or(gone.due, |calendar| calendar.shift.wall(gone.due));
        // A ticket records the moment of its request in milliseconds, rounded down.
        if due.as_nanos().saturating_add(1_000_000) > entry.state.wide() {
            entry.state.set_narrow(entry.state.narrow().saturating_sub(gone.cost));
        }
    }

    fn charge_more(&self, entry: &mut Entry, cost: u32, now: Timestamp) {
        let (start, _, count) = self.at(entry, now);
        entry.state.set_wide(start);
        entry.state.set_narrow(count.saturating_add(cost));
    }

    fn memory(&self) -> Duration {
        self.window.longest()
    }

    fn window(&self) -> Option<&Window> {
        Some(&self.window)
    }

    fn used(&self, entry: &Entry, _: Option<&AuxState>, now: Timestamp) -> Option<Used> {
        let (_, end, count) = self.at(entry, now);
        let resets_at = Timestamp::default() + Duration::from_nanos(end);
        let resets_at = (count > 0 || self.window.calendar.is_some()).then_some(resets_at);
        Some(Used { requests: count, limit: self.window.limit, resets_at })
    }
}

impl FixedWindow {
    /// The start of the current window (on the wall clock, if it is a calendar window), its end, and its count.
    fn at(&self, entry: &Entry, now: Timestamp) -> (u64, u64, u32) {
        let (now_ns, began, count) = (now.as_nanos(), entry.state.wide(), entry.state.narrow());
        if let Some(calendar) = self.window.calendar {
            let (span, start) = calendar.around(now);
            let start = start.as_nanos();
            return (start, span.end.as_nanos(), if began >= start { count } else { 0 });
        }
        let (start, count) = match began {
            began if began > now_ns => (now_ns, count),
            began if now_ns - began < self.window.window_ns => (began, count),
            _ => (now_ns, 0),
        };
        (start, start + self.window.window_ns, count)
    }
}
