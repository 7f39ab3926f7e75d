//! The block that refuses a request.

use serde::{Deserialize, Serialize};

use crate::base::{Key, Timestamp};

/// A block in force for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocked {
    pub by: BlockedBy,
    /// The end of the block: the first moment at which it no longer applies.
    pub until: Timestamp,
}

/// The origin of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BlockedBy {
    /// An operator, with the number of the block. It applies under every SLO.
    Operator(u32),
    /// The option `block` of an SLO, with the blocked key.
    Slo(Key),
}

impl Blocked {
    /// Whether the block still holds.
    pub fn holds_at(&self, now: Timestamp) -> bool {
        self.until > now
    }

    /// The remaining time of the block in whole seconds, rounded up: the `retry_after` of a request at `now`, at least
    /// 1.
    ///
    /// ```
    /// use slowlane_core::base::{Blocked, BlockedBy};
    /// use slowlane_core::base::Timestamp;
    /// let blocked = Blocked { by: BlockedBy::Operator(1), until: Timestamp::from_millis(9_001) };
    /// let rest = |now_ms| blocked.rest_s(Timestamp::from_millis(now_ms));
    /// assert_eq!([rest(7_000), rest(9_000), rest(9_001)], [3, 1, 1]);
    /// ```
    pub fn rest_s(&self, now: Timestamp) -> u32 {
        let seconds = self.until.since(now).as_nanos().div_ceil(1_000_000_000).max(1);
        u32::try_from(seconds).unwrap_or(u32::MAX)
    }
}
