//! A request as a law sees it, and what the law makes of it.

use crate::base::draw::Draw;
use crate::base::time::Timestamp;
use crate::base::verdict::Verdict;

/// When a request comes, what it counts for and whose it is.
///
/// ```
/// use slowlane::{law::Arrival, base::time::Timestamp};
/// let now = Timestamp::from_millis(1);
/// assert_eq!(Arrival::at(now).cost, 1);
/// let export = Arrival { cost: 20, ..Arrival::at(now) };
/// # assert_eq!(export.now, now);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrival {
    pub now: Timestamp,
    pub draw: Draw,
    /// How many requests it counts for. One that counts for none passes and leaves no trace, but at a rate of 0.
    pub cost: u32,
    /// Whose it is among those that share one bucket: a hash of the field that `share` names.
    pub sharer: u64,
}

impl Arrival {
    /// A request that counts for one, with dice that change nothing.
    pub const fn at(now: Timestamp) -> Arrival {
        Arrival { now, draw: Draw::MIDDLE, cost: 1, sharer: 0 }
    }
}

/// What a law makes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judgement {
    pub verdict: Verdict,
    /// How many more would pass at once if they came at this moment.
    pub remaining: u32,
    /// The law had no room to remember more, and judged as the simpler law that stands in for it.
    pub fell_back: bool,
}

impl Judgement {
    pub(super) const fn new(verdict: Verdict, remaining: u32) -> Judgement {
        Judgement { verdict, remaining, fell_back: false }
    }

    /// Denied; one request would get through this many nanoseconds from now, and none before.
    pub(super) fn deny(wait_ns: u64, remaining: u32) -> Judgement {
        let seconds = wait_ns.div_ceil(1_000_000_000).max(1);
        let retry_after_s = u32::try_from(seconds).unwrap_or(u32::MAX);
        Judgement::new(Verdict::Deny { retry_after_s }, remaining)
    }

    /// Denied whenever it comes.
    pub(super) const fn never(remaining: u32) -> Judgement {
        Judgement::new(Verdict::Deny { retry_after_s: Verdict::NEVER_S }, remaining)
    }
}
