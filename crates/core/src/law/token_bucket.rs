//! `token-bucket`: a request takes a token, and is denied if there is none.
//!
//! ```text
//! slot  = 1 / rate                            the time in which one token comes
//! start = max(full_at, now - burst * slot)    the bucket holds at most `burst` tokens
//! start + cost * slot > now: deny;            else full_at = start + cost * slot
//! tokens = (now - full_at) / slot
//! ```
//! Times are nanoseconds. This is the generic cell rate algorithm (ITU-T I.371) in its usual form, with a refusal.
//! In any time T at most `burst + rate * T` requests pass. A burst of 0 counts as 1.
//!
//! The state is `full_at`, in nanoseconds: the moment at which the missing tokens would have come.

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

/// The law `token-bucket` for one objective.
///
/// ```
/// use slowlane_core::{law::{Arrival, Law, Objective, Options}, table::Entry, base::time::Timestamp, base::verdict::Verdict};
///
/// // 10/s with a burst of 2: two pass, the third comes a tenth of a second too early.
/// let objective = Objective { burst: 2, rate: "10/s".parse().unwrap() };
/// let law = Law::new("token-bucket", objective, Options::default()).unwrap();
/// let mut entry = Entry::default();
/// let mut ask = |ms| law.judge(&mut entry, None, &Arrival::at(Timestamp::from_millis(ms))).verdict;
/// assert_eq!([ask(9_000), ask(9_000)], [Verdict::Pass; 2]);
/// assert_eq!(ask(9_099), Verdict::Deny { retry_after_s: 1 });
/// assert_eq!(ask(9_100), Verdict::Pass);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    bucket: Bucket,
    debt: Debt,
}

impl TokenBucket {
    pub(super) fn from_options(objective: Objective, _: &mut Options) -> Result<TokenBucket, OptionError> {
        Ok(TokenBucket { bucket: Bucket::of_one_at_least(objective), debt: Debt::NONE })
    }
}

impl Rule for TokenBucket {
    fn judge(&self, entry: &mut Entry, _: Option<&mut AuxState>, arrival: &Arrival) -> Judgement {
        entry.ask(arrival.cost, arrival.now);
        let now_ns = arrival.now.as_nanos();
        let taken_ns = self.bucket.time(arrival.cost);
        let start = self.start(entry, now_ns);
        entry.gpt0 = 1_000;
        if start.saturating_add(taken_ns) > now_ns {
            entry.state.set_wide(start);
            let remaining = self.bucket.requests(now_ns.saturating_sub(start));
            return match taken_ns > self.bucket.burst_ns {
                true => Judgement::never(remaining),
                false => Judgement::deny(start + taken_ns - now_ns, remaining),
            };
        }
        entry.state.set_wide(start + taken_ns);
        entry.let_through(arrival.cost, arrival.now);
        Judgement::new(Verdict::Pass, self.bucket.requests(now_ns - start - taken_ns))
    }

    fn explain(
        &self,
        objective: &Objective,
        entry: &Entry,
        _: Option<&AuxState>,
        arrival: &Arrival,
    ) -> String {
        let (now_ns, bucket, cost) = (arrival.now.as_nanos(), self.bucket, arrival.cost);
        let (start, taken_ns) = (self.start(entry, now_ns), bucket.time(cost));
        let parts = bucket.parts(now_ns.saturating_sub(start)) - bucket.parts(start.saturating_sub(now_ns));
        let (tokens, burst) = (number(parts), objective.burst.max(1));
        match start.saturating_add(taken_ns).checked_sub(now_ns) {
            None | Some(0) => format!("tokens {tokens} of burst {burst} >= cost {cost}"),
            Some(_) if taken_ns > bucket.burst_ns => format!("burst {burst} < cost {cost}"),
            Some(missing_ns) => {
                let (missing, rate, wait) =
                    (number(bucket.parts(missing_ns)), objective.rate, time(missing_ns));
                format!("tokens {tokens} of burst {burst} < cost {cost}; wait = {missing} / {rate} = {wait}")
            }
        }
    }

    /// Returns the tokens of a request.
    fn take_back(&self, entry: &mut Entry, _: Option<&mut AuxState>, gone: &Admission) {
        entry.state.set_wide(entry.state.wide().saturating_sub(self.bucket.time(gone.cost)));
    }

    fn tat(&self, entry: &Entry, now_ns: u64) -> Option<u64> {
        Some(self.start(entry, now_ns).saturating_add(self.bucket.burst_ns))
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
        let full_at = self.start(entry, now_ns).saturating_add(self.bucket.time(arrival.cost));
        entry.state.set_wide(full_at.min(self.debt_max(now_ns)));
        entry.gpt0 = 1_000;
        entry.let_through(arrival.cost, arrival.now);
    }

    /// Until the bucket is full again, from the deepest debt.
    fn memory(&self) -> Duration {
        Duration::from_nanos(self.bucket.burst_ns.saturating_add(self.debt.max_ns))
    }

    fn pacing(&self) -> Option<Pacing> {
        Some(Pacing::new(self.bucket, Duration::ZERO))
    }

    fn split(&self, nodes: u32) -> Self {
        Self { bucket: self.bucket.split(nodes), ..*self }
    }
}

impl TokenBucket {
    /// The moment at which it was empty, if it has filled since. Later than now: it is in debt.
    fn start(&self, entry: &Entry, now_ns: u64) -> u64 {
        // The clock went back: the bucket is empty, but in no deeper debt than it may owe.
        let full_at = entry.state.wide().min(self.debt_max(now_ns));
        full_at.max(now_ns.saturating_sub(self.bucket.burst_ns))
    }

    /// The moment at which the deepest debt is paid. Without debt it is now.
    fn debt_max(&self, now_ns: u64) -> u64 {
        now_ns.saturating_add(self.debt.max_ns)
    }
}
