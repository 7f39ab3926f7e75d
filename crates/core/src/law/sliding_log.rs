//! The `sliding-log` law: every admission is logged, so a window never contains more than N.
//!
//! ```text
//! N = rate * window
//! forget admissions that are a window old;  remembered + cost > N: deny;  else remember it `cost` times
//! ```
//! Source: J. Fu, "Throttling Solutions in Standalone and Distributed Scenarios", section "Sliding Log". The law is
//! exact: it refuses a request only if more than N would then be admitted in the time of one window. The burst has no effect.
//!
//! Besides the entry, the law needs eight bytes for each admission in the last window: at most N admissions, and N is
//! bounded when the SLO is read. Without memory for the log, the law judges as `sliding-window` does, and it always
//! keeps the state of `sliding-window` in the entry. A log that starts again may be incomplete for one window. During
//! that time, a request must pass both laws.

use std::time::Duration;

use crate::base::{Timestamp, Verdict};
use crate::law::aux_state::Log;
use crate::law::formula::{option, time};
use crate::law::sliding_window::SlidingWindow;
use crate::law::{
    Admission, Arrival, AuxState, Judgement, Objective, OptionError, Options, Rule, Scale, Used, Window,
};
use crate::table::{Entry, Seen};

/// The maximum number of admissions in a log. This many take half a mebibyte.
const ADMISSIONS_MAX: u32 = 65_536;

/// The `sliding-log` law for one objective.
///
/// ```
/// use slowlane_core::{law::{Arrival, Law, Objective, Options}, table::Entry, base::Timestamp};
///
/// // At most two in any second.
/// let objective = Objective { burst: 0, rate: "2/s".parse().unwrap() };
/// let law = Law::new("sliding-log", objective, Options::default()).unwrap();
/// let (mut entry, mut aux) = (Entry::default(), law.aux());
/// let mut ask = |ms| {
///     law.judge(&mut entry, aux.as_mut(), &Arrival::at(Timestamp::from_millis(ms))).verdict.name()
/// };
/// assert_eq!([ask(9_500), ask(10_100), ask(10_499), ask(10_500)], ["pass", "pass", "deny", "pass"]);
/// assert_eq!([ask(11_099), ask(11_100)], ["deny", "pass"]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingLog {
    stand_in: SlidingWindow,
}

impl SlidingLog {
    pub(super) fn from_options(
        objective: Objective,
        options: &mut Options,
    ) -> Result<SlidingLog, OptionError> {
        let stand_in = SlidingWindow::from_options(objective, options)?;
        match stand_in.window.limit {
            ..=ADMISSIONS_MAX => Ok(SlidingLog { stand_in }),
            _ => {
                let (window, rate) = (stand_in.window.duration(), objective.rate);
                Err(Window::too_long(window, rate, ADMISSIONS_MAX, " or law=sliding-window"))
            }
        }
    }
}

impl Rule for SlidingLog {
    fn judge(&self, entry: &mut Entry, aux: Option<&mut AuxState>, arrival: &Arrival) -> Judgement {
        let mut log = AuxState::log(aux);
        let judgement = self.judge_by(entry, log.as_deref_mut(), arrival);
        if let Some(log) = log.filter(|_| judgement.verdict.is_let_through()) {
            log.remember(arrival.now.as_nanos(), arrival.cost);
        }
        judgement
    }

    fn foresee(&self, entry: &mut Entry, aux: Option<&mut AuxState>, arrival: &Arrival) -> Judgement {
        self.judge_by(entry, AuxState::log(aux), arrival)
    }

    fn explain(&self, scale: &Scale, entry: &Entry, aux: Option<&AuxState>, arrival: &Arrival) -> String {
        let stand_in = || self.stand_in.explain(scale, entry, None, arrival);
        let Some(AuxState::Log(log)) = aux else {
            return format!("no auxiliary memory is left, so the sliding-window law applies: {}", stand_in());
        };
        let (window, now_ns, cost) = (self.stand_in.window, arrival.now.as_nanos(), arrival.cost);
        let mut log = log.clone();
        self.advance(&mut log, entry, now_ns);
        let remembered = log.len();
        let is_within = remembered + cost as usize <= window.limit as usize;
        let text = format!("{remembered} let through in the last {}", option(window.window_ns));
        let sum = remembered as f64 + f64::from(cost);
        let mut text = window.compared(scale, &text, cost, sum, is_within);
        if !is_within && cost <= window.limit {
            text += &format!("; wait {}", time(self.wait_ns(&log, cost, now_ns)));
        }
        let unknown_ns = log.unknown_ns(now_ns);
        if unknown_ns > 0 {
            let unknown = time(unknown_ns);
            text += &format!(
                "; the log will be incomplete for another {unknown}; until then, sliding-window applies too: {}",
                stand_in()
            );
        }
        text
    }

    /// Forgets an admitted request.
    fn take_back(&self, entry: &mut Entry, aux: Option<&mut AuxState>, gone: &Admission) {
        self.stand_in.take_back(entry, None, gone);
        if let Some(log) = AuxState::log(aux) {
            log.take_back(gone.due.as_nanos(), gone.cost);
        }
    }

    fn state_shape(&self) -> u64 {
        self.stand_in.state_shape()
    }

    fn memory(&self) -> Duration {
        self.stand_in.memory()
    }

    fn window(&self) -> Option<&Window> {
        Some(&self.stand_in.window)
    }

    fn used(&self, entry: &Entry, aux: Option<&AuxState>, now: Timestamp) -> Option<Used> {
        let Some(AuxState::Log(log)) = aux else { return self.stand_in.used(entry, None, now) };
        let (window, mut log) = (self.stand_in.window, log.clone());
        self.advance(&mut log, entry, now.as_nanos());
        let newest = log.len().checked_sub(1).map(|_| log.nth_ns(log.len()));
        let resets_at = newest.map(|at| Timestamp::default() + Duration::from_nanos(at + window.window_ns));
        Some(Used { requests: log.len() as u32, limit: window.limit, resets_at })
    }

    fn aux(&self) -> Option<AuxState> {
        Some(AuxState::Log(Log::default()))
    }

    fn aux_bytes_after(&self, aux: &AuxState, cost: u32) -> usize {
        let AuxState::Log(log) = aux else { return aux.bytes() };
        let room = (self.stand_in.window.limit as usize).saturating_sub(log.len());
        log.bytes_after(room.min(cost as usize))
    }
}

impl SlidingLog {
    /// Judges a request, but adds no admission to the log.
    fn judge_by(&self, entry: &mut Entry, log: Option<&mut Log>, arrival: &Arrival) -> Judgement {
        let Some(log) = log else {
            return Judgement { fell_back: true, ..self.stand_in.judge(entry, None, arrival) };
        };
        let (limit, now_ns) = (self.stand_in.window.limit, arrival.now.as_nanos());
        self.advance(log, entry, now_ns);
        entry.ask(arrival.cost, arrival.now);
        entry.gpt0 = 1_000;
        let free = limit.saturating_sub(log.len() as u32);
        let unknown_ns = log.unknown_ns(now_ns);
        let counts = || self.stand_in.counts(&entry.state, now_ns);
        let stand_in = if unknown_ns == 0 { u32::MAX } else { self.stand_in.remaining(&counts()) };
        let remaining = free.min(stand_in);
        if arrival.cost > limit {
            return Judgement::never(remaining);
        }
        if arrival.cost > remaining {
            let of_log = if arrival.cost > free { self.wait_ns(log, arrival.cost, now_ns) } else { 0 };
            let of_stand_in = match arrival.cost > stand_in {
                true => self.stand_in.wait_ns(&counts(), arrival.cost).min(unknown_ns),
                false => 0,
            };
            return Judgement::deny(of_log.max(of_stand_in), remaining);
        }
        self.stand_in.count(&mut entry.state, arrival);
        entry.let_through(arrival.cost, arrival.now);
        Judgement::new(Verdict::Pass, remaining - arrival.cost)
    }

    /// Advances the log to `now_ns`. The state of the simpler law shows whether a new log lacks any admissions.
    fn advance(&self, log: &mut Log, entry: &Entry, now_ns: u64) {
        let window_ns = self.stand_in.window.window_ns;
        let Seen { prev, curr, .. } = self.stand_in.counts(&entry.state, now_ns);
        let is_known = (prev, curr) == (0, 0);
        log.advance(now_ns, window_ns, if is_known { 0 } else { window_ns });
    }

    /// The time until enough of the oldest admissions no longer count.
    fn wait_ns(&self, log: &Log, cost: u32, now_ns: u64) -> u64 {
        let too_many = log.len() + cost as usize - self.stand_in.window.limit as usize;
        log.nth_ns(too_many) + self.stand_in.window.window_ns - now_ns
    }
}
