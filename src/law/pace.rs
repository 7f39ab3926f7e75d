//! `pace`: every request gets its exact slot on arrival, from a bucket that may go into debt.
//!
//! ```text
//! slot  = 1 / rate                            the time that one request takes up
//! start = max(full_at, now - burst * slot)    a bucket holds no more than its burst, and owes no more than
//!                                             max_delay, whatever an SLO before this one let it owe
//! delay = start + slot - now                  pass if it is not positive
//! delay > max_delay: deny, full_at stays;     else full_at = start + slot
//! ```
//! Times are nanoseconds. This is the generic cell rate algorithm (ITU-T I.371, its theoretical arrival
//! time is `full_at` here) with a wait where that has a refusal. In any time T it lets through at most
//! `burst + rate * T` requests, and once in debt they leave at least one slot apart.
//!
//! Requests that leave late do not lower the mean: the bucket makes up for them, as far as its burst goes.

use std::time::Duration;

use crate::law::{Objective, OptionError, Options};
use crate::table::Entry;
use crate::time::Timestamp;
use crate::verdict::Verdict;

/// Longer than this a client seldom waits, and a slot spent on one that has left is lost to the others.
const MAX_DELAY_DEFAULT: Duration = Duration::from_secs(5);

/// The law `pace` for one objective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    slot_ns: u64,
    burst_ns: u64,
    max_delay_ns: u64,
}

impl Pace {
    /// ```
    /// use std::time::Duration;
    /// use slowlane::{law::{Objective, Pace}, table::Entry, time::Timestamp, verdict::Verdict};
    ///
    /// // 10/s with a burst of 10: eleven ask at once, the last waits a tenth of a second.
    /// let objective = Objective { burst: 10, rate: "10/s".parse().unwrap() };
    /// let pace = Pace::new(objective, Duration::from_secs(5));
    /// let (mut entry, now) = (Entry::default(), Timestamp::from_millis(1_000_000));
    /// for _ in 0..10 {
    ///     assert_eq!(pace.judge(&mut entry, now), Verdict::Pass);
    /// }
    /// assert_eq!(pace.judge(&mut entry, now), Verdict::Delay(Duration::from_millis(100)));
    /// ```
    pub fn new(objective: Objective, max_delay: Duration) -> Pace {
        let slot_ns = objective.rate.slot().as_nanos() as u64;
        let burst_ns = slot_ns.saturating_mul(u64::from(objective.burst));
        Pace { slot_ns, burst_ns, max_delay_ns: max_delay.as_nanos() as u64 }
    }

    pub(super) fn from_options(objective: Objective, options: &mut Options) -> Result<Pace, OptionError> {
        let max_delay = options.duration("max_delay")?.unwrap_or(MAX_DELAY_DEFAULT);
        Ok(Pace::new(objective, max_delay))
    }

    pub fn judge(&self, entry: &mut Entry, now: Timestamp) -> Verdict {
        entry.http_req_cnt = entry.http_req_cnt.wrapping_add(1);
        entry.gpc0_rate.add(1, now.ticks_ms());

        let now_ns = now.as_nanos();
        entry.state = entry.state.min(now_ns.saturating_add(self.max_delay_ns));
        let start = entry.state.max(now_ns.saturating_sub(self.burst_ns));
        let full_at = start.saturating_add(self.slot_ns);
        let delay_ns = full_at.saturating_sub(now_ns);
        entry.gpt0 = self.milli_clients(delay_ns);
        if delay_ns > self.max_delay_ns {
            return Verdict::Deny { retry_after_s: self.retry_after_s(delay_ns) };
        }
        entry.state = full_at;
        entry.gpc1_rate.add(1, now.ticks_ms());
        Verdict::after(Duration::from_nanos(delay_ns))
    }

    /// Gives one slot back. The requests behind keep the slots they were told; the next to come finds the
    /// queue one shorter.
    pub(super) fn take_back(&self, entry: &mut Entry) {
        entry.state = entry.state.saturating_sub(self.slot_ns);
    }

    /// Until the bucket is full again, from the deepest debt.
    pub(super) fn memory(&self) -> Duration {
        Duration::from_nanos(self.burst_ns.saturating_add(self.max_delay_ns))
    }

    /// So many clients, each asking again as it is answered, would make for this delay.
    fn milli_clients(&self, delay_ns: u64) -> u32 {
        let milli_clients = u128::from(delay_ns) * 1_000 / u128::from(self.slot_ns);
        u32::try_from(milli_clients).unwrap_or(u32::MAX).max(1_000)
    }

    /// The debt shrinks by a second each second.
    fn retry_after_s(&self, delay_ns: u64) -> u32 {
        let seconds = (delay_ns - self.max_delay_ns).div_ceil(1_000_000_000);
        u32::try_from(seconds).unwrap_or(u32::MAX)
    }
}
