//! `fair`: `pace`, with the slots of one bucket shared between its sources.
//!
//! ```text
//! slot = 1 / rate; time is cut into slots, and a request takes the first free one at or after its source's
//! eligible time. The eligible times of one source lie A slots apart, A: the sources with a request waiting (A + 1
//! where the source itself has one waiting beside others).
//! every fourth slot, and min(8, burst / 2) tokens, are kept for sources that have no request waiting
//! a slot that nobody took fills the burst;   a slot further away than max_delay: deny
//! ```
//! So one greedy source leaves the others their share, and takes all when it is alone; and who comes late, or now and
//! then, finds a slot at once, however long the greedy one's queue is. In any time T it lets through at most
//! `burst + rate * T` requests, as `pace` does: it only deals them out in another order. The field that says whose a
//! request is, is the option `share`. A request that costs more takes that many slots and leaves at the last of
//! them; where several such wait, their slots lie between each other's, and they leave soon after one another.
//!
//! A request is told its slot as it comes, so a slot that is left to others and that none of them takes is used later,
//! from the burst. What the burst has no room for is lost: a quarter of the rate at most, where a source comes in bursts
//! of more than four times it. A burst of 0 counts as 1. One below 4 is too little: up to two fifths of the rate are
//! lost while several sources wait.
//!
//! It is fair among the sources that have room to wait. Where more than some `rate * max_delay` of them ask again and
//! again, or more than `sources_max`, all slots are taken by whoever comes first, as under `pace`.
//!
//! It costs memory beside the entry: a bit for each slot within `max_delay`, and 24 bytes for each of `sources_max`
//! sources at most. Where there is no room for them it judges as `pace` does, whose state it keeps in the entry; one
//! source more than there is room for is served among those that have requests waiting.

use std::time::Duration;

use crate::base::time::Timestamp;
use crate::base::verdict::Verdict;
use crate::law::calendar::{Booking, Calendar, Plan, Wish};
use crate::law::formula::{compared, option, time};
use crate::law::pace::Pace;
use crate::law::{Arrival, Judgement, Objective, OptionError, Options};
use crate::table::Entry;

const SOURCES_DEFAULT: u32 = 256;

/// They are walked through at each request.
const SOURCES_MAX: u32 = 4_096;

/// The most slots within `max_delay`: eight kibibytes of bits.
const SLOTS_MAX: u32 = 65_536;

const SECOND_NS: u64 = 1_000_000_000;

/// How far ahead each second is tried: that is work, and who comes back later comes back soon enough.
const TRIES_MAX: u64 = 60;

/// The law `fair` for one objective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fair {
    pub(super) pace: Pace,
    slots_max: u32,
    tokens_max: u32,
    sources_max: u32,
}

impl Fair {
    pub(super) fn from_options(objective: Objective, options: &mut Options) -> Result<Fair, OptionError> {
        // Whose a request is, the policy says.
        options.take("share");
        let objective = Objective { burst: objective.burst.max(1), ..objective };
        let pace = Pace::from_options(objective, options)?;
        let sources_max = options.count("sources_max", 1, SOURCES_MAX)?.unwrap_or(SOURCES_DEFAULT);
        match pace.bucket.requests(pace.max_delay_ns) {
            slots_max @ ..=SLOTS_MAX => {
                Ok(Fair { pace, slots_max, tokens_max: objective.burst, sources_max })
            }
            slots => Err(OptionError::Slots {
                max_delay: Duration::from_nanos(pace.max_delay_ns),
                rate: objective.rate,
                slots,
                slots_max: SLOTS_MAX,
            }),
        }
    }

    /// ```
    /// use slowlane::{law::{Arrival, Law, Objective, Options}, table::Entry, base::time::Timestamp};
    ///
    /// // 10/s: one source asks again and again. As soon as another has come, it leaves slots in between to it.
    /// let objective = Objective { burst: 1, rate: "10/s".parse().unwrap() };
    /// let law = Law::new("fair", objective, Options::default()).unwrap();
    /// let (mut entry, mut annex) = (Entry::default(), law.annex());
    /// let mut ask = |sharer, ms| {
    ///     let arrival = Arrival { sharer, ..Arrival::at(Timestamp::from_millis(ms)) };
    ///     law.judge(&mut entry, annex.as_mut(), &arrival).verdict.delay_ms()
    /// };
    /// assert_eq!([ask(1, 9_000), ask(1, 9_000), ask(1, 9_000)], [0, 100, 200]);
    /// assert_eq!([ask(2, 9_000), ask(1, 9_000), ask(1, 9_000)], [300, 400, 600]);
    /// assert_eq!([ask(2, 9_000), ask(2, 9_300)], [500, 700 - 300]);
    /// ```
    pub fn judge(&self, entry: &mut Entry, calendar: Option<&mut Calendar>, arrival: &Arrival) -> Judgement {
        self.judge_and(true, entry, calendar, arrival)
    }

    /// The same, but nothing is booked.
    pub(super) fn foresee(
        &self,
        entry: &mut Entry,
        calendar: Option<&mut Calendar>,
        arrival: &Arrival,
    ) -> Judgement {
        self.judge_and(false, entry, calendar, arrival)
    }

    fn judge_and(
        &self,
        is_kept: bool,
        entry: &mut Entry,
        calendar: Option<&mut Calendar>,
        arrival: &Arrival,
    ) -> Judgement {
        let Some(calendar) = calendar else {
            return Judgement { fell_back: true, ..self.pace.judge(entry, arrival) };
        };
        entry.ask(arrival.cost, arrival.now);
        let (now_ns, bucket) = (arrival.now.as_nanos(), self.pace.bucket);
        let start = self.pace.start(entry, now_ns);
        calendar.advance(&self.plan(), now_ns, entry.state.wide());
        let max_delay_ns = self.pace.max_delay_ns;
        let wish = Wish { now_ns, cost: arrival.cost, sharer: arrival.sharer, max_delay_ns };
        let offer = calendar.offer(&wish, self.sources_max);
        let (fell_back, remaining) = (offer.place.is_none(), calendar.remaining(&offer));
        let delay_ns = match offer.booking {
            Booking::Now => 0,
            Booking::At(due_ns) => due_ns.saturating_sub(now_ns),
            Booking::TooLate => {
                entry.gpt0 = bucket.milli_clients(max_delay_ns);
                let judgement = match arrival.cost > self.tokens_max.saturating_add(self.slots_max) {
                    true => Judgement::never(remaining),
                    false => Judgement::deny(self.wait_ns(calendar, &wish), remaining),
                };
                return Judgement { fell_back, ..judgement };
            }
        };
        if is_kept {
            calendar.take_up(&offer);
            debug_assert!(calendar.is_sound());
        }
        entry.gpt0 = bucket.milli_clients(delay_ns);
        entry.state.set_wide(start.saturating_add(bucket.time(arrival.cost)));
        entry.let_through(arrival.cost, arrival.now);
        let verdict = Verdict::after(Duration::from_nanos(delay_ns));
        Judgement { fell_back, ..Judgement::new(verdict, remaining) }
    }

    pub(super) fn explain(
        &self,
        objective: &Objective,
        entry: &Entry,
        calendar: &Calendar,
        arrival: &Arrival,
    ) -> String {
        let (now_ns, cost, max_delay_ns) = (arrival.now.as_nanos(), arrival.cost, self.pace.max_delay_ns);
        let (mut entry, mut calendar) = (*entry, calendar.clone());
        self.pace.start(&mut entry, now_ns);
        calendar.advance(&self.plan(), now_ns, entry.state.wide());
        let wish = Wish { now_ns, cost, sharer: arrival.sharer, max_delay_ns };
        let offer = calendar.offer(&wish, self.sources_max);
        let (state, max_delay, rate) =
            (calendar.explain(&offer, &wish), option(max_delay_ns), objective.rate);
        match offer.booking {
            Booking::Now => state,
            Booking::At(due_ns) => {
                let delay_ns = due_ns.saturating_sub(now_ns);
                let (within, delay) = (compared(delay_ns <= max_delay_ns), time(delay_ns));
                format!("{state}; its slot of 1 / {rate} begins in {delay} {within} max_delay {max_delay}")
            }
            Booking::TooLate => {
                format!("{state}; its slot of 1 / {rate} would begin in > max_delay {max_delay}")
            }
        }
    }

    /// What the law says that judges where there is no room.
    pub(super) fn stand_in(&self, objective: &Objective, entry: &Entry, arrival: &Arrival) -> String {
        let objective = Objective { burst: self.tokens_max, ..*objective };
        self.pace.explain(&objective, entry, arrival)
    }

    /// The whole seconds after which a wish comes true; each is tried.
    fn wait_ns(&self, calendar: &Calendar, wish: &Wish) -> u64 {
        let comes_true = |&wait_ns: &u64| calendar.would_come_true(wish, wait_ns, self.sources_max);
        // Then everything that is taken now is over, and the bucket is full.
        let over_ns = self.pace.max_delay_ns.saturating_add(self.pace.bucket.burst_ns);
        let seconds = (1..=TRIES_MAX).map(|seconds| seconds * SECOND_NS);
        let mut tried = seconds.take_while(|&wait_ns| wait_ns < over_ns.saturating_add(SECOND_NS));
        tried.find(comes_true).unwrap_or(over_ns)
    }

    pub(super) fn take_back(
        &self,
        entry: &mut Entry,
        calendar: Option<&mut Calendar>,
        cost: u32,
        now: Timestamp,
        due: Timestamp,
    ) {
        self.pace.take_back(entry, cost);
        if let Some(calendar) = calendar {
            calendar.free(cost, now.as_nanos(), due.as_nanos());
        }
    }

    fn plan(&self) -> Plan {
        Plan {
            slot_ns: self.pace.bucket.slot_ns,
            tokens_max: self.tokens_max,
            slots_max: self.slots_max,
            sharers_max: self.sources_max,
        }
    }

    /// The most that its calendar takes up.
    pub(super) fn bytes(&self) -> usize {
        self.plan().bytes()
    }

    /// Until the bucket is full again. A sharer that has booked much may have its turn later than that; it is
    /// forgiven.
    pub(super) fn memory(&self) -> Duration {
        self.pace.memory()
    }
}
