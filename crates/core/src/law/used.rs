//! What a key has used of its quota.

use crate::base::Timestamp;

/// What a key has used of its quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used {
    /// Requests that count at this moment.
    pub requests: u32,
    pub limit: u32,
    /// When none of them counts any longer. None: none counts now.
    pub resets_at: Option<Timestamp>,
}
