//! The answer of a law, or of a block before it, to one request.

use crate::base::{Blocked, Timestamp, UNCOUNTED, Verdict};

/// The verdict, and the room that is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judgement {
    pub verdict: Verdict,
    /// How many more requests of cost 1 would pass at once at the same moment, or [`UNCOUNTED`].
    pub remaining: u32,
    /// There was no memory for the law's auxiliary state, so a simpler law judged.
    pub fell_back: bool,
    /// The end of the key's block. The law was not consulted.
    pub blocked_until: Option<Timestamp>,
    /// The number of the request in the queue of its key, if its turn may still move. 0: the verdict is final.
    pub turn: u64,
}

impl Judgement {
    /// Whether it is no more than a verdict and what remains.
    #[inline]
    pub(crate) const fn is_plain(&self) -> bool {
        self.turn == 0 && self.blocked_until.is_none() && !self.fell_back
    }

    pub(crate) const fn new(verdict: Verdict, remaining: u32) -> Judgement {
        Judgement { verdict, remaining, fell_back: false, blocked_until: None, turn: 0 }
    }

    /// Passed without being counted.
    pub(crate) const fn uncounted() -> Judgement {
        Judgement::new(Verdict::Pass, UNCOUNTED)
    }

    /// Denied. The request would get through `wait_ns` from now, and no sooner.
    pub fn deny(wait_ns: u64, remaining: u32) -> Judgement {
        let seconds = wait_ns.div_ceil(1_000_000_000).max(1);
        let retry_after_s = u32::try_from(seconds).unwrap_or(u32::MAX);
        Judgement::new(Verdict::Deny { retry_after_s }, remaining)
    }

    /// Denied, at any time: the request costs more than the law ever admits.
    pub(crate) const fn never(remaining: u32) -> Judgement {
        Judgement::new(Verdict::Deny { retry_after_s: Verdict::NEVER_S }, remaining)
    }

    /// Denied for the rest of a block, without consulting a law.
    pub(crate) fn blocked(blocked: Blocked, now: Timestamp) -> Judgement {
        let verdict = Verdict::Deny { retry_after_s: blocked.rest_s(now) };
        Judgement { blocked_until: Some(blocked.until), ..Judgement::new(verdict, 0) }
    }

    /// Whether the law was not consulted.
    pub(crate) fn is_block(&self) -> bool {
        self.blocked_until.is_some()
    }
}
