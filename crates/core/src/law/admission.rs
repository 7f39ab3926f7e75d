//! A request that a law admitted earlier.

use crate::base::Timestamp;

/// An admitted request that has ended or is taken back.
#[derive(Clone, Copy, Debug)]
pub struct Admission {
    pub cost: u32,
    /// The moment of its turn: that of its arrival, if it had no delay.
    pub due: Timestamp,
    pub now: Timestamp,
}
