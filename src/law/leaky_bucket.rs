//! `leaky-bucket`: the meter. A request is water poured into a bucket with a hole, and refused where it would
//! overflow.
//!
//! ```text
//! drop  = 1 / rate                            the time in which one request drains away
//! water = max(0, empty_at - now)
//! water + cost * drop > burst * drop: deny;   else empty_at = now + water + cost * drop
//! ```
//! Times are nanoseconds. It is the token bucket mirrored, water for missing tokens, and gives the same verdicts
//! (J. Turner, "New directions in communications", 1986; here as in "Throttling Solutions in Standalone and
//! Distributed Scenarios", J. Fu). With N the burst and T the time in which a full bucket drains it lets through at
//! most 2N in any time T: N at once, and N as they drain. A burst of 0 counts as 1.
//!
//! The state is `empty_at`, in nanoseconds.

use std::time::Duration;

use crate::base::verdict::Verdict;
use crate::law::bucket::Bucket;
use crate::law::formula::{number, time};
use crate::law::{Arrival, Judgement, Objective};
use crate::table::Entry;

/// The law `leaky-bucket` for one objective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeakyBucket {
    bucket: Bucket,
}

impl LeakyBucket {
    /// ```
    /// use slowlane::{law::{Arrival, LeakyBucket, Objective}, table::Entry, base::time::Timestamp, base::verdict::Verdict};
    ///
    /// // 10/s with room for 2: the third overflows until a tenth of a second has drained one.
    /// let law = LeakyBucket::new(Objective { burst: 2, rate: "10/s".parse().unwrap() });
    /// let mut entry = Entry::default();
    /// let mut ask = |ms| law.judge(&mut entry, &Arrival::at(Timestamp::from_millis(ms))).verdict;
    /// assert_eq!([ask(9_000), ask(9_000)], [Verdict::Pass; 2]);
    /// assert_eq!(ask(9_099), Verdict::Deny { retry_after_s: 1 });
    /// assert_eq!(ask(9_100), Verdict::Pass);
    /// ```
    pub fn new(objective: Objective) -> LeakyBucket {
        LeakyBucket { bucket: Bucket::of_one_at_least(objective) }
    }

    pub fn judge(&self, entry: &mut Entry, arrival: &Arrival) -> Judgement {
        entry.ask(arrival.cost, arrival.now);
        let now_ns = arrival.now.as_nanos();
        let (room_ns, poured_ns) = (self.bucket.burst_ns, self.bucket.time(arrival.cost));
        // A bucket that was written to later than now is full, and no more than that.
        let water_ns = entry.state.wide().saturating_sub(now_ns).min(room_ns);
        entry.gpt0 = 1_000;
        if water_ns.saturating_add(poured_ns) > room_ns {
            entry.state.set_wide(now_ns.saturating_add(water_ns));
            let remaining = self.bucket.requests(room_ns - water_ns);
            return match poured_ns > room_ns {
                true => Judgement::never(remaining),
                false => Judgement::deny(water_ns + poured_ns - room_ns, remaining),
            };
        }
        entry.state.set_wide(now_ns.saturating_add(water_ns + poured_ns));
        entry.let_through(arrival.cost, arrival.now);
        Judgement::new(Verdict::Pass, self.bucket.requests(room_ns - water_ns - poured_ns))
    }

    pub(super) fn explain(&self, objective: &Objective, entry: &Entry, arrival: &Arrival) -> String {
        let (now_ns, bucket, cost) = (arrival.now.as_nanos(), self.bucket, arrival.cost);
        let water_ns = entry.state.wide().saturating_sub(now_ns).min(bucket.burst_ns);
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

    /// Scoops the water of a request out again.
    pub(super) fn take_back(&self, entry: &mut Entry, cost: u32) {
        entry.state.set_wide(entry.state.wide().saturating_sub(self.bucket.time(cost)));
    }

    /// Until the bucket is empty.
    pub(super) fn memory(&self) -> Duration {
        Duration::from_nanos(self.bucket.burst_ns)
    }
}
