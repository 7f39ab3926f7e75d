//! A request that a law let through earlier.

use crate::base::Timestamp;

/// An earlier request that has now ended or is taken back.
#[derive(Clone, Copy, Debug)]
pub struct Admission {
    pub cost: u32,
    /// When its turn came. Without a delay that is the moment of its arrival.
    pub due: Timestamp,
    pub now: Timestamp,
}
