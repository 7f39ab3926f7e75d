//! A charge: what a decision took from an SLO's key, or what came back.

use crate::base::key::Key;
use crate::base::slo_id::SloId;
use crate::base::time::Timestamp;

/// A change of one SLO's account with one key, for those that keep accounts beside the table.
///
/// A request that falls under two SLOs makes two charges; a denied one, or one of cost 0, makes none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charge {
    pub slo: SloId,
    pub key: Key,
    /// The requests that it counts for.
    pub cost: u32,
    /// When it happened.
    pub at: Timestamp,
    pub kind: ChargeKind,
}

/// Which way an account changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChargeKind {
    /// A request was let through, at once or after a delay.
    Taken,
    /// Its client left before its turn: the slot is free again.
    TakenBack,
    /// It has ended, under a law that counts requests in flight.
    Ended,
}
