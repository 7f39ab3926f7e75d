//! `leaky-bucket`: the meter. A request pours water into a leaking bucket, and is denied if it would overflow.
//!
//! ```text
//! drop  = 1 / rate                            the time in which one request drains away
//! water = max(0, empty_at - now)
//! water + cost * drop > burst * drop: deny;   else empty_at = now + water + cost * drop
//! ```
//! Times are nanoseconds. It mirrors the token bucket, with water for missing tokens, and gives the same verdicts.
//! Sources: J. Turner, "New directions in communications", 1986; J. Fu, "Throttling Solutions in Standalone and
//! Distributed Scenarios". Let N be the burst and T the time in which a full bucket drains: in any time T at most 2N
//! pass, N at once and N as they drain. A burst of 0 counts as 1.
//!
//! The state is `empty_at`, in nanoseconds.

use std::time::Duration;

use crate::base::verdict::Verdict;
use crate::law::admission::Admission;
use crate::law::arrival::Arrival;
use crate::law::aux_state::AuxState;
use crate::law::bucket::Bucket;
use crate::law::debt::Debt;
use crate::law::formula::{number, time};
use crate::law::judgement::Judgement;
use crate::law::objective::Objective;
use crate::law::options::{OptionError, Options};
use crate::law::pacing::Pacing;
use crate::law::rule::Rule;
use crate::table::Entry;

/// The law `leaky-bucket` for one objective.
///
/// ```
/// use slowlane_core::{law::{Arrival, Law, Objective, Options}, table::Entry, base::time::Timestamp, base::verdict::Verdict};
///
/// // 10/s with room for 2: the third overflows until a tenth of a second has drained one.
/// let objective = Objective { burst: 2, rate: "10/s".parse().unwrap() };
/// let law = Law::new("leaky-bucket", objective, Options::default()).unwrap();
/// let mut entry = Entry::default();
/// let mut ask = |ms| law.judge(&mut entry, None, &Arrival::at(Timestamp::from_millis(ms))).verdict;
/// assert_eq!([ask(9_000), ask(9_000)], [Verdict::Pass; 2]);
/// assert_eq!(ask(9_099), Verdict::Deny { retry_after_s: 1 });
/// assert_eq!(ask(9_100), Verdict::Pass);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeakyBucket {
    bucket: Bucket,
    debt: Debt,
}

impl LeakyBucket {
    pub(super) fn from_options(objective: Objective, _: &mut Options) -> Result<LeakyBucket, OptionError> {
        Ok(LeakyBucket { bucket: Bucket::of_one_at_least(objective), debt: Debt::NONE })
    }
}

impl Rule for LeakyBucket {
    fn judge(&self, entry: &mut Entry, _: Option<&mut AuxState>, arrival: &Arrival) -> Judgement {
        entry.ask(arrival.cost, arrival.now);
        let now_ns = arrival.now.as_nanos();
        let (room_ns, poured_ns) = (self.bucket.burst_ns, self.bucket.time(arrival.cost));
        let water_ns = self.water(entry, now_ns);
        entry.gpt0 = 1_000;
        if water_ns.saturating_add(poured_ns) > room_ns {
            entry.state.set_wide(now_ns.saturating_add(water_ns));
            let remaining = self.bucket.requests(room_ns.saturating_sub(water_ns));
            return match poured_ns > room_ns {
                true => Judgement::never(remaining),
                false => Judgement::deny(water_ns + poured_ns - room_ns, remaining),
            };
        }
        entry.state.set_wide(now_ns.saturating_add(water_ns + poured_ns));
        entry.let_through(arrival.cost, arrival.now);
        Judgement::new(Verdict::Pass, self.bucket.requests(room_ns - water_ns - poured_ns))
    }

    fn explain(
        &self,
        objective: &Objective,
        entry: &Entry,
        _: Option<&AuxState>,
        arrival: &Arrival,
    ) -> String {
        let (now_ns, bucket, cost) = (arrival.now.as_nanos(), self.bucket, arrival.cost);
        let water_ns = self.water(entry, now_ns);
        let level_ns = water_ns.saturating_add(bucket.time(cost));
        let (water, level) = (number(bucket.parts(water_ns)), number(bucket.parts(level_ns)));
        let burst = objective.burst.max(1);
        match level_ns.checked_sub(bucket.burst_ns) {
            None | Some(0) => format!("water {water} + cost {cost} = {level} <= burst {burst}"),
            Some(_) if cost > burst => format!("cost {cost} > burst {burst}"),
            Some(over_ns) => {
                let (over, rate, wait) = (number(bucket.parts(over_ns)), objective.rate, time(over_ns));
                format!(
                    "water {water} + cost {cost} = {level} > burst {burst}; wait = {over} / {rate} = {wait}"
                )
            }
        }
    }

    /// Removes the water of a request.
    fn take_back(&self, entry: &mut Entry, _: Option<&mut AuxState>, gone: &Admission) {
        entry.state.set_wide(entry.state.wide().saturating_sub(self.bucket.time(gone.cost)));
    }

    fn tat(&self, entry: &Entry, now_ns: u64) -> Option<u64> {
        Some(now_ns.saturating_add(self.water(entry, now_ns)))
    }

    fn owing(&self) -> Option<Self> {
        Some(Self { debt: Debt::OWED, ..*self })
    }

    fn can_owe(&self) -> bool {
        !self.debt.is_none()
    }

    fn add_debt(&self, entry: &mut Entry, arrival: &Arrival) {
        entry.ask(arrival.cost, arrival.now);
        let now_ns = arrival.now.as_nanos();
        let water_ns = self.water(entry, now_ns).saturating_add(self.bucket.time(arrival.cost));
        entry.state.set_wide(now_ns.saturating_add(water_ns.min(self.water_max())));
        entry.gpt0 = 1_000;
        entry.let_through(arrival.cost, arrival.now);
    }

    /// Until the bucket is empty.
    fn memory(&self) -> Duration {
        Duration::from_nanos(self.water_max())
    }

    fn pacing(&self) -> Option<Pacing> {
        Some(Pacing::new(self.bucket, Duration::ZERO))
    }

    fn split(&self, nodes: u32) -> Self {
        Self { bucket: self.bucket.split(nodes), ..*self }
    }
}

impl LeakyBucket {
    /// The water in the bucket. After a step back of the clock it is full, but holds no more.
    fn water(&self, entry: &Entry, now_ns: u64) -> u64 {
        entry.state.wide().saturating_sub(now_ns).min(self.water_max())
    }

    /// The most water: the burst, and what it may owe beyond.
    fn water_max(&self) -> u64 {
        self.bucket.burst_ns.saturating_add(self.debt.max_ns)
    }
}
