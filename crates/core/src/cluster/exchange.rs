//! The exchange of messages between a node and the store about one key, with at most one in flight.

use crate::base::Timestamp;

/// A message unanswered for this long counts as lost: twice the usual time after which the store counts as silent.
const LOST_AFTER_S: f64 = 1.0;

/// The time between two messages is shorter than the period, by up to this part of the period. With 0 and 0.3, the
/// fairness (Jain) of 400 clients at 2000/s over 35 nodes is 0.977 and 0.999.
const SPREAD: f64 = 0.3;

/// The state of a node's messages about one key. Times are in seconds since the node's first request for the key.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Exchange {
    /// The moment from which seconds are counted.
    pub(super) origin: Timestamp,
    /// The moment of the last message.
    pub(super) reported_s: f64,
    /// The charge of the message in flight, if a message is in flight.
    pub(super) on_its_way: Option<f64>,
}

impl Exchange {
    pub(super) fn new(now: Timestamp) -> Exchange {
        Exchange { origin: now, reported_s: f64::NEG_INFINITY, on_its_way: None }
    }

    pub(super) fn seconds(&self, now: Timestamp) -> f64 {
        now.since(self.origin).as_secs_f64()
    }

    /// Whether an answer may still come.
    pub(super) fn is_waiting(&self, now_s: f64) -> bool {
        self.on_its_way.is_some() && now_s <= self.reported_s + LOST_AFTER_S
    }

    /// The time until the next message, as a part of the period. Nodes in step would always report in the same order,
    /// so the same nodes would always know the least. The sub-microsecond digits of the last message's time are as good
    /// as random.
    pub(super) fn spread(&self) -> f64 {
        let random = (self.reported_s * 1e6).fract();
        if random.is_finite() { 1.0 - SPREAD * random } else { 1.0 }
    }

    /// Notes that a message was sent.
    pub(super) fn sent(&mut self, charge: f64, now_s: f64) {
        (self.reported_s, self.on_its_way) = (now_s, Some(charge));
    }
}
