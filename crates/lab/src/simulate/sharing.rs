//! How the nodes of a run share an SLO: as slowlane's do, or in another way that a benchmark compares with theirs.

use std::time::Duration;

use crate::simulate::{Cluster, Held, Who};
use slowlane_core::base::Verdict;

/// Nodes and the store that they share. Times are nanoseconds since the start of the run.
pub trait Sharing {
    fn cluster(&self) -> &Cluster;

    /// How often each node reports to the store.
    fn period(&self) -> Duration {
        self.cluster().period
    }

    /// Lets a node decide a request. Returns the verdict, and a number other than 0 if the node holds the request.
    /// Chance comes from `bits`.
    fn decide(&mut self, node: u32, sender: Sender, bits: u64, now_ns: u64) -> (Verdict, u64);

    /// Sends what is due at a node. `is_round`: its period has begun.
    fn send(&mut self, node: u32, is_round: bool, now_ns: u64) -> Sent;

    /// The store applies the message of a node. Returns the number of its updates, and the arrival of its answer.
    fn reach_store(&mut self, node: u32, now_ns: u64) -> (usize, u64);

    /// A node applies the answer to its message, or gives up waiting for it.
    fn take_reply(&mut self, node: u32, now_ns: u64);

    /// The store loses everything.
    fn flush(&mut self);

    /// The held requests of a node whose turn has moved.
    fn moved(&mut self, _node: u32) -> Vec<Step> {
        Vec::new()
    }

    /// Releases a held request whose turn has come. None: the turn has moved, or the request is gone.
    fn release(&mut self, _node: u32, _number: u64, _now_ns: u64) -> Option<Held> {
        None
    }

    /// Takes back a held request whose client has disconnected.
    fn leave(&mut self, _node: u32, _number: u64, _now_ns: u64) -> Option<Held> {
        None
    }
}

/// The sender of a request, and the number of its source.
#[derive(Clone, Copy, Debug)]
pub struct Sender {
    pub who: Who,
    pub connection: u32,
    pub source: u32,
}

/// The next step of a held request.
#[derive(Debug)]
pub enum Step {
    /// Its turn is at this moment.
    At { number: u64, due_ns: u64 },
    /// The store has no slot for it.
    Refused(Box<Held>),
}

/// The fate of a message.
#[derive(Debug)]
pub enum Sent {
    Nothing,
    /// It reaches the store then.
    Arrives(u64),
    /// It does not. The node gives up waiting then.
    Lost(u64),
}
