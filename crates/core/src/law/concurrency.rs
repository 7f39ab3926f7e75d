//! `concurrency`: at most `max` requests at a time.
//!
//! ```text
//! in flight = requests let through, minus those that have ended, minus those that began a lease ago
//! in flight + cost > max: deny
//! ```
//! The law counts like pingora's `Inflight`, but exactly, and for each key. A request begins with the query and ends
//! when the proxy reports that it has ended: HAProxy with the `response` message, other proxies with `/done`. Both
//! reports return the ticket that came with the verdict. The ticket records when the request began, so the request's
//! end is counted in the right quarter of the lease. The throttle ensures that a ticket ends its request only once.
//!
//! A report may be lost in transit, or because a proxy stops, so a request counts for at most one lease. Requests are
//! counted in the quarter of a lease in which they begin, and the whole quarter is forgotten one lease after it began.
//! So a request counts for at least three quarters of the lease, which should be a third longer than the longest
//! request. Rate and burst have no effect, except that `max` defaults to the burst.
//!
//! A denied client is told to retry after a second, because nothing shows in advance when a request will end.
//!
//! The state is the number of the current quarter, and four 16-bit counts.

use std::time::Duration;

use crate::base::{Quota, Timestamp, Verdict};
use crate::law::formula::{compared, time};
use crate::law::{Admission, Arrival, AuxState, Judgement, Objective, OptionError, Options, Rule, Scale};
use crate::table::{Entry, State};

const LEASE_DEFAULT: Duration = Duration::from_secs(60);

const LEASE_MIN: Duration = Duration::from_millis(100);

const QUARTERS: u32 = 4;

const COUNT_BITS: u32 = 16;

const MAX_MAX: u32 = (1 << COUNT_BITS) - 1;

/// The `concurrency` law for one objective.
///
/// ```
/// use slowlane_core::{law::{Admission, Arrival, Law, Objective, Options}, table::Entry, base::Timestamp};
///
/// // Two at a time: the third is denied until one has ended.
/// let objective = Objective { burst: 0, rate: "1/s".parse().unwrap() };
/// let law = Law::new("concurrency", objective, Options::new([("max", "2")])).unwrap();
/// let (mut entry, now) = (Entry::default(), Timestamp::from_millis(9_000));
/// let ask = |entry: &mut Entry| law.judge(entry, None, &Arrival::at(now)).verdict.name();
/// assert_eq!([ask(&mut entry), ask(&mut entry), ask(&mut entry)], ["pass", "pass", "deny"]);
/// law.end(&mut entry, &Admission { cost: 1, due: now, now });
/// assert_eq!(ask(&mut entry), "pass");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Concurrency {
    max: u32,
    quarter_ns: u64,
}

impl Concurrency {
    pub(super) fn from_options(
        objective: Objective,
        options: &mut Options,
    ) -> Result<Concurrency, OptionError> {
        let max = options.count("max", 1..=MAX_MAX)?.unwrap_or(objective.burst.clamp(1, MAX_MAX));
        let lease = options.duration_of("lease", LEASE_MIN)?.unwrap_or(LEASE_DEFAULT);
        // The quarter is in whole milliseconds, as in tickets: otherwise an end could be counted in the quarter before.
        let quarter_ms = (lease.as_millis() as u64).div_ceil(u64::from(QUARTERS));
        Ok(Concurrency { max, quarter_ns: quarter_ms * 1_000_000 })
    }
}

impl Rule for Concurrency {
    fn judge(&self, entry: &mut Entry, _: Option<&mut AuxState>, arrival: &Arrival) -> Judgement {
        entry.ask(arrival.cost, arrival.now);
        let mut counts = self.counts(&entry.state, arrival.now);
        let in_flight = sum(counts);
        let room = self.max.saturating_sub(in_flight);
        let is_denied = arrival.cost > room;
        if !is_denied {
            counts += u64::from(arrival.cost);
        }
        self.store(counts, &mut entry.state, arrival.now);
        entry.gpt0 = (in_flight + if is_denied { 0 } else { arrival.cost }).max(1) * 1_000;
        if is_denied {
            let is_too_much = arrival.cost > self.max;
            return if is_too_much { Judgement::never(room) } else { Judgement::deny(0, room) };
        }
        entry.let_through(arrival.cost, arrival.now);
        Judgement::new(Verdict::Pass, room - arrival.cost)
    }

    fn explain(&self, _: &Scale, entry: &Entry, _: Option<&AuxState>, arrival: &Arrival) -> String {
        let (counts, cost, max) = (self.counts(&entry.state, arrival.now), arrival.cost, self.max);
        let in_flight = sum(counts);
        let wanted = in_flight.saturating_add(cost);
        let (within, lease) = (compared(wanted <= max), time(self.quarter_ns * u64::from(QUARTERS)));
        format!(
            "in flight {in_flight} + cost {cost} = {wanted} {within} max {max}; each request counts for at most {lease}"
        )
    }

    fn take_back(&self, entry: &mut Entry, _: Option<&mut AuxState>, gone: &Admission) {
        self.end(entry, gone);
    }

    fn counts_ends(&self) -> bool {
        true
    }

    /// A request that ends after its lease changes nothing, because it no longer counts.
    fn end(&self, entry: &mut Entry, gone: &Admission) -> u32 {
        let counts = self.counts(&entry.state, gone.now);
        let back = self.number(gone.now).wrapping_sub(self.number(gone.due));
        let ended = if back < QUARTERS { count(counts, back).min(gone.cost) } else { 0 };
        let counts = counts - (u64::from(ended) << (back % QUARTERS * COUNT_BITS));
        self.store(counts, &mut entry.state, gone.now);
        entry.gpt0 = sum(counts).max(1) * 1_000;
        ended
    }

    fn state_shape(&self) -> u64 {
        self.quarter_ns
    }

    fn memory(&self) -> Duration {
        Duration::from_nanos(self.quarter_ns * u64::from(QUARTERS))
    }

    fn quota(&self, _: Objective) -> Option<Quota> {
        Some(Quota::Concurrent { requests: self.max.into() })
    }

    fn describe(&self, _: Objective) -> String {
        format!("{} at a time", self.max)
    }
}

impl Concurrency {
    /// The four counts at a moment. The lowest bits hold the count of the current quarter.
    fn counts(&self, state: &State, now: Timestamp) -> u64 {
        match self.number(now).wrapping_sub(state.narrow()) as i32 {
            passed @ 0.. => state.wide().checked_shl((passed as u32).saturating_mul(COUNT_BITS)).unwrap_or(0),
            // If the clock went back, everything in flight is moved to the current quarter.
            ..0 => u64::from(sum(state.wide()).min(MAX_MAX)),
        }
    }

    fn store(&self, counts: u64, state: &mut State, now: Timestamp) {
        state.set_wide(counts);
        state.set_narrow(self.number(now));
    }

    fn number(&self, moment: Timestamp) -> u32 {
        (moment.as_nanos() / self.quarter_ns) as u32
    }
}

fn count(counts: u64, back: u32) -> u32 {
    (counts >> (back * COUNT_BITS)) as u32 & MAX_MAX
}

/// The requests in flight.
fn sum(counts: u64) -> u32 {
    (0..QUARTERS).map(|back| count(counts, back)).sum()
}
