//! What the store keeps of a key, and what nodes and store tell each other.

use crate::cluster::decayed::Decayed;
use crate::cluster::plan::{Plan, SLOW_MEMORY_S};

/// What a node tells the store of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Message {
    /// Requests let through since the last message.
    pub charge: f64,
    /// Requests asked about since then.
    pub asked: f64,
    /// The same, but no more than a sum of the last seconds would still hold.
    pub asked_lately: f64,
    /// The TAT, as last known to the node, less now. None before the first reply.
    pub taught_s: Option<f64>,
    /// The node's own demand, for its own use when the reply comes.
    pub own: f64,
}

/// What the store answers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reply {
    /// The TAT less the store's now, with the message's charge in it.
    pub ahead_s: f64,
    /// The demand of all nodes: decayed sums, with the memory of the plan and with that of some seconds.
    pub demand: f64,
    pub slow_demand: f64,
    /// The age of the record.
    pub age_s: f64,
}

/// The record of a key in the store. Times are seconds of the store's own clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Record {
    tat_s: f64,
    demand: Decayed,
    slow_demand: Decayed,
    born_s: f64,
}

impl Record {
    pub fn new(now_s: f64) -> Record {
        let (demand, slow_demand) = (Decayed::default(), Decayed::default());
        Record { tat_s: f64::NEG_INFINITY, demand, slow_demand, born_s: now_s }
    }

    /// Takes up a message. TATs merge by their maximum: nodes teach a store that has forgotten.
    pub fn merge(&mut self, plan: &Plan, message: &Message, now_s: f64) -> Reply {
        let taught_s = message.taught_s.map_or(f64::NEG_INFINITY, |ahead_s| now_s + ahead_s);
        let known_s = self.tat_s.max(taught_s).min(now_s + plan.cap_s() + AHEAD_MAX_S);
        self.tat_s = known_s.max(now_s - plan.burst_s()) + message.charge * plan.slot_s();
        self.demand.add(message.asked, now_s, plan.memory_s());
        self.slow_demand.add(message.asked_lately, now_s, SLOW_MEMORY_S);
        Reply {
            ahead_s: self.tat_s - now_s,
            demand: self.demand.sum(now_s, plan.memory_s()),
            slow_demand: self.slow_demand.sum(now_s, SLOW_MEMORY_S),
            age_s: now_s - self.born_s,
        }
    }
}

/// How far beyond its cap a TAT may lie: what nodes promised in their arrears.
const AHEAD_MAX_S: f64 = 10.0;
