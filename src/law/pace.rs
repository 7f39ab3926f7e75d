//! `pace`: every request gets its exact slot on arrival, from a bucket that may go into debt.
//!
//! ```text
//! slot  = 1 / rate                            the time that one request takes up
//! start = max(full_at, now - burst * slot)    a bucket holds no more than its burst, and owes no more than
//!                                             max_delay, whatever an SLO before this one let it owe
//! delay = start + cost * slot - now           pass if it is not positive
//! delay > max_delay: deny, full_at stays;     else full_at = start + cost * slot
//! ```
//! Times are nanoseconds. This is the generic cell rate algorithm (ITU-T I.371, its theoretical arrival
//! time is `full_at` here) with a wait where that has a refusal. In any time T it lets through at most
//! `burst + rate * T` requests, and once in debt they leave at least one slot apart.
//!
//! Requests that leave late do not lower the mean: the bucket makes up for them, as far as its burst goes.
//!
//! The state is `full_at`, in nanoseconds.

use std::time::Duration;

use crate::base::verdict::Verdict;
use crate::law::bucket::Bucket;
use crate::law::formula::{compared, number, option, time};
use crate::law::{Arrival, Judgement, Objective, OptionError, Options};
use crate::table::Entry;

/// Longer than this a client seldom waits, and a slot spent on one that has left is lost to the others.
pub(super) const MAX_DELAY_DEFAULT: Duration = Duration::from_secs(5);

/// The law `pace` for one objective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    pub(super) bucket: Bucket,
    pub(super) max_delay_ns: u64,
}

impl Pace {
    /// ```
    /// use std::time::Duration;
    /// use slowlane::{law::{Arrival, Objective, Pace}, table::Entry, base::time::Timestamp, base::verdict::Verdict};
    ///
    /// // 10/s with a burst of 10: eleven ask at once, the last waits a tenth of a second.
    /// let objective = Objective { burst: 10, rate: "10/s".parse().unwrap() };
    /// let pace = Pace::new(objective, Duration::from_secs(5));
    /// let (mut entry, arrival) = (Entry::default(), Arrival::at(Timestamp::from_millis(1_000_000)));
    /// for remaining in (0..10).rev() {
    ///     let judgement = pace.judge(&mut entry, &arrival);
    ///     assert_eq!((judgement.verdict, judgement.remaining), (Verdict::Pass, remaining));
    /// }
    /// assert_eq!(pace.judge(&mut entry, &arrival).verdict, Verdict::Delay(Duration::from_millis(100)));
    /// ```
    pub fn new(objective: Objective, max_delay: Duration) -> Pace {
        Pace { bucket: Bucket::new(objective), max_delay_ns: max_delay.as_nanos() as u64 }
    }

    pub(super) fn from_options(objective: Objective, options: &mut Options) -> Result<Pace, OptionError> {
        let max_delay = options.duration("max_delay")?.unwrap_or(MAX_DELAY_DEFAULT);
        Ok(Pace::new(objective, max_delay))
    }

    pub fn judge(&self, entry: &mut Entry, arrival: &Arrival) -> Judgement {
        entry.ask(arrival.cost, arrival.now);
        let now_ns = arrival.now.as_nanos();
        let taken_ns = self.bucket.time(arrival.cost);
        let start = self.start(entry, now_ns);
        let full_at = start.saturating_add(taken_ns);
        let delay_ns = full_at.saturating_sub(now_ns);
        entry.gpt0 = self.bucket.milli_clients(delay_ns);
        if delay_ns > self.max_delay_ns {
            let remaining = self.bucket.requests(now_ns.saturating_sub(start));
            return match taken_ns.saturating_sub(self.bucket.burst_ns) > self.max_delay_ns {
                true => Judgement::never(remaining),
                // The debt shrinks by a second each second.
                false => Judgement::deny(delay_ns - self.max_delay_ns, remaining),
            };
        }
        entry.state.set_wide(full_at);
        entry.let_through(arrival.cost, arrival.now);
        let remaining = self.bucket.requests(now_ns.saturating_sub(full_at));
        Judgement::new(Verdict::after(Duration::from_nanos(delay_ns)), remaining)
    }

    pub(super) fn explain(&self, objective: &Objective, entry: &Entry, arrival: &Arrival) -> String {
        let (now_ns, bucket) = (arrival.now.as_nanos(), self.bucket);
        let start = self.start(&mut { *entry }, now_ns);
        let used = number(bucket.parts(start.saturating_add(bucket.burst_ns).saturating_sub(now_ns)));
        let (cost, Objective { burst, rate }) = (arrival.cost, objective);
        let delay_ns = start.saturating_add(bucket.time(cost)).saturating_sub(now_ns);
        if delay_ns == 0 {
            return format!("used {used} + cost {cost} <= burst {burst}");
        }
        let (over, delay) = (number(bucket.parts(delay_ns)), time(delay_ns));
        let (compared, max_delay) = (compared(delay_ns <= self.max_delay_ns), option(self.max_delay_ns));
        format!(
            "used {used} + cost {cost} - burst {burst} = {over} over; \
             delay = {over} / {rate} = {delay} {compared} max_delay {max_delay}"
        )
    }

    /// When the next slot begins; what is owed past `max_delay` is forgiven.
    pub(super) fn start(&self, entry: &mut Entry, now_ns: u64) -> u64 {
        let full_at = entry.state.wide().min(now_ns.saturating_add(self.max_delay_ns));
        entry.state.set_wide(full_at);
        full_at.max(now_ns.saturating_sub(self.bucket.burst_ns))
    }

    /// Gives the slots of a request back. The requests behind keep the slots they were told; the next to come
    /// finds the queue shorter.
    pub(super) fn take_back(&self, entry: &mut Entry, cost: u32) {
        entry.state.set_wide(entry.state.wide().saturating_sub(self.bucket.time(cost)));
    }

    /// Until the bucket is full again, from the deepest debt.
    pub(super) fn memory(&self) -> Duration {
        Duration::from_nanos(self.bucket.burst_ns.saturating_add(self.max_delay_ns))
    }
}
