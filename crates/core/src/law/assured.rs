//! The assured rate of an SLO: requests within this rate pass even if an SLO above refuses or delays them.
//!
//! ```text
//! slot   = 1 / assured                       the time of one request
//! start  = max(paid_at, now - burst * slot)  a bucket holds the burst of the SLO, or 1 if it is 0
//! start + cost * slot <= now: the bucket carries the request, and paid_at = start + cost * slot
//! ```
//! In any time T, at most `burst + assured * T` requests of a key bypass the SLOs above. Only these requests are
//! charged, so the bucket fills while the SLOs above have room. A key that stays within the assured rate is never
//! delayed or refused by an SLO above.
//!
//! Linux's HTB has the same idea: `rate` alongside `ceil`. There, a class spends its own tokens first. Here, a key
//! spends its own tokens only when its parent has none, so a key has state only while its parent is in debt.
//!
//! The state is `paid_at`, in nanoseconds, in a row of its own.

use std::time::Duration;

use crate::base::{Rate, Timestamp};
use crate::law::formula::{compared, number};
use crate::law::{Gcra, Objective, Rule};
use crate::table::Entry;

/// The assured rate of an SLO, with the burst of that SLO.
///
/// ```
/// use slowlane_core::{base::Timestamp, law::{Assured, Objective}, table::Entry};
///
/// // 10/s with a burst of 2: the third of three at once is not carried, but another is after a tenth of a second.
/// let assured = Assured::new(Objective { burst: 2, rate: "10/s".parse().unwrap() });
/// let mut entry = Entry::default();
/// let mut carries = |ms| {
///     let now = Timestamp::from_millis(ms);
///     let has_room = assured.has_room(&entry, 1, now);
///     if has_room {
///         assured.charge(&mut entry, 1, now);
///     }
///     has_room
/// };
/// assert_eq!([carries(9_000), carries(9_000), carries(9_000), carries(9_100)], [true, true, false, true]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assured {
    objective: Objective,
    gcra: Gcra,
}

impl Assured {
    /// Takes the assured rate from `objective`. A burst of 0 counts as 1.
    pub fn new(objective: Objective) -> Assured {
        Assured { objective, gcra: Gcra::assured(objective) }
    }

    pub fn rate(&self) -> Rate {
        self.objective.rate
    }

    /// Whether a request of this cost can bypass the SLOs above now.
    pub fn has_room(&self, entry: &Entry, cost: u32, now: Timestamp) -> bool {
        self.gcra.start(entry, now.as_nanos()).saturating_add(self.gcra.time(cost)) <= now.as_nanos()
    }

    /// Charges a request. If there is no room, the bucket goes into debt, but never by more than a burst.
    pub fn charge(&self, entry: &mut Entry, cost: u32, now: Timestamp) {
        self.gcra.charge(entry, cost, now);
    }

    /// Takes back the charge for a request whose client disconnected before its turn.
    pub fn take_back(&self, entry: &mut Entry, cost: u32) {
        self.gcra.give_back(entry, cost);
    }

    /// How many more requests of cost 1 could bypass the SLOs above at once.
    pub fn remaining(&self, entry: &Entry, now: Timestamp) -> u32 {
        self.gcra.requests(now.as_nanos().saturating_sub(self.gcra.start(entry, now.as_nanos())))
    }

    /// How long a bucket with the maximum debt takes to fill.
    pub fn memory(&self) -> Duration {
        self.gcra.memory()
    }

    /// One node's part of the assured rate, which is split evenly among `nodes` nodes.
    pub fn split(&self, nodes: u32) -> Assured {
        Assured { gcra: self.gcra.split(nodes), ..*self }
    }

    /// The formula with the numbers of a request: `used 3 + cost 1 <= burst 20 at 10/s`.
    pub fn explain(&self, entry: &Entry, cost: u32, now: Timestamp) -> String {
        let Objective { burst, rate } = self.objective;
        let used = number(self.gcra.lacking(entry, now.as_nanos()));
        let compared = compared(self.has_room(entry, cost, now));
        format!("used {used} + cost {cost} {compared} burst {} at {rate}", burst.max(1))
    }
}
