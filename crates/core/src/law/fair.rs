//! The `fair` law: `pace`, with the slots of one bucket shared among its sources.
//!
//! ```text
//! slot = 1 / rate: time is cut into slots; a request takes the first free slot at or after its source's eligible
//! time. The eligible times of one source lie A slots apart. A: the number of other sources with waiting requests, plus
//! 1, plus 1 more if the source itself waits alongside others
//! every fourth slot, and min(8, (burst - 1) / 2) tokens, are kept for sources without waiting requests
//! an unused slot fills the burst;   a slot beyond max_delay: deny
//! ```
//! A greedy source leaves the other sources their share, and takes every slot when it is alone. A late or occasional
//! source finds a slot at once, however long the greedy source's queue is. In any time T at most `burst + rate * T`
//! requests pass, as under `pace`; only their order differs. The `share` option names the field that distinguishes the
//! sources. With several fields, such as `network+source`, networks with waiting requests share the slots, and the
//! sources of one network share that network's part: A is then the product, over all levels, of the number of branches
//! with waiting requests. A request of cost n takes n slots and leaves at the last of them. If several such requests
//! wait, their slots interleave, and the requests leave in quick succession.
//!
//! A request gets its slot on arrival. A slot that is left to other sources, but that none of them takes, refills the
//! burst; if the burst is full, the slot is lost. A source that sends bursts of more than four times the burst loses at
//! most a quarter of the rate in this way. A burst of 0 counts as 1. A burst below 4 is too small: up to two fifths of
//! the rate is lost while several sources wait.
//!
//! The law is fair among the sources that have room to wait. If more than about `rate * max_delay / 2` sources keep
//! asking, or more than `sources_max`, slots increasingly go to whichever source asks first, as under `pace`.
//!
//! Each decision scans all sources, and the words that hold the slots. A denial scans them up to twelve times to find
//! its `Retry-After`. tests/bench/README.md shows the worst case.
//!
//! The law needs memory besides the entry: a bit for each slot within `max_delay`, and 24 bytes for each source, for up
//! to `sources_max` sources. Without that memory, the law judges as `pace` does; in any case, the entry holds the state
//! of `pace`. A source beyond `sources_max` is treated as if it had requests waiting.

use std::time::Duration;

use crate::base::Verdict;
use crate::law::calendar::{Booking, Calendar, Plan, SlotRequest};
use crate::law::formula::{compared, option, time};
use crate::law::{
    Admission, Arrival, AuxState, Gcra, Judgement, Objective, OptionError, Options, Rule, Scale,
};
use crate::table::Entry;

const SOURCES_DEFAULT: u32 = 256;

/// The highest value of `sources_max`: a request scans all sources, and a denied request does so up to twelve times.
const SOURCES_MAX: u32 = 4_096;

/// The maximum number of slots within `max_delay`. The bits of this many slots take eight kibibytes.
const SLOTS_MAX: u32 = 65_536;

const SECOND_NS: u64 = 1_000_000_000;

/// How many seconds ahead the law looks for the slot of a denied request. A longer wait needs less precision.
const LOOK_AHEAD_S: u64 = 60;

/// The `fair` law for one objective.
///
/// ```
/// use slowlane_core::{law::{Arrival, Law, Objective, Options}, table::Entry, base::Timestamp};
///
/// // 10/s: one source asks again and again. As soon as another source asks, it gets the slots in between.
/// let objective = Objective { burst: 1, rate: "10/s".parse().unwrap() };
/// let law = Law::new("fair", objective, Options::default()).unwrap();
/// let (mut entry, mut aux) = (Entry::default(), law.aux());
/// let mut ask = |sharer, ms| {
///     let arrival = Arrival { sharer, ..Arrival::at(Timestamp::from_millis(ms)) };
///     law.judge(&mut entry, aux.as_mut(), &arrival).verdict.delay_ms()
/// };
/// assert_eq!([ask(1, 9_000), ask(1, 9_000), ask(1, 9_000)], [0, 100, 200]);
/// assert_eq!([ask(2, 9_000), ask(1, 9_000), ask(1, 9_000)], [300, 400, 600]);
/// assert_eq!([ask(2, 9_000), ask(2, 9_300)], [500, 700 - 300]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fair {
    pace: Gcra,
    plan: Plan,
    /// The number of fields that distinguish sources.
    levels: u32,
}

impl Fair {
    pub(super) fn from_options(objective: Objective, options: &mut Options) -> Result<Fair, OptionError> {
        // Only the number of fields matters here: the policy reads the sharer of each request.
        let levels = options.take("share").map_or(1, |share| share.split('+').count() as u32);
        let objective = Objective { burst: objective.burst.max(1), ..objective };
        let pace = Gcra::pace(objective, options)?;
        let sharers_max = options.count("sources_max", 1..=SOURCES_MAX)?.unwrap_or(SOURCES_DEFAULT);
        match pace.requests(pace.max_delay_ns) {
            slots_max @ ..=SLOTS_MAX => {
                let (slot_ns, tokens_max) = (pace.slot_ns, objective.burst);
                Ok(Fair { pace, plan: Plan { slot_ns, tokens_max, slots_max, sharers_max }, levels })
            }
            slots => {
                let reason =
                    format!("spans {slots} slots, but fair keeps at most {SLOTS_MAX}: shorten max_delay");
                let given = pace.delay_max();
                Err(OptionError::Rate { name: "max_delay", given, rate: objective.rate, reason })
            }
        }
    }
}

impl Rule for Fair {
    fn judge(&self, entry: &mut Entry, aux: Option<&mut AuxState>, arrival: &Arrival) -> Judgement {
        self.judge_by(true, entry, AuxState::calendar(aux), arrival)
    }

    fn foresee(&self, entry: &mut Entry, aux: Option<&mut AuxState>, arrival: &Arrival) -> Judgement {
        self.judge_by(false, entry, AuxState::calendar(aux), arrival)
    }

    fn explain(&self, scale: &Scale, entry: &Entry, aux: Option<&AuxState>, arrival: &Arrival) -> String {
        let Some(AuxState::Calendar(calendar)) = aux else {
            let stand_in = self.pace.explain(scale, entry, None, arrival);
            return format!("no auxiliary memory is left, so the pace law applies: {stand_in}");
        };
        let (now_ns, max_delay_ns) = (arrival.now.as_nanos(), self.pace.max_delay_ns);
        let rate = &scale.rate;
        let mut calendar = calendar.clone();
        calendar.advance(&self.plan, now_ns, self.pace.paid_at(entry, now_ns));
        let request = self.request(arrival);
        let offer = calendar.offer(&request, self.plan.sharers_max);
        let (state, max_delay) = (calendar.explain(&offer, &request), option(max_delay_ns));
        match offer.booking {
            Booking::Now => state,
            Booking::At(due_ns) => {
                let delay_ns = due_ns.saturating_sub(now_ns);
                let (within, delay) = (compared(delay_ns <= max_delay_ns), time(delay_ns));
                format!(
                    "{state}; the request's slot of 1 / {rate} begins in {delay} {within} max_delay {max_delay}"
                )
            }
            Booking::TooLate => {
                format!(
                    "{state}; the request's slot of 1 / {rate} would begin after a delay > max_delay {max_delay}"
                )
            }
        }
    }

    fn take_back(&self, entry: &mut Entry, aux: Option<&mut AuxState>, gone: &Admission) {
        self.pace.take_back(entry, None, gone);
        if let Some(calendar) = AuxState::calendar(aux) {
            calendar.free(gone.cost, gone.now.as_nanos(), gone.due.as_nanos());
        }
    }

    /// The longest time until the bucket is full again. A source that has booked many slots may have a turn even later;
    /// the entry then forgets this turn.
    fn memory(&self) -> Duration {
        self.pace.memory()
    }

    fn max_delay(&self) -> Option<Duration> {
        Some(self.pace.delay_max())
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn aux(&self) -> Option<AuxState> {
        Some(AuxState::Calendar(Calendar::default()))
    }

    fn aux_bytes_after(&self, aux: &AuxState, _: u32) -> usize {
        self.plan.bytes().max(aux.bytes())
    }
}

impl Fair {
    /// Judges a request, and books its slots only if `is_booked`.
    fn judge_by(
        &self,
        is_booked: bool,
        entry: &mut Entry,
        calendar: Option<&mut Calendar>,
        arrival: &Arrival,
    ) -> Judgement {
        let Some(calendar) = calendar else {
            return Judgement { fell_back: true, ..self.pace.judge(entry, None, arrival) };
        };
        entry.ask(arrival.cost, arrival.now);
        let (now_ns, max_delay_ns) = (arrival.now.as_nanos(), self.pace.max_delay_ns);
        entry.state.set_wide(self.pace.paid_at(entry, now_ns));
        let start = self.pace.start(entry, now_ns);
        calendar.advance(&self.plan, now_ns, entry.state.wide());
        let request = self.request(arrival);
        let offer = calendar.offer(&request, self.plan.sharers_max);
        let (fell_back, remaining) = (offer.place.is_none(), calendar.remaining(&offer));
        let delay_ns = match offer.booking {
            Booking::Now => 0,
            Booking::At(due_ns) => due_ns.saturating_sub(now_ns),
            Booking::TooLate => {
                entry.gpt0 = self.pace.gpt0(max_delay_ns, arrival.cost);
                let Plan { tokens_max, slots_max, .. } = self.plan;
                let judgement = match arrival.cost > tokens_max.saturating_add(slots_max) {
                    true => Judgement::never(remaining),
                    false => Judgement::deny(self.wait_ns(calendar, &request), remaining),
                };
                return Judgement { fell_back, ..judgement };
            }
        };
        if is_booked {
            calendar.take_up(&offer);
            debug_assert!(calendar.is_sound());
        }
        entry.gpt0 = self.pace.gpt0(delay_ns, arrival.cost);
        entry.state.set_wide(start.saturating_add(self.pace.time(arrival.cost)));
        entry.let_through(arrival.cost, arrival.now);
        let verdict = Verdict::after(Duration::from_nanos(delay_ns));
        Judgement { fell_back, ..Judgement::new(verdict, remaining) }
    }

    fn request(&self, arrival: &Arrival) -> SlotRequest {
        SlotRequest {
            now_ns: arrival.now.as_nanos(),
            cost: arrival.cost,
            sharer: arrival.sharer,
            levels: self.levels,
            max_delay_ns: self.pace.max_delay_ns,
        }
    }

    /// The shortest wait, in whole seconds, after which the request would get its slot; any longer wait works too. If
    /// this wait exceeds [`LOOK_AHEAD_S`], the longest possible wait is returned. The wait is usually short, so the
    /// steps double until the wait is long enough, and then halve.
    fn wait_ns(&self, calendar: &Calendar, request: &SlotRequest) -> u64 {
        // After this time, every slot that is taken now has passed, and the bucket is full.
        let over_ns = self.pace.max_delay_ns.saturating_add(self.pace.burst_ns);
        let longest_s = over_ns.div_ceil(SECOND_NS).min(LOOK_AHEAD_S);
        let (mut too_short_s, mut first_s, mut step_s) = (0, longest_s + 1, 1);
        while too_short_s + 1 < first_s {
            let is_found = first_s <= longest_s;
            let wait_s =
                if is_found { too_short_s.midpoint(first_s) } else { longest_s.min(too_short_s + step_s) };
            step_s *= 2;
            match calendar.would_come_true(request, wait_s * SECOND_NS, self.plan.sharers_max) {
                true => first_s = wait_s,
                false => too_short_s = wait_s,
            }
        }
        if first_s <= longest_s { first_s * SECOND_NS } else { over_ns }
    }
}
