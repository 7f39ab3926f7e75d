//! The input of a law (the numbers of an SLO and a request) and the law's answer.

use crate::base::{Blocked, Rate, Sample, Timestamp, UNCOUNTED, Verdict};

/// The burst and the rate of an SLO: a key gets `burst` requests at once, then `rate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Objective {
    pub burst: u32,
    /// At a rate of 0, every law denies every request.
    pub rate: Rate,
}

/// A request as a law sees it: its moment, random number, cost and source, and whether it can be held.
///
/// ```
/// use slowlane_core::{law::Arrival, base::Timestamp};
/// let now = Timestamp::from_millis(1);
/// assert_eq!(Arrival::at(now).cost, 1);
/// let export = Arrival { cost: 20, ..Arrival::at(now) };
/// # assert_eq!(export.now, now);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrival {
    pub now: Timestamp,
    pub sample: Sample,
    /// The number of requests that this one counts as. At cost 0, it passes and leaves no trace unless the rate is 0.
    pub cost: u32,
    /// The request's source among those that share the bucket: a hash of the fields that the `share` option names.
    pub sharer: u64,
    /// Whether the answer can be held, so that the turn of the request may still move.
    pub may_hold: bool,
}

impl Arrival {
    /// A request of cost 1, with a sample from the middle of the range, so that jitter has no effect.
    pub const fn at(now: Timestamp) -> Arrival {
        Arrival { now, sample: Sample::MIDDLE, cost: 1, sharer: 0, may_hold: false }
    }
}

/// An admitted request that has ended or is taken back.
#[derive(Clone, Copy, Debug)]
pub struct Admission {
    pub cost: u32,
    /// The moment of the request's turn, which is the moment of its arrival if it had no delay.
    pub due: Timestamp,
    pub now: Timestamp,
}

/// The verdict, and the room that is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judgement {
    pub verdict: Verdict,
    /// How many more requests of cost 1 would pass undelayed at the same moment, or [`UNCOUNTED`].
    pub remaining: u32,
    /// Whether a simpler law judged the request, because there was no memory for the law's auxiliary state.
    pub fell_back: bool,
    /// The end of the key's block, if one applies. If so, the law was not consulted.
    pub blocked_until: Option<Timestamp>,
    /// The number of the request in its key's queue, if the request's turn may still move. 0 if the verdict is final.
    pub turn: u64,
}

impl Judgement {
    /// Whether the judgement consists only of a verdict and the remaining room.
    #[inline]
    pub(crate) const fn is_plain(&self) -> bool {
        self.turn == 0 && self.blocked_until.is_none() && !self.fell_back
    }

    pub(crate) const fn new(verdict: Verdict, remaining: u32) -> Judgement {
        Judgement { verdict, remaining, fell_back: false, blocked_until: None, turn: 0 }
    }

    /// The judgement on a request that passes without being counted.
    pub(crate) const fn uncounted() -> Judgement {
        Judgement::new(Verdict::Pass, UNCOUNTED)
    }

    /// Denies a request that would be admitted `wait_ns` from now, but no sooner.
    pub fn deny(wait_ns: u64, remaining: u32) -> Judgement {
        let seconds = wait_ns.div_ceil(1_000_000_000).max(1);
        let retry_after_s = u32::try_from(seconds).unwrap_or(u32::MAX);
        Judgement::new(Verdict::Deny { retry_after_s }, remaining)
    }

    /// Denies a request that would be denied at any time, because it costs more than the law ever admits.
    pub(crate) const fn never(remaining: u32) -> Judgement {
        Judgement::new(Verdict::Deny { retry_after_s: Verdict::NEVER_S }, remaining)
    }

    /// Denies a request until the end of a block, without consulting a law.
    pub(crate) fn blocked(blocked: Blocked, now: Timestamp) -> Judgement {
        let verdict = Verdict::Deny { retry_after_s: blocked.rest_s(now) };
        Judgement { blocked_until: Some(blocked.until), ..Judgement::new(verdict, 0) }
    }

    /// Whether the law was not consulted.
    pub(crate) fn is_block(&self) -> bool {
        self.blocked_until.is_some()
    }
}

/// How much of a quota a key has used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used {
    /// The number of requests that count at this moment.
    pub requests: u32,
    pub limit: u32,
    /// When the last counted request stops counting. None if no request counts, unless the window is a calendar window.
    pub resets_at: Option<Timestamp>,
}
