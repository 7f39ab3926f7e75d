//! A charge: what a decision took from an SLO's key, or what came back.

use crate::base::key::Key;
use crate::base::slo_id::SloId;
use crate::base::time::Timestamp;

/// A change to the count of one key under one SLO, for readers outside the table.
///
/// A request that falls under two SLOs makes two charges. A denied request makes none, and neither does one of cost 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charge {
    pub slo: SloId,
    pub key: Key,
    /// The number of requests that it counts for.
    pub cost: u32,
    /// The moment of the decision, or of the end.
    pub at: Timestamp,
    pub kind: ChargeKind,
}

/// The cause of a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChargeKind {
    /// A request was let through, at once or after a delay.
    Taken,
    /// The client of a delayed request left early: the slot is free again.
    TakenBack,
    /// A request has ended, under a law that counts requests in flight.
    Ended,
}
