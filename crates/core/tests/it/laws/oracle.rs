//! The oracle for tests of the laws: it keeps every admission, and applies definitions to the whole list.

use std::time::Duration;

use proptest::prelude::*;
use slowlane_core::base::{Ending, Sample, SloId, Ticket, Timestamp, Verdict};
use slowlane_core::law::{Arrival, AuxState, Judgement, Law, Objective, Options};
use slowlane_core::policy::Slo;
use slowlane_core::table::{Entry, State};
use slowlane_core::throttle::{Ended, Throttle};

pub fn objective(burst: u32, rate: &str) -> Objective {
    Objective { burst, rate: rate.parse().unwrap() }
}

/// A law by its name, with the options that differ from the defaults.
pub fn law(name: &str, burst: u32, rate: &str, options: &[(&str, &str)]) -> Law {
    Law::new(name, objective(burst, rate), Options::new(options.iter().copied())).unwrap()
}

pub const SECOND_NS: u64 = 1_000_000_000;

/// Some day in 2023, at the beginning of a window of whatever length a test uses: a multiple of all up to 10 s.
pub const START_NS: u64 = 1_700_002_800 * SECOND_NS;

pub fn at_ms(ms: u64) -> Timestamp {
    Timestamp::from_nanos(START_NS + ms * 1_000_000)
}

pub fn at_ns(ns: u64) -> Timestamp {
    Timestamp::from_nanos(START_NS + ns)
}

/// The `Retry-After` of a verdict, in seconds.
pub fn retry_after_s(verdict: Verdict) -> u32 {
    match verdict {
        Verdict::Deny { retry_after_s } => retry_after_s,
        other => panic!("{other:?} is no denial"),
    }
}

/// Reports the end of a request. Whether it was counted until then.
pub fn ends(throttle: &Throttle, ticket: &Ticket, now: Timestamp) -> bool {
    throttle.end(&throttle.policy(), ticket, &Ending::default(), now) == Ended::Counted
}

/// One SLO with its whole state for one key.
#[derive(Clone, Debug, PartialEq)]
pub struct Subject {
    pub slo: Slo,
    pub law: Law,
    pub entry: Entry,
    pub aux: Option<AuxState>,
}

impl Subject {
    /// Reads a line of `slo.map`.
    pub fn new(line: &str) -> Subject {
        Subject::parse(line).unwrap_or_else(|faults| panic!("{line}: {faults}"))
    }

    pub fn parse(line: &str) -> Result<Subject, String> {
        let slo = Slo::parse(SloId::DEFAULT, line).map_err(|faults| faults[0].to_string())?;
        let law = slo.law;
        Ok(Subject { slo, law, entry: Entry::default(), aux: law.aux() })
    }

    /// The same SLO in its initial state.
    pub fn fresh(&self) -> Subject {
        Subject { entry: Entry::default(), aux: self.law.aux(), ..self.clone() }
    }

    pub fn judge(&mut self, arrival: Arrival) -> Judgement {
        self.law.judge(&mut self.entry, self.aux.as_mut(), &arrival)
    }

    pub fn ask(&mut self, now: Timestamp) -> Verdict {
        self.judge(Arrival::at(now)).verdict
    }

    pub fn ask_of(&mut self, sharer: u64, now: Timestamp) -> Verdict {
        self.judge(Arrival { sharer, ..Arrival::at(now) }).verdict
    }

    pub fn ask_for(&mut self, cost: u32, now: Timestamp) -> Verdict {
        self.judge(Arrival { cost, ..Arrival::at(now) }).verdict
    }

    /// The judgement that a request would get, without a change of state.
    pub fn would(&self, arrival: Arrival) -> Judgement {
        self.clone().judge(arrival)
    }

    pub fn take_back(&mut self, cost: u32, now: Timestamp, due: Timestamp) {
        self.law.take_back(
            &mut self.entry,
            self.aux.as_mut(),
            &slowlane_core::law::Admission { cost, due, now },
        );
    }

    pub fn end(&mut self, cost: u32, begun: Timestamp, now: Timestamp) {
        self.law.end(&mut self.entry, &slowlane_core::law::Admission { cost, due: begun, now });
    }

    pub fn slot_ns(&self) -> u64 {
        self.slo.objective.rate.slot().as_nanos() as u64
    }
}

/// A request that was let through.
#[derive(Clone, Copy, Debug)]
pub struct Admission {
    pub asked_ns: u64,
    pub left_ns: u64,
    pub cost: u32,
}

/// All admissions of a test, with their costs.
#[derive(Clone, Debug, Default)]
pub struct Admissions {
    pub list: Vec<Admission>,
}

impl Admissions {
    /// Keeps and returns the admission, if the request is let through.
    pub fn note(&mut self, arrival: Arrival, verdict: Verdict) -> Option<Admission> {
        let (asked_ns, cost) = (arrival.now.as_nanos(), arrival.cost);
        let left_ns = (arrival.now + verdict.wait()).as_nanos();
        let admission = verdict.is_let_through().then_some(Admission { asked_ns, left_ns, cost });
        self.list.extend(admission);
        admission
    }

    /// The most requests that leave in any window of `window_ns`, which includes its start and excludes its end.
    pub fn most_in(&self, window_ns: u64) -> u64 {
        let starts = self.list.iter().map(|first| first.left_ns);
        starts.map(|start| self.count(start, start.saturating_add(window_ns))).max().unwrap_or(0)
    }

    /// The requests that left from `start` to before `end`.
    pub fn count(&self, start_ns: u64, end_ns: u64) -> u64 {
        let inside = self.list.iter().filter(|one| (start_ns..end_ns).contains(&one.left_ns));
        inside.map(|one| u64::from(one.cost)).sum()
    }

    /// The first time T, of those that begin and end with somebody leaving, in which more than
    /// `burst + T / slot` requests came and left.
    pub fn past_bucket(&self, burst: u64, slot_ns: u64) -> Option<(Duration, u64)> {
        let mut list = self.list.clone();
        list.sort_by_key(|one| one.left_ns);
        for (place, first) in list.iter().enumerate() {
            let mut sum = 0;
            for last in &list[place..] {
                // One that came before waited in an earlier time for its slots.
                if last.cost > 1 && last.asked_ns < first.left_ns {
                    continue;
                }
                sum += u64::from(last.cost);
                let time_ns = last.left_ns - first.left_ns;
                if sum > burst + time_ns / slot_ns {
                    return Some((Duration::from_nanos(time_ns), sum));
                }
            }
        }
        None
    }
}

/// One request of a schedule, so long after the one before it.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    pub pause_ns: u64,
    pub cost: u32,
    pub sharer: u64,
    pub sample: u64,
}

/// Requests at once, close by and far apart, most of them of cost 1 and of four sharers.
pub fn schedule(most: usize, cost_max: u32) -> impl Strategy<Value = Vec<Step>> {
    let pause = prop_oneof![
        4 => Just(0),
        2 => 0..2_000_000u64,
        4 => 0..200_000_000u64,
        1 => (0..30u64).prop_map(|tenths| tenths * SECOND_NS / 10),
        1 => 0..4_000_000_000u64,
    ];
    let cost = prop_oneof![3 => Just(1), 1 => 1..=cost_max];
    let step = (pause, cost, 0..4u64, any::<u64>());
    let step = step.prop_map(|(pause_ns, cost, sharer, sample)| Step { pause_ns, cost, sharer, sample });
    prop::collection::vec(step, 1..most)
}

/// The arrivals of a schedule.
pub fn arrivals(steps: &[Step]) -> impl Iterator<Item = Arrival> {
    let mut now_ns = START_NS;
    steps.iter().map(move |step| {
        now_ns += step.pause_ns;
        arrival(step, Timestamp::from_nanos(now_ns))
    })
}

/// The arrivals of a schedule, but every other pause is a multiple of `unit_ns`, plus or minus a nanosecond. It finds
/// off-by-one errors of a law.
pub fn close_arrivals(steps: &[Step], unit_ns: u64) -> Vec<Arrival> {
    let close = |step: &Step| match step.sample % 2 {
        0 => {
            Step { pause_ns: (step.pause_ns % 4 * unit_ns + step.sample / 2 % 3).saturating_sub(1), ..*step }
        }
        _ => *step,
    };
    let steps: Vec<Step> = steps.iter().map(close).collect();
    arrivals(&steps).collect()
}

pub fn arrival(step: &Step, now: Timestamp) -> Arrival {
    Arrival {
        sample: Sample::from_bits(step.sample),
        cost: step.cost,
        sharer: step.sharer,
        ..Arrival::at(now)
    }
}

/// A row of random bits.
pub fn garbage() -> impl Strategy<Value = Entry> {
    let word = || prop_oneof![2 => any::<u32>(), 1 => Just(0), 1 => Just(u32::MAX), 1 => 0..100u32];
    // Half of the moments lie about now.
    let wide = prop_oneof![
        any::<u64>(),
        (0..7_200 * SECOND_NS).prop_map(|off| START_NS - 3_600 * SECOND_NS + off),
        (word(), word()).prop_map(|(high, low)| u64::from(high) << 32 | u64::from(low)),
    ];
    let ctr = || (word(), word(), word());
    (wide, word(), word(), word(), ctr(), ctr()).prop_map(|(wide, narrow, http_req_cnt, gpt0, gpc0, gpc1)| {
        let mut state = State::default();
        state.set_wide(wide);
        state.set_narrow(narrow);
        let mut entry = Entry { state, http_req_cnt, gpt0, ..Entry::default() };
        for (rate, (curr_tick, curr_ctr, prev_ctr)) in
            [(&mut entry.gpc0_rate, gpc0), (&mut entry.gpc1_rate, gpc1)]
        {
            (rate.curr_tick, rate.curr_ctr, rate.prev_ctr) = (curr_tick & !1, curr_ctr, prev_ctr);
        }
        entry
    })
}

/// Closed-loop clients in virtual time. `step(now)` gives the time that an answer takes, in ms.
pub fn closed_loop(clients: usize, until_ms: u64, mut step: impl FnMut(u64) -> u64) {
    let mut next: Vec<u64> = (0..clients as u64).collect();
    loop {
        let first = (0..clients).min_by_key(|&client| next[client]).unwrap();
        let now = next[first];
        if now >= until_ms {
            return;
        }
        // An answer takes a millisecond at least.
        next[first] = now + step(now).max(1);
    }
}
