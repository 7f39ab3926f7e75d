//! The burst and the rate of an SLO.

use crate::base::Rate;

/// A key gets `burst` requests at once, then `rate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Objective {
    pub burst: u32,
    /// At a rate of 0 every law denies every request.
    pub rate: Rate,
}
