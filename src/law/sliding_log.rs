//! `sliding-log`: every admission is remembered, and never are there more than N in a window.
//!
//! ```text
//! N = rate * window
//! forget what is a window old, or older;  remembered + cost > N: deny;  else remember it `cost` times
//! ```
//! As in "Throttling Solutions in Standalone and Distributed Scenarios" (J. Fu), section "Sliding Log". It is exact: in
//! any time of one window at most N pass, and all that may. The burst plays no part.
//!
//! It costs eight bytes for each admission of the last window, beside the entry: N of them at most, which is
//! bounded when the SLO is read. Where there is no room for them it judges as `sliding-window` does, whose state
//! it keeps in the entry. What is remembered begins where there is room again; until a window later
//! the `sliding-window` has its say as well.

use std::collections::VecDeque;
use std::time::Duration;

use crate::base::time::Timestamp;
use crate::base::verdict::Verdict;
use crate::law::formula::{compared, number, option, time};
use crate::law::sliding_window::SlidingWindow;
use crate::law::{Arrival, Judgement, Objective, OptionError, Options};
use crate::table::Entry;

/// The most admissions that one key remembers: half a mebibyte.
const ADMISSIONS_MAX: u32 = 65_536;

/// The law `sliding-log` for one objective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingLog {
    pub(super) stand_in: SlidingWindow,
}

/// When the requests of the last window were let through, in nanoseconds, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    admitted_at: VecDeque<u64>,
    /// From then on the log knows of every admission that counts; 0 for one that has not begun.
    whole_at: u64,
}

impl SlidingLog {
    pub(super) fn from_options(
        objective: Objective,
        options: &mut Options,
    ) -> Result<SlidingLog, OptionError> {
        let stand_in = SlidingWindow::from_options(objective, options)?;
        match stand_in.window.limit {
            ..=ADMISSIONS_MAX => Ok(SlidingLog { stand_in }),
            _ => Err(OptionError::Window {
                window: stand_in.window.duration(),
                rate: objective.rate,
                limit_max: ADMISSIONS_MAX,
                or: ", or use sliding-window",
            }),
        }
    }

    /// ```
    /// use slowlane::{law::{Arrival, Law, Objective, Options}, table::Entry, base::time::Timestamp};
    ///
    /// // Two a second, in any second.
    /// let objective = Objective { burst: 0, rate: "2/s".parse().unwrap() };
    /// let law = Law::new("sliding-log", objective, Options::default()).unwrap();
    /// let (mut entry, mut annex) = (Entry::default(), law.annex());
    /// let mut ask = |ms| {
    ///     law.judge(&mut entry, annex.as_mut(), &Arrival::at(Timestamp::from_millis(ms))).verdict.name()
    /// };
    /// assert_eq!([ask(9_500), ask(10_100), ask(10_499), ask(10_500)], ["pass", "pass", "deny", "pass"]);
    /// assert_eq!([ask(11_099), ask(11_100)], ["deny", "pass"]);
    /// ```
    pub fn judge(&self, entry: &mut Entry, mut log: Option<&mut Log>, arrival: &Arrival) -> Judgement {
        let judgement = self.foresee(entry, log.as_deref_mut(), arrival);
        if let Some(log) = log.filter(|_| judgement.verdict.is_let_through()) {
            log.admitted_at.extend((0..arrival.cost).map(|_| arrival.now.as_nanos()));
        }
        judgement
    }

    /// The same, but what is let through is not remembered in the log.
    pub(super) fn foresee(&self, entry: &mut Entry, log: Option<&mut Log>, arrival: &Arrival) -> Judgement {
        let Some(log) = log else {
            return Judgement { fell_back: true, ..self.stand_in.judge(entry, arrival) };
        };
        let (limit, now_ns) = (self.stand_in.window.limit, arrival.now.as_nanos());
        let is_known = self.stand_in.has_faded(&entry.state, now_ns);
        log.begin(now_ns, if is_known { 0 } else { self.stand_in.window.window_ns });
        log.forget(now_ns, self.stand_in.window.window_ns);
        entry.ask(arrival.cost, arrival.now);
        entry.gpt0 = 1_000;
        let free = limit.saturating_sub(log.admitted_at.len() as u32);
        let unknown_ns = log.whole_at.saturating_sub(now_ns);
        let stand_in = if unknown_ns == 0 { u32::MAX } else { self.stand_in.room_of(&entry.state, now_ns) };
        let remaining = free.min(stand_in);
        if arrival.cost > limit {
            return Judgement::never(remaining);
        }
        if arrival.cost > remaining {
            let of_log = if arrival.cost > free { self.wait_ns(log, arrival.cost, now_ns) } else { 0 };
            let of_stand_in = match arrival.cost > stand_in {
                true => self.stand_in.wait_of(&entry.state, arrival).min(unknown_ns),
                false => 0,
            };
            return Judgement::deny(of_log.max(of_stand_in), remaining);
        }
        self.stand_in.count(&mut entry.state, arrival);
        entry.let_through(arrival.cost, arrival.now);
        Judgement::new(Verdict::Pass, remaining - arrival.cost)
    }

    pub(super) fn explain(
        &self,
        objective: &Objective,
        entry: &Entry,
        log: &Log,
        arrival: &Arrival,
    ) -> String {
        let (window, now_ns, cost) = (self.stand_in.window, arrival.now.as_nanos(), arrival.cost);
        let mut log = log.clone();
        let is_known = self.stand_in.has_faded(&entry.state, now_ns);
        log.begin(now_ns, if is_known { 0 } else { window.window_ns });
        log.forget(now_ns, window.window_ns);
        let remembered = log.admitted_at.len();
        let wanted = number(remembered as f64 + f64::from(cost));
        let is_within = remembered + cost as usize <= window.limit as usize;
        let (within, limit) = (compared(is_within), window.explained(objective.rate));
        let mut text = format!(
            "{remembered} let through in the last {} + cost {cost} = {wanted} {within} {limit}",
            option(window.window_ns)
        );
        if !is_within && cost <= window.limit {
            text += &format!("; wait {}", time(self.wait_ns(&log, cost, now_ns)));
        }
        let unknown_ns = log.whole_at.saturating_sub(now_ns);
        if unknown_ns > 0 {
            let stand_in = self.stand_in(objective, entry, arrival);
            text += &format!(
                "; the log is not whole for another {}, until then also: {stand_in}",
                time(unknown_ns)
            );
        }
        text
    }

    /// What the law says that judges where there is no room.
    pub(super) fn stand_in(&self, objective: &Objective, entry: &Entry, arrival: &Arrival) -> String {
        self.stand_in.explain(objective, entry, arrival)
    }

    /// Until enough of the oldest are forgotten.
    fn wait_ns(&self, log: &Log, cost: u32, now_ns: u64) -> u64 {
        let too_many = log.admitted_at.len() + cost as usize - self.stand_in.window.limit as usize;
        let last_of_them = log.admitted_at[too_many - 1];
        last_of_them + self.stand_in.window.window_ns - now_ns
    }

    /// Forgets a request that was let through at `due`.
    pub(super) fn take_back(&self, entry: &mut Entry, log: Option<&mut Log>, cost: u32, due: Timestamp) {
        self.stand_in.take_back(&mut entry.state, cost, due);
        if let Some(log) = log {
            let due_ns = due.as_nanos();
            let from = log.admitted_at.partition_point(|&at| at < due_ns);
            let end = log.admitted_at.partition_point(|&at| at <= due_ns);
            log.admitted_at.drain(from..end.min(from.saturating_add(cost as usize)));
        }
    }

    /// The most that a log has after one more request of this cost.
    pub(super) fn bytes_after(&self, log: &Log, cost: u32) -> usize {
        let room = (self.stand_in.window.limit as usize).saturating_sub(log.admitted_at.len());
        log.bytes_after(room.min(cost as usize))
    }

    pub(super) fn memory(&self) -> Duration {
        self.stand_in.memory()
    }
}

impl Log {
    /// The bytes that it may have after so many more admissions.
    fn bytes_after(&self, more: usize) -> usize {
        let admissions = self.admitted_at.len() + more;
        // A deque grows by doubling, from four.
        let grown = if admissions > self.admitted_at.capacity() {
            admissions.next_power_of_two().max(2 * self.admitted_at.capacity())
        } else {
            self.admitted_at.capacity()
        };
        grown.max(4) * size_of::<u64>()
    }

    pub(super) fn bytes(&self) -> usize {
        self.admitted_at.capacity() * size_of::<u64>()
    }

    fn begin(&mut self, now_ns: u64, unknown_ns: u64) {
        if self.whole_at == 0 {
            self.whole_at = now_ns.saturating_add(unknown_ns).max(1);
        }
    }

    fn forget(&mut self, now_ns: u64, window_ns: u64) {
        // Written to later than now: all of these were at the latest now.
        let later = self.admitted_at.iter().rev().take_while(|&&at| at > now_ns).count();
        let from = self.admitted_at.len() - later;
        self.admitted_at.range_mut(from..).for_each(|at| *at = now_ns);
        while self.admitted_at.front().is_some_and(|&at| now_ns - at >= window_ns) {
            self.admitted_at.pop_front();
        }
        self.whole_at = self.whole_at.min(now_ns.saturating_add(window_ns));
    }
}
