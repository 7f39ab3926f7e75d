//! The `pace`, `token-bucket` and `leaky-bucket` laws: one bucket, stored as the moment at which its debt is paid.
//!
//! ```text
//! slot  = 1 / rate                            the time of one request
//! start = max(paid_at, now - burst * slot)    a bucket holds at most its burst; when the SLO has
//!                                             changed, at most max_delay of an older debt is kept
//! delay = start + cost * slot - now           pass if it is not positive
//! delay > max_delay: deny, paid_at stays;     else paid_at = start + cost * slot
//! ```
//! Times are in nanoseconds. This is the generic cell rate algorithm (ITU-T I.371); `paid_at + burst * slot` is its
//! theoretical arrival time. In any time T at most `burst + rate * T` requests pass.
//!
//! `pace` gives every request its exact slot on arrival, from a bucket that may go into debt: a request that the
//! algorithm would refuse waits instead. While the bucket is in debt, requests leave at least one slot apart. Requests
//! that leave late do not lower the average rate: the bucket makes up for them, up to its burst.
//!
//! `token-bucket` is the usual form. It has `tokens = (now - start) / slot`, and denies a request if too few tokens are
//! left. A burst of 0 counts as 1, and `max_delay` is 0.
//!
//! `leaky-bucket` is another name for `token-bucket`. As a meter, a leaking bucket holds `burst - tokens` of water, and
//! a request that would overflow the bucket is denied: the verdicts are the same. Let N be the burst and T the time in
//! which a full bucket drains: in any time T, at most 2N pass, N at once and N as the bucket drains. Sources: J.
//! Turner, "New directions in communications", 1986; J. Fu, "Throttling Solutions in Standalone and Distributed
//! Scenarios".
//!
//! Above an SLO with an assured rate, requests that are refused here may still pass and add up to 10 s to the debt.
//!
//! The state is `paid_at`, in nanoseconds: from that moment on, the bucket gains tokens again.

use std::time::Duration;

use crate::base::{Timestamp, Verdict};
use crate::law::formula::{compared, option, time};
use crate::law::{Admission, Arrival, AuxState, Judgement, Objective, OptionError, Options, Rule, Scale};
use crate::table::Entry;

/// The default `max_delay`. Few clients wait longer, and the slot of a client that has disconnected is lost.
const MAX_DELAY_DEFAULT: Duration = Duration::from_secs(5);

/// The maximum debt beyond the longest delay, from requests that bypass the law. If the assured rates add up to no more
/// than the bucket's rate, such requests never cause this much debt, unless the bursts take over 10 s to refill.
const DEBT_MAX: Duration = Duration::from_secs(10);

/// The maximum debt of a bucket of work beyond the longest delay, from requests that cost more than was reserved.
const WORK_DEBT_MAX: Duration = Duration::from_secs(600);

/// The law of a bucket for one objective. Nodes share the bucket by its theoretical arrival time (TAT).
///
/// ```
/// use std::time::Duration;
/// use slowlane_core::law::{Law, Objective, Options};
/// let objective = Objective { burst: 100, rate: "50/s".parse().unwrap() };
/// let law = Law::new("pace", objective, Options::default()).unwrap();
/// let gcra = law.gcra().unwrap();
/// assert_eq!(gcra.slot(), Duration::from_millis(20));
/// assert_eq!((gcra.burst(), gcra.delay_max()), (Duration::from_secs(2), Duration::from_secs(5)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gcra {
    /// The time of one request: `1 / rate`, to the nearest nanosecond.
    pub(super) slot_ns: u64,
    /// The time in which an empty bucket fills: `burst / rate`.
    pub(super) burst_ns: u64,
    pub(super) max_delay_ns: u64,
    debt: Debt,
    form: Form,
}

/// The debt allowed beyond the longest delay, from requests that pass though refused or that cost more than reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Debt {
    None,
    Burst,
    Most,
    Work,
}

/// The variant of the law. Only `pace` delays requests and estimates the number of clients; explanations also differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Pace,
    Tokens,
}

impl Gcra {
    /// The `pace` law.
    ///
    /// ```
    /// use std::time::Duration;
    /// use slowlane_core::{law::{Arrival, Law, Objective, Options}, table::Entry, base::{Timestamp, Verdict}};
    ///
    /// // 10/s with a burst of 10: eleven ask at once, and the last waits a tenth of a second.
    /// let objective = Objective { burst: 10, rate: "10/s".parse().unwrap() };
    /// let law = Law::new("pace", objective, Options::new([("max_delay", "5s")])).unwrap();
    /// let (mut entry, arrival) = (Entry::default(), Arrival::at(Timestamp::from_millis(1_000_000)));
    /// for remaining in (0..10).rev() {
    ///     let judgement = law.judge(&mut entry, None, &arrival);
    ///     assert_eq!((judgement.verdict, judgement.remaining), (Verdict::Pass, remaining));
    /// }
    /// assert_eq!(law.judge(&mut entry, None, &arrival).verdict, Verdict::Delay(Duration::from_millis(100)));
    /// ```
    pub(super) fn pace(objective: Objective, options: &mut Options) -> Result<Gcra, OptionError> {
        let max_delay = options.duration("max_delay")?.unwrap_or(MAX_DELAY_DEFAULT);
        Ok(Gcra::new(objective, max_delay, Form::Pace))
    }

    /// The `token-bucket` law, also called `leaky-bucket`.
    ///
    /// ```
    /// use slowlane_core::{law::{Arrival, Law, Objective, Options}, table::Entry, base::{Timestamp, Verdict}};
    ///
    /// // 10/s with a burst of 2: two pass at once, and the third a tenth of a second later, but no sooner.
    /// let objective = Objective { burst: 2, rate: "10/s".parse().unwrap() };
    /// let law = Law::new("token-bucket", objective, Options::default()).unwrap();
    /// let mut entry = Entry::default();
    /// let mut ask = |ms| law.judge(&mut entry, None, &Arrival::at(Timestamp::from_millis(ms))).verdict;
    /// assert_eq!([ask(9_000), ask(9_000)], [Verdict::Pass; 2]);
    /// assert_eq!(ask(9_099), Verdict::Deny { retry_after_s: 1 });
    /// assert_eq!(ask(9_100), Verdict::Pass);
    /// ```
    pub(super) fn tokens(objective: Objective, _: &mut Options) -> Result<Gcra, OptionError> {
        Ok(Gcra::refusing(objective))
    }

    /// The bucket of an assured rate. This bucket denies instead of delaying, and its debt is at most its burst.
    pub(super) fn assured(objective: Objective) -> Gcra {
        Gcra { debt: Debt::Burst, ..Gcra::refusing(objective) }
    }

    /// A burst of 0 counts as 1: otherwise a bucket that never delays would admit nothing.
    fn refusing(objective: Objective) -> Gcra {
        Gcra::new(Objective { burst: objective.burst.max(1), ..objective }, Duration::ZERO, Form::Tokens)
    }

    fn new(objective: Objective, max_delay: Duration, form: Form) -> Gcra {
        let (slot_ns, max_delay_ns) = (objective.rate.slot().as_nanos() as u64, max_delay.as_nanos() as u64);
        let burst_ns = slot_ns.saturating_mul(u64::from(objective.burst));
        Gcra { slot_ns, burst_ns, max_delay_ns, debt: Debt::None, form }
    }

    /// The time of one request.
    pub fn slot(&self) -> Duration {
        Duration::from_nanos(self.slot_ns.max(1))
    }

    /// The time of a full burst.
    pub fn burst(&self) -> Duration {
        Duration::from_nanos(self.burst_ns)
    }

    /// The number of requests in a full burst.
    pub fn burst_requests(&self) -> u32 {
        self.requests(self.burst_ns)
    }

    /// The longest delay, or zero if the law refuses requests instead of delaying them.
    pub fn delay_max(&self) -> Duration {
        Duration::from_nanos(self.max_delay_ns)
    }

    /// The number of clients, in thousandths, that would delay a request of this cost by `delay_ns` if each client sent
    /// its next request as soon as it had the answer to the last.
    pub fn milli_clients(&self, delay_ns: u64, cost: u32) -> u32 {
        // If the law counts work, the delay is measured in requests of this cost.
        let one_ns = if self.debt == Debt::Work { self.time(cost) } else { self.slot_ns };
        if delay_ns <= one_ns {
            return 1_000;
        }
        let milli_clients = u128::from(delay_ns) * 1_000 / u128::from(one_ns.max(1));
        u32::try_from(milli_clients).unwrap_or(u32::MAX).max(1_000)
    }

    /// The law with room for debt from requests that bypass it ([`add_debt`](Gcra::add_debt)).
    pub fn owing(&self) -> Gcra {
        Gcra { debt: self.debt.max(Debt::Most), ..*self }
    }

    /// The law with room for the debt of work, whose cost is known only afterwards.
    pub(super) fn owing_work(&self) -> Gcra {
        Gcra { debt: Debt::Work, ..*self }
    }

    /// Whether the law counts work, whose charges may be returned.
    pub fn is_work(&self) -> bool {
        self.debt == Debt::Work
    }

    /// Whether the law has room for debt beyond the longest delay.
    pub fn can_owe(&self) -> bool {
        self.debt != Debt::None
    }

    /// The theoretical arrival time (TAT) of a key: the moment at which its bucket is full again.
    ///
    /// ```
    /// use slowlane_core::{law::{Arrival, Law, Objective, Options}, table::Entry, base::Timestamp};
    /// // 10/s with a burst of 20: after three requests at once, the bucket is full in 0.3 s.
    /// let objective = Objective { burst: 20, rate: "10/s".parse().unwrap() };
    /// let now = Timestamp::from_millis(9_000);
    /// for name in ["pace", "token-bucket", "leaky-bucket"] {
    ///     let law = Law::new(name, objective, Options::default()).unwrap();
    ///     let mut entry = Entry::default();
    ///     law.judge(&mut entry, None, &Arrival { cost: 3, ..Arrival::at(now) });
    ///     assert_eq!(law.gcra().unwrap().tat(&entry, now), Timestamp::from_millis(9_300));
    /// }
    /// ```
    pub fn tat(&self, entry: &Entry, now: Timestamp) -> Timestamp {
        Timestamp::from_nanos(self.start(entry, now.as_nanos()).saturating_add(self.burst_ns))
    }

    /// Charges a request that passes although the law refuses it, so later requests wait longer. The debt is bounded.
    ///
    /// ```
    /// use slowlane_core::{law::{Arrival, Law, Objective, Options}, table::Entry, base::Timestamp};
    /// let objective = Objective { burst: 1, rate: "10/s".parse().unwrap() };
    /// let mut law = Law::new("pace", objective, Options::new([("max_delay", "100ms")])).unwrap();
    /// law.owe();
    /// let (mut entry, arrival) = (Entry::default(), Arrival::at(Timestamp::from_millis(9_000)));
    /// let delay_ms = |entry: &mut Entry, ms| {
    ///     law.judge(entry, None, &Arrival::at(Timestamp::from_millis(ms))).verdict.delay_ms()
    /// };
    /// assert_eq!([delay_ms(&mut entry, 9_000), delay_ms(&mut entry, 9_000)], [0, 100]);
    /// // The third would wait for 200 ms, and owes 100 ms beyond `max_delay`.
    /// law.gcra().unwrap().add_debt(&mut entry, &arrival);
    /// assert_eq!(delay_ms(&mut entry, 9_200), 100);
    /// ```
    pub fn add_debt(&self, entry: &mut Entry, arrival: &Arrival) {
        let paid_at = self.charge(entry, arrival.cost, arrival.now);
        entry.gpt0 = self.gpt0(paid_at.saturating_sub(arrival.now.as_nanos()), arrival.cost);
    }

    /// Charges a request, whether or not the bucket has room. Returns the time at which the debt is paid.
    pub(super) fn charge(&self, entry: &mut Entry, cost: u32, now: Timestamp) -> u64 {
        let paid_at = self.add(entry, cost, now);
        entry.ask(cost, now);
        entry.let_through(cost, now);
        paid_at
    }

    /// Adds a cost to the debt. Returns the time at which the debt is paid.
    fn add(&self, entry: &mut Entry, cost: u32, now: Timestamp) -> u64 {
        let now_ns = now.as_nanos();
        let paid_at = self.start(entry, now_ns).saturating_add(self.time(cost));
        let paid_at = paid_at.min(self.debt_max(now_ns));
        entry.state.set_wide(paid_at);
        paid_at
    }

    /// Gives back the slots of a request. Requests behind it keep their slots; the next arrival finds a shorter queue.
    pub(super) fn give_back(&self, entry: &mut Entry, cost: u32) {
        entry.state.set_wide(entry.state.wide().saturating_sub(self.time(cost)));
    }

    /// The time at which the next slot begins, never more than a full burst in the past.
    pub(super) fn start(&self, entry: &Entry, now_ns: u64) -> u64 {
        self.paid_at(entry, now_ns).max(now_ns.saturating_sub(self.burst_ns))
    }

    /// The time at which the debt is paid. Debt beyond the maximum is forgiven, because it comes from an earlier SLO,
    /// or from a clock that was set back.
    pub(super) fn paid_at(&self, entry: &Entry, now_ns: u64) -> u64 {
        entry.state.wide().min(self.debt_max(now_ns))
    }

    /// How many tokens the bucket lacks, with fractions.
    pub(super) fn lacking(&self, entry: &Entry, now_ns: u64) -> f64 {
        let full_at = self.start(entry, now_ns).saturating_add(self.burst_ns);
        self.parts(full_at.saturating_sub(now_ns))
    }

    /// The moment at which the maximum debt is paid: `max_delay` from now, plus the time of the debt allowed beyond it.
    fn debt_max(&self, now_ns: u64) -> u64 {
        now_ns.saturating_add(self.max_delay_ns).saturating_add(self.debt_ns())
    }

    fn debt_ns(&self) -> u64 {
        match self.debt {
            Debt::None => 0,
            Debt::Burst => self.burst_ns,
            Debt::Most => DEBT_MAX.as_nanos() as u64,
            Debt::Work => WORK_DEBT_MAX.as_nanos() as u64,
        }
    }

    /// The law of one of `nodes` nodes: its bucket fills at an equal part of the rate, and holds the whole burst.
    pub(super) fn split(&self, nodes: u32) -> Gcra {
        let slower = |ns: u64| ns.saturating_mul(u64::from(nodes.max(1)));
        Gcra { slot_ns: slower(self.slot_ns), burst_ns: slower(self.burst_ns), ..*self }
    }

    /// The time of a request of this cost.
    pub(super) fn time(&self, cost: u32) -> u64 {
        self.slot_ns.saturating_mul(u64::from(cost))
    }

    /// How many whole requests fit into a time.
    pub(super) fn requests(&self, ns: u64) -> u32 {
        u32::try_from(ns / self.slot_ns.max(1)).unwrap_or(u32::MAX)
    }

    /// How many requests fit into a time, with fractions.
    fn parts(&self, ns: u64) -> f64 {
        ns as f64 / self.slot_ns.max(1) as f64
    }

    pub(super) fn gpt0(&self, delay_ns: u64, cost: u32) -> u32 {
        match self.form {
            Form::Pace => self.milli_clients(delay_ns, cost),
            Form::Tokens => 1_000,
        }
    }
}

impl Rule for Gcra {
    fn judge(&self, entry: &mut Entry, _: Option<&mut AuxState>, arrival: &Arrival) -> Judgement {
        entry.ask(arrival.cost, arrival.now);
        let now_ns = arrival.now.as_nanos();
        let taken_ns = self.time(arrival.cost);
        let start = self.start(entry, now_ns);
        let paid_at = start.saturating_add(taken_ns);
        let delay_ns = paid_at.saturating_sub(now_ns);
        entry.gpt0 = self.gpt0(delay_ns, arrival.cost);
        if delay_ns > self.max_delay_ns {
            entry.state.set_wide(start);
            let remaining = self.requests(now_ns.saturating_sub(start));
            return match taken_ns.saturating_sub(self.burst_ns) > self.max_delay_ns {
                true => Judgement::never(remaining),
                // The debt shrinks by one second per second.
                false => Judgement::deny(delay_ns - self.max_delay_ns, remaining),
            };
        }
        entry.state.set_wide(paid_at);
        entry.let_through(arrival.cost, arrival.now);
        let remaining = self.requests(now_ns.saturating_sub(paid_at));
        let verdict =
            if delay_ns == 0 { Verdict::Pass } else { Verdict::Delay(Duration::from_nanos(delay_ns)) };
        Judgement::new(verdict, remaining)
    }

    fn explain(&self, scale: &Scale, entry: &Entry, _: Option<&AuxState>, arrival: &Arrival) -> String {
        let (now_ns, cost) = (arrival.now.as_nanos(), arrival.cost);
        let start = self.start(entry, now_ns);
        let over_ns = start.saturating_add(self.time(cost)).saturating_sub(now_ns);
        let is_too_much = cost > self.burst_requests();
        let lacking = self.lacking(entry, now_ns);
        let (used, burst, rate) = (scale.count(lacking), scale.count(self.burst_requests()), &scale.rate);
        let (over, delay) = (scale.count(self.parts(over_ns)), time(over_ns));
        let cost = scale.count(cost);
        match self.form {
            Form::Pace if over_ns == 0 => format!("used {used} + cost {cost} <= burst {burst}"),
            Form::Pace => {
                let (within, max_delay) = (compared(over_ns <= self.max_delay_ns), option(self.max_delay_ns));
                format!(
                    "used {used} + cost {cost} - burst {burst} = {over} over; \
                     delay = {over} / {rate} = {delay} {within} max_delay {max_delay}"
                )
            }
            Form::Tokens => {
                let (left_ns, owed_ns) = (now_ns.saturating_sub(start), start.saturating_sub(now_ns));
                let tokens = scale.count(self.parts(left_ns) - self.parts(owed_ns));
                match over_ns {
                    0 => format!("tokens {tokens} of burst {burst} >= cost {cost}"),
                    _ if is_too_much => format!("burst {burst} < cost {cost}"),
                    _ => format!(
                        "tokens {tokens} of burst {burst} < cost {cost}; wait = {over} / {rate} = {delay}"
                    ),
                }
            }
        }
    }

    fn take_back(&self, entry: &mut Entry, _: Option<&mut AuxState>, gone: &Admission) {
        self.give_back(entry, gone.cost);
    }

    fn charge_more(&self, entry: &mut Entry, cost: u32, now: Timestamp) {
        self.add(entry, cost, now);
    }

    /// How long a bucket with the maximum debt takes to fill.
    fn memory(&self) -> Duration {
        let debt_ns = self.max_delay_ns.saturating_add(self.debt_ns());
        Duration::from_nanos(self.burst_ns.saturating_add(debt_ns))
    }

    fn max_delay(&self) -> Option<Duration> {
        (self.form == Form::Pace).then(|| self.delay_max())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::law::Law;

    /// Ten fit in. Seven come as one request, three of them go: the next leaves room for five.
    #[test]
    fn a_request_is_taken_back_at_its_cost() {
        let objective = Objective { burst: 10, rate: "10/s".parse().unwrap() };
        let now = Timestamp::from_millis(9_000);
        for name in ["pace", "token-bucket", "leaky-bucket"] {
            let law = Law::new(name, objective, Options::default()).unwrap();
            let mut entry = Entry::default();
            let ask = |entry: &mut Entry, cost| {
                law.judge(entry, None, &Arrival { cost, ..Arrival::at(now) }).remaining
            };
            assert_eq!(ask(&mut entry, 7), 3, "{name}");
            law.take_back(&mut entry, None, &Admission { cost: 3, due: now, now });
            assert_eq!(ask(&mut entry, 1), 5, "{name}");
        }
    }
}
