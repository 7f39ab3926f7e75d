//! The part of a quota that a key has used.

use crate::base::Timestamp;

/// The part of a quota that a key has used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used {
    /// Requests that count at this moment.
    pub requests: u32,
    pub limit: u32,
    /// When the last of them stops counting. None: none counts now.
    pub resets_at: Option<Timestamp>,
}
