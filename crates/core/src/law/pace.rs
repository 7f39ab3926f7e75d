//! `pace`: every request gets its exact slot on arrival, from a bucket that may go into debt.
//!
//! ```text
//! slot  = 1 / rate                            the time of one request
//! start = max(full_at, now - burst * slot)    a bucket holds at most its burst; of an older debt, only
//!                                             max_delay is kept when the SLO has changed
//! delay = start + cost * slot - now           pass if it is not positive
//! delay > max_delay: deny, full_at stays;     else full_at = start + cost * slot
//! ```
//! Times are nanoseconds. This is the generic cell rate algorithm (ITU-T I.371), with a wait instead of a refusal;
//! `full_at` is its theoretical arrival time. In any time T at most `burst + rate * T` requests pass. In debt, they
//! leave at least one slot apart.
//!
//! Above an SLO with an assured rate, the debt may be 10 s more: requests that it refuses may pass, and are charged.
//!
//! Requests that leave late do not lower the average rate: the bucket makes up for them, up to its burst.
//!
//! The state is `full_at`, in nanoseconds.

use std::time::Duration;

use crate::base::verdict::Verdict;
use crate::law::admission::Admission;
use crate::law::arrival::Arrival;
use crate::law::aux_state::AuxState;
use crate::law::bucket::{Bucket, MAX_DELAY_DEFAULT};
use crate::law::debt::Debt;
use crate::law::formula::{compared, number, option, time};
use crate::law::judgement::Judgement;
use crate::law::objective::Objective;
use crate::law::options::{OptionError, Options};
use crate::law::pacing::Pacing;
use crate::law::rule::Rule;
use crate::table::Entry;

/// The law `pace` for one objective.
///
/// ```
/// use std::time::Duration;
/// use slowlane_core::{law::{Arrival, Law, Objective, Options}, table::Entry, base::time::Timestamp, base::verdict::Verdict};
///
/// // 10/s with a burst of 10: eleven ask at once, the last waits a tenth of a second.
/// let objective = Objective { burst: 10, rate: "10/s".parse().unwrap() };
/// let law = Law::new("pace", objective, Options::new([("max_delay", "5s")])).unwrap();
/// let (mut entry, arrival) = (Entry::default(), Arrival::at(Timestamp::from_millis(1_000_000)));
/// for remaining in (0..10).rev() {
///     let judgement = law.judge(&mut entry, None, &arrival);
///     assert_eq!((judgement.verdict, judgement.remaining), (Verdict::Pass, remaining));
/// }
/// assert_eq!(law.judge(&mut entry, None, &arrival).verdict, Verdict::Delay(Duration::from_millis(100)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    pub(super) bucket: Bucket,
    pub(super) max_delay_ns: u64,
    debt: Debt,
}

impl Pace {
    pub(super) fn from_options(objective: Objective, options: &mut Options) -> Result<Pace, OptionError> {
        let max_delay = options.duration("max_delay")?.unwrap_or(MAX_DELAY_DEFAULT);
        Ok(Pace {
            bucket: Bucket::new(objective),
            max_delay_ns: max_delay.as_nanos() as u64,
            debt: Debt::NONE,
        })
    }
}

impl Rule for Pace {
    fn judge(&self, entry: &mut Entry, _: Option<&mut AuxState>, arrival: &Arrival) -> Judgement {
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
                // The debt shrinks by one second per second.
                false => Judgement::deny(delay_ns - self.max_delay_ns, remaining),
            };
        }
        entry.state.set_wide(full_at);
        entry.let_through(arrival.cost, arrival.now);
        let remaining = self.bucket.requests(now_ns.saturating_sub(full_at));
        Judgement::new(Verdict::after(Duration::from_nanos(delay_ns)), remaining)
    }

    fn explain(
        &self,
        objective: &Objective,
        entry: &Entry,
        _: Option<&AuxState>,
        arrival: &Arrival,
    ) -> String {
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

    /// Returns the slots of a request. Requests behind it keep their slots; the next arrival finds a shorter queue.
    fn take_back(&self, entry: &mut Entry, _: Option<&mut AuxState>, gone: &Admission) {
        entry.state.set_wide(entry.state.wide().saturating_sub(self.bucket.time(gone.cost)));
    }

    fn tat(&self, entry: &Entry, now_ns: u64) -> Option<u64> {
        Some(self.start(&mut { *entry }, now_ns).saturating_add(self.bucket.burst_ns))
    }

    fn owing(&self) -> Option<Self> {
        Some(Self { debt: Debt::OWED, ..*self })
    }

    fn can_owe(&self) -> bool {
        !self.debt.is_none()
    }

    fn add_debt(&self, entry: &mut Entry, arrival: &Arrival) {
        entry.ask(arrival.cost, arrival.now);
        let full_at =
            self.start(entry, arrival.now.as_nanos()).saturating_add(self.bucket.time(arrival.cost));
        let full_at = full_at.min(self.debt_max(arrival.now.as_nanos()));
        entry.state.set_wide(full_at);
        entry.gpt0 = self.bucket.milli_clients(full_at.saturating_sub(arrival.now.as_nanos()));
        entry.let_through(arrival.cost, arrival.now);
    }

    /// Until the bucket is full again, from the deepest debt.
    fn memory(&self) -> Duration {
        let debt_ns = self.max_delay_ns.saturating_add(self.debt.max_ns);
        Duration::from_nanos(self.bucket.burst_ns.saturating_add(debt_ns))
    }

    fn max_delay(&self) -> Option<Duration> {
        Some(Duration::from_nanos(self.max_delay_ns))
    }

    fn pacing(&self) -> Option<Pacing> {
        Some(Pacing::new(self.bucket, Duration::from_nanos(self.max_delay_ns)))
    }

    fn split(&self, nodes: u32) -> Self {
        Self { bucket: self.bucket.split(nodes), ..*self }
    }
}

impl Pace {
    /// When the next slot begins. Debt beyond the deepest is forgiven.
    pub(super) fn start(&self, entry: &mut Entry, now_ns: u64) -> u64 {
        let full_at = entry.state.wide().min(self.debt_max(now_ns));
        entry.state.set_wide(full_at);
        full_at.max(now_ns.saturating_sub(self.bucket.burst_ns))
    }

    /// The moment at which the deepest debt is paid: `max_delay`, and what it may owe beyond.
    fn debt_max(&self, now_ns: u64) -> u64 {
        now_ns.saturating_add(self.max_delay_ns).saturating_add(self.debt.max_ns)
    }
}
