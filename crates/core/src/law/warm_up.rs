//! `warm-up`: a cold bucket starts at a fraction of its rate and climbs to the full rate.
//!
//! ```text
//! stable    = 1 / rate                    the time between two requests of a warm bucket
//! coldest   = cold / rate                 of a cold one
//! threshold = warmup / (2 * stable)       permits stored by idling; below it the bucket is warm
//! max       = threshold + 2 * warmup / (stable + coldest)
//! interval(stored) = stable + max(0, stored - threshold) * (coldest - stable) / (max - threshold)
//!
//! idle for t: stored = min(max, stored + t * max / warmup)
//! a request waits until next_free; then next_free moves on by the time of the permits that it takes:
//! the interval integrated over `stored`, and `stable` for each permit beyond it
//! a wait over max_delay: deny
//! ```
//! Guava's `SmoothWarmingUp` and Sentinel's warm-up with a rate limit. Under full load the bucket takes `warmup` to
//! warm up, and as long to cool down. It keeps its spacing from the first request on, and each request pays for the one
//! before it. The burst only bounds the cost of one request. Work that is returned has the time of the warm rate.
//!
//! The state is `next_free` in nanoseconds, and `stored` in 256ths of a permit, which bounds it to 16 million.

use std::time::Duration;

use crate::base::{Timestamp, Verdict};
use crate::law::bucket::{Bucket, MAX_DELAY_DEFAULT, WORK_DEBT_MAX};
use crate::law::formula::{compared, option, time};
use crate::law::{Admission, Arrival, AuxState, Judgement, Objective, OptionError, Options, Rule, Scale};
use crate::table::Entry;

const WARMUP_DEFAULT: Duration = Duration::from_secs(10);

/// Guava's and Sentinel's factor.
const COLD_DEFAULT: f64 = 3.0;

const STORED_UNITS: f64 = 256.0;

const STORED_MAX: f64 = (1 << 24) as f64 - 1.0;

/// The law `warm-up` for one objective. Times are nanoseconds.
///
/// ```
/// use slowlane_core::{law::{Arrival, Law, Objective, Options}, table::Entry, base::Timestamp};
///
/// // 10/s, three times slower when cold: the first passes, and the second waits 0.3 s.
/// let objective = Objective { burst: 1, rate: "10/s".parse().unwrap() };
/// let law = Law::new("warm-up", objective, Options::new([("warmup", "100s")])).unwrap();
/// let (mut entry, arrival) = (Entry::default(), Arrival::at(Timestamp::from_millis(9_000)));
/// assert_eq!(law.judge(&mut entry, None, &arrival).verdict.delay_ms(), 0);
/// assert_eq!(law.judge(&mut entry, None, &arrival).verdict.delay_ms(), 300);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WarmUp {
    stable: f64,
    threshold: f64,
    max: f64,
    /// Nanoseconds of interval per stored permit.
    slope: f64,
    bucket: Bucket,
    cost_max: u32,
    /// The time of the most expensive request in a cold bucket.
    taken_max_ns: u64,
    max_delay_ns: u64,
    /// The maximum debt beyond the longest delay. 0: it counts requests.
    debt_ns: u64,
    warmup: Duration,
}

impl WarmUp {
    pub(super) fn from_options(objective: Objective, options: &mut Options) -> Result<WarmUp, OptionError> {
        let warmup = options.duration("warmup")?.unwrap_or(WARMUP_DEFAULT);
        let cold = options.number("cold", 1.0..=1_000.0)?.unwrap_or(COLD_DEFAULT);
        let max_delay = options.duration("max_delay")?.unwrap_or(MAX_DELAY_DEFAULT);

        let bucket = Bucket::new(objective);
        let (stable, warmup_ns) = (bucket.slot_ns as f64, warmup.as_nanos() as f64);
        let coldest = stable * cold;
        let threshold = warmup_ns / (2.0 * stable);
        let max = threshold + 2.0 * warmup_ns / (stable + coldest);
        if max > STORED_MAX {
            let reason = "stores more than 16 million permits: make it shorter".into();
            return Err(OptionError::Rate { name: "warmup", given: warmup, rate: objective.rate, reason });
        }
        let slope = if max > threshold { (coldest - stable) / (max - threshold) } else { 0.0 };
        let cost_max = objective.burst.max(1);
        Ok(WarmUp {
            stable,
            threshold,
            max,
            slope,
            bucket,
            cost_max,
            taken_max_ns: (coldest * f64::from(cost_max)) as u64,
            max_delay_ns: max_delay.as_nanos() as u64,
            debt_ns: 0,
            warmup,
        })
    }

    /// The law with room for the debt of work, whose cost is known only afterwards.
    pub(super) fn owing_work(self) -> WarmUp {
        WarmUp { debt_ns: WORK_DEBT_MAX.as_nanos() as u64, ..self }
    }
}

impl Rule for WarmUp {
    fn judge(&self, entry: &mut Entry, _: Option<&mut AuxState>, arrival: &Arrival) -> Judgement {
        entry.ask(arrival.cost, arrival.now);
        let now_ns = arrival.now.as_nanos();
        let (next_free, stored) = self.cooled(entry, now_ns);
        let wait_ns = next_free - now_ns;
        let one_ns = if self.debt_ns > 0 { self.bucket.time(arrival.cost) } else { self.bucket.slot_ns };
        entry.gpt0 = self.bucket.milli_clients(wait_ns, one_ns);
        if arrival.cost > self.cost_max {
            return Judgement::never(u32::from(wait_ns == 0));
        }
        if wait_ns > self.max_delay_ns {
            // Debt beyond the maximum is forgiven.
            entry.state.set_wide(next_free);
            return Judgement::deny(wait_ns - self.max_delay_ns, 0);
        }
        self.charge(entry, (next_free, stored), arrival.cost);
        entry.let_through(arrival.cost, arrival.now);
        Judgement::new(Verdict::after(Duration::from_nanos(wait_ns)), 0)
    }

    fn explain(&self, scale: &Scale, entry: &Entry, _: Option<&AuxState>, arrival: &Arrival) -> String {
        let (now_ns, cost) = (arrival.now.as_nanos(), arrival.cost);
        if cost > self.cost_max {
            return format!("cost {} > burst {}", scale.count(cost), scale.count(self.cost_max));
        }
        let (next_free, stored) = self.cooled(entry, now_ns);
        let wait_ns = next_free - now_ns;
        let (wait, within) = (time(wait_ns), compared(wait_ns <= self.max_delay_ns));
        let max_delay = option(self.max_delay_ns);
        let temperature = format!(
            "stored {} of {} permits, warm below {}",
            scale.count(stored),
            scale.count(self.max),
            scale.count(self.threshold)
        );
        match wait_ns <= self.max_delay_ns {
            true => {
                let (taken, cost) = (time(self.take(stored, f64::from(cost)).0), scale.count(cost));
                format!(
                    "next_free in {wait} {within} max_delay {max_delay}; {temperature}: cost {cost} takes {taken}"
                )
            }
            false => format!("next_free in {wait} {within} max_delay {max_delay}; {temperature}"),
        }
    }

    /// Returns the time of a request, at the warm rate.
    fn take_back(&self, entry: &mut Entry, _: Option<&mut AuxState>, gone: &Admission) {
        entry.state.set_wide(entry.state.wide().saturating_sub(self.bucket.time(gone.cost)));
    }

    fn settles(&self) -> bool {
        true
    }

    fn charge_more(&self, entry: &mut Entry, cost: u32, now: Timestamp) {
        let cooled = self.cooled(entry, now.as_nanos());
        self.charge(entry, cooled, cost);
    }

    /// The time until it is as cold as a new bucket.
    fn memory(&self) -> Duration {
        Duration::from_nanos(self.longest_ns()) + self.warmup
    }

    fn max_delay(&self) -> Option<Duration> {
        Some(Duration::from_nanos(self.max_delay_ns))
    }
}

impl WarmUp {
    /// The deepest debt.
    fn longest_ns(&self) -> u64 {
        self.max_delay_ns.saturating_add(self.taken_max_ns).saturating_add(self.debt_ns)
    }

    /// Takes permits from a [cooled](WarmUp::cooled) bucket.
    fn charge(&self, entry: &mut Entry, (next_free, stored): (u64, f64), cost: u32) {
        let (taken_ns, left) = self.take(stored, f64::from(cost));
        entry.state.set_wide(next_free.saturating_add(taken_ns));
        entry.state.set_narrow((left * STORED_UNITS).round() as u32);
    }

    /// When the next request may leave, and the permits stored until now.
    fn cooled(&self, entry: &Entry, now_ns: u64) -> (u64, f64) {
        let stored = f64::from(entry.state.narrow()) / STORED_UNITS;
        // After a step back of the clock, or under an earlier SLO, the debt may be too large: bound it.
        let next_free = entry.state.wide().min(now_ns.saturating_add(self.longest_ns()));
        match now_ns.checked_sub(next_free) {
            // A new bucket is fully cold.
            _ if entry.state.wide() == 0 => (now_ns, self.max),
            None => (next_free, stored.min(self.max)),
            Some(idle_ns) => {
                let warmup_ns = (self.warmup.as_nanos() as f64).max(1.0);
                (now_ns, (stored + idle_ns as f64 * self.max / warmup_ns).min(self.max))
            }
        }
    }

    /// The time of these permits, and the stored permits that are left.
    fn take(&self, stored: f64, permits: f64) -> (u64, f64) {
        let from_stored = permits.min(stored);
        let above = (stored - self.threshold).max(0.0);
        let from_above = from_stored.min(above);
        let interval = |above: f64| self.stable + above * self.slope;
        let slow = (interval(above) + interval(above - from_above)) / 2.0 * from_above;
        let taken_ns = slow + self.stable * (permits - from_above);
        (taken_ns.round() as u64, stored - from_stored)
    }
}
