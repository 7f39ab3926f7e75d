//! `concurrency`: so many requests at a time.
//!
//! ```text
//! in flight = requests let through, less those whose end was told, less those begun a lease ago
//! in flight + cost > max: deny
//! ```
//! As pingora's `Inflight` counts, per key and exact. A request begins with the question and ends when the proxy tells
//! so: HAProxy with the message `response`, others with `/done`. Both hand back the ticket that came with
//! the verdict, so that the end is counted against the time of its beginning.
//!
//! Ends get lost, with a proxy or on the way. Therefore a request counts for a lease at most: beginnings are
//! counted in quarters of it, and a quarter is forgotten whole when a lease has passed since it began. A request
//! counts for three quarters of the lease at least: make it a third longer than the longest request. Rate and burst
//! play no part, but that `max` defaults to the burst.
//!
//! A denied client is told to come back after a second: nobody knows when a request will end.
//!
//! The state is the number of the quarter, and four counts of 16 bits.

use std::time::Duration;

use crate::base::time::Timestamp;
use crate::base::verdict::Verdict;
use crate::law::formula::{compared, time};
use crate::law::{Arrival, Judgement, Objective, OptionError, Options};
use crate::table::{Entry, State};

const LEASE_DEFAULT: Duration = Duration::from_secs(60);

const LEASE_MIN: Duration = Duration::from_millis(100);

const QUARTERS: u32 = 4;

const COUNT_BITS: u32 = 16;

const MAX_MAX: u32 = (1 << COUNT_BITS) - 1;

/// The law `concurrency` for one objective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Concurrency {
    max: u32,
    quarter_ns: u64,
}

impl Concurrency {
    pub(super) fn max(&self) -> u32 {
        self.max
    }

    pub(super) fn from_options(
        objective: Objective,
        options: &mut Options,
    ) -> Result<Concurrency, OptionError> {
        let max = options.count("max", 1, MAX_MAX)?.unwrap_or(objective.burst.clamp(1, MAX_MAX));
        let lease = options.duration("lease")?.unwrap_or(LEASE_DEFAULT);
        if lease < LEASE_MIN {
            return Err(OptionError::TooShort { name: "lease", given: lease, min: LEASE_MIN });
        }
        // Whole milliseconds, as a ticket has them: or an end would be counted against the quarter before.
        let quarter_ms = (lease.as_millis() as u64).div_ceil(u64::from(QUARTERS));
        Ok(Concurrency { max, quarter_ns: quarter_ms * 1_000_000 })
    }

    /// ```
    /// use slowlane::{law::{Arrival, Law, Objective, Options}, table::Entry, base::time::Timestamp};
    ///
    /// // Two at a time: the third has to wait until one has ended.
    /// let objective = Objective { burst: 0, rate: "1/s".parse().unwrap() };
    /// let law = Law::new("concurrency", objective, Options::new([("max", "2")])).unwrap();
    /// let (mut entry, now) = (Entry::default(), Timestamp::from_millis(9_000));
    /// let ask = |entry: &mut Entry| law.judge(entry, None, &Arrival::at(now)).verdict.name();
    /// assert_eq!([ask(&mut entry), ask(&mut entry), ask(&mut entry)], ["pass", "pass", "deny"]);
    /// law.end(&mut entry, 1, now, now);
    /// assert_eq!(ask(&mut entry), "pass");
    /// ```
    pub fn judge(&self, entry: &mut Entry, arrival: &Arrival) -> Judgement {
        entry.ask(arrival.cost, arrival.now);
        let mut counts = self.counts(&entry.state, arrival.now);
        let in_flight: u32 = (0..QUARTERS).map(|back| count(counts, back)).sum();
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

    pub(super) fn explain(&self, entry: &Entry, arrival: &Arrival) -> String {
        let (counts, cost, max) = (self.counts(&entry.state, arrival.now), arrival.cost, self.max);
        let in_flight: u32 = (0..QUARTERS).map(|back| count(counts, back)).sum();
        let wanted = in_flight.saturating_add(cost);
        let (within, lease) = (compared(wanted <= max), time(self.quarter_ns * u64::from(QUARTERS)));
        format!(
            "in flight {in_flight} + cost {cost} = {wanted} {within} max {max}; each counts for {lease} at most"
        )
    }

    /// A request that was let through at `begun` has ended. One that counts no more ends without a trace.
    pub(super) fn end(&self, entry: &mut Entry, cost: u32, begun: Timestamp, now: Timestamp) {
        let counts = self.counts(&entry.state, now);
        let back = self.number(now).wrapping_sub(self.number(begun));
        let ended = if back < QUARTERS { count(counts, back).min(cost) } else { 0 };
        let counts = counts - (u64::from(ended) << (back % QUARTERS * COUNT_BITS));
        self.store(counts, &mut entry.state, now);
        let in_flight: u32 = (0..QUARTERS).map(|back| count(counts, back)).sum();
        entry.gpt0 = in_flight.max(1) * 1_000;
    }

    /// The four counts at a moment, the current quarter's in the lowest bits.
    fn counts(&self, state: &State, now: Timestamp) -> u64 {
        match self.number(now).wrapping_sub(state.narrow()) as i32 {
            passed @ 0.. => state.wide().checked_shl((passed as u32).saturating_mul(COUNT_BITS)).unwrap_or(0),
            // Written to later than now: what is in flight has begun in this quarter.
            ..0 => {
                let in_flight: u32 = (0..QUARTERS).map(|back| count(state.wide(), back)).sum();
                u64::from(in_flight.min(MAX_MAX))
            }
        }
    }

    fn store(&self, counts: u64, state: &mut State, now: Timestamp) {
        state.set_wide(counts);
        state.set_narrow(self.number(now));
    }

    fn number(&self, moment: Timestamp) -> u32 {
        (moment.as_nanos() / self.quarter_ns) as u32
    }

    pub(super) fn memory(&self) -> Duration {
        Duration::from_nanos(self.quarter_ns * u64::from(QUARTERS))
    }
}

fn count(counts: u64, back: u32) -> u32 {
    (counts >> (back * COUNT_BITS)) as u32 & MAX_MAX
}
