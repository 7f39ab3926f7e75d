//! The store's record of a key, and the messages about it between the nodes and the store.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::Timestamp;
use crate::cluster::{Plan, SLOW_MEMORY_S, UNREPORTED};

/// A sum that decays to e^(-t/memory) of itself in a time t. Divided by its memory, the sum is a rate.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Decayed {
    sum: f64,
    at_s: f64,
}

impl Decayed {
    pub(super) fn add(&mut self, amount: f64, now_s: f64, memory_s: f64) {
        *self = Decayed { sum: self.sum(now_s, memory_s) + amount, at_s: now_s.max(self.at_s) };
    }

    /// A sum of this value at this moment.
    pub(super) fn new(sum: f64, at_s: f64) -> Decayed {
        Decayed { sum, at_s }
    }

    pub(super) fn sum(&self, now_s: f64, memory_s: f64) -> f64 {
        // A request that was just added reads the sum that includes it.
        if now_s <= self.at_s { self.sum } else { self.sum * (-(now_s - self.at_s) / memory_s).exp() }
    }
}

/// A node's report about a key, with the numbers of its SLO.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// The number of requests admitted since the last message or, with `returns`, promised but not yet admitted.
    pub charge: f64,
    /// The number of requests received since the last message.
    pub asked: f64,
    /// The number of requests received lately, but no more than a decaying sum over the last seconds still contains.
    pub asked_lately: f64,
    /// The last known TAT minus now. None before the first reply or, without `returns`, if charges may be taken back.
    pub restore_s: Option<f64>,
    /// The age of the record, as last known to this node.
    pub known_age_s: f64,
    /// Whether the store was silent until now. If so, the charge is the number of requests that the node promised in
    /// the meantime but has not yet admitted.
    pub returns: bool,
    /// The time in which the rate allows one request.
    pub slot_s: f64,
    /// The time in which the rate allows a full burst.
    pub burst_s: f64,
    /// How far ahead of the current time the TAT may lie, apart from the charges in arrears.
    pub cap_s: f64,
    /// The memory of the demand.
    pub memory_s: f64,
    /// The lifetime of the record.
    pub kept_s: f64,
    /// The slots that the node wants for held requests. None if the node holds no requests.
    pub wants: Option<Wants>,
    /// The node's own demand, which it needs when the reply comes.
    #[serde(skip)]
    pub own: f64,
}

/// Slots that a node wants for the requests that it holds, and slots that it returns.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Wants {
    /// The run of the node, and the number of the message: a message that arrives twice is applied only once.
    pub run: u64,
    pub number: u64,
    /// The number of slots wanted.
    pub want: u32,
    /// How long the oldest of these requests has waited.
    pub waited_s: f64,
    /// Half the round trip between the node and the store: a slot that is due sooner would come too late.
    pub half_trip_s: f64,
    /// Slots that no request needs any more, as times after the arrival of the message.
    pub back: Vec<f64>,
}

impl Message {
    /// An empty message under this plan.
    pub fn new(plan: &Plan) -> Message {
        let (burst_s, cap_s) = (plan.burst_s(), plan.cap_s());
        Message {
            slot_s: plan.slot_s(),
            burst_s,
            cap_s,
            memory_s: plan.memory_s(),
            kept_s: burst_s + cap_s + Plan::KEPT_S,
            ..Message::default()
        }
    }

    pub fn charge_s(&self) -> f64 {
        self.charge * self.slot_s
    }
}

/// The store's answer to a [`Message`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    /// The TAT minus the store's current time, including the charge of the message.
    pub ahead_s: f64,
    /// The demand of all nodes: two decayed sums, one with the plan's memory and one with a memory of a few seconds.
    pub demand: f64,
    pub slow_demand: f64,
    /// The age of the record.
    pub age_s: f64,
    /// The answer to the message's `wants`.
    pub grant: Option<Grant>,
}

/// The slots granted to a node. Times are relative to the store's current time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Grant {
    /// Slots that nodes had returned, in ascending order.
    #[serde(default)]
    pub holes: Vec<f64>,
    /// The first of the other slots, and their number. Each slot is one request's time later than the slot before it.
    pub first_s: f64,
    pub count: u32,
    /// The number of requests for which there is no slot within the longest delay.
    pub refused: u32,
}

/// The state of a crowded key in the store: the content of a reply, but for a node that has sent no message about the
/// key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Hint {
    /// The TAT minus the store's current time.
    pub ahead_s: f64,
    /// The demand of all nodes, as two decayed sums that were current `since_s` ago.
    pub demand: f64,
    pub slow_demand: f64,
    pub since_s: f64,
    /// The age of the record.
    pub age_s: f64,
    /// When the node received the hint, and half of the round trip.
    #[serde(skip)]
    pub at: Timestamp,
    #[serde(skip)]
    pub half_trip: Duration,
}

impl Message {
    /// The same message, but without the effects that the store has already applied.
    pub(super) fn repeated(&self) -> Message {
        Message { charge: 0.0, asked: 0.0, asked_lately: 0.0, wants: None, ..*self }
    }
}

impl Grant {
    /// The same grant, but relative to a time this much later.
    pub(super) fn later(&self, later_s: f64) -> Grant {
        let holes = self.holes.iter().map(|hole_s| hole_s - later_s).collect();
        Grant { holes, first_s: self.first_s - later_s, ..*self }
    }
}

impl Hint {
    /// The reply that the store would give now if no message had come since the hint.
    pub(super) fn reply(&self, plan: &Plan, now: Timestamp) -> Reply {
        let later_s = now.since(self.at).as_secs_f64();
        let decayed = |sum, memory_s| Decayed::new(sum, 0.0).sum(self.since_s + later_s, memory_s);
        Reply {
            ahead_s: self.ahead_s - later_s,
            demand: decayed(self.demand, plan.memory_s()),
            slow_demand: decayed(self.slow_demand, SLOW_MEMORY_S),
            age_s: self.age_s + later_s,
            grant: None,
        }
    }
}

/// The maximum number of hints in the answer to a heartbeat.
pub const HINTS_MAX: usize = 200;

/// The maximum number of returned slots that a record keeps, and that a message returns.
pub const HOLES_MAX: usize = 16;

impl Reply {
    /// Whether the demand leaves no room for requests that nodes admit unreported.
    pub fn is_crowded(&self, plan: &Plan) -> bool {
        self.slow_demand / SLOW_MEMORY_S > (1.0 - UNREPORTED) * plan.rate_per_s
    }
}

/// The record of a key in the store. Times are in seconds on the store's own clock.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    tat_s: f64,
    demand: Decayed,
    slow_demand: Decayed,
    born_s: f64,
    /// The TAT from before the birth of this record, as the nodes still know it, and the charges since the birth.
    before_s: f64,
    since_s: f64,
    /// When the first node came back from the last silence, and the debts of all nodes that have come back since.
    returned_s: f64,
    debts_s: f64,
    /// Returned slots, in ascending order.
    holes: Vec<f64>,
}

/// A record of this age or less may replace a record that the store has lost. While a key is in debt, each node sends
/// at least one message per second, so within two seconds all nodes have restored their state.
pub(super) const YOUNG_S: f64 = 2.0;

/// Nodes that come back within this time of each other come back from the same silence: nodes pause for at most 250 ms
/// before they connect, and give up an attempt after two seconds.
const RETURN_S: f64 = 2.0;

/// A node that has known a key for this much longer than the store has kept its record knows state that the store has
/// lost. A slow answer causes a smaller difference: at most the half second after which the store counts as silent.
const LONGER_S: f64 = 1.0;

/// A slot counts as within the longest delay if it exceeds the longest delay by less than this part of one request's
/// time.
const ROUNDING: f64 = 1e-6;

impl Record {
    pub fn new(now_s: f64) -> Record {
        let never = f64::NEG_INFINITY;
        Record { tat_s: never, born_s: now_s, before_s: never, returned_s: never, ..Record::default() }
    }

    /// Applies a message. The latest TAT wins, so the nodes restore what the store has lost. Each node knows the TAT of
    /// a different moment, so everything charged since the birth of the record is added to the latest of these TATs.
    pub fn merge(&mut self, message: &Message, now_s: f64) -> Reply {
        let &Message { cap_s, memory_s, .. } = message;
        let charge_s = message.charge_s();
        let latest_s = now_s + cap_s + Plan::AHEAD_MAX_S;
        let restore_s =
            message.restore_s.map_or(f64::NEG_INFINITY, |ahead_s| (now_s + ahead_s).min(latest_s));
        let age_s = now_s - self.born_s;
        let is_longer_known = message.restore_s.is_some() && message.known_age_s > age_s + LONGER_S;
        // What a node knows from before a silence is out of date.
        if !message.returns && age_s <= YOUNG_S && is_longer_known {
            self.before_s = self.before_s.max(restore_s);
            self.tat_s = self.tat_s.max(self.before_s + self.since_s);
        }
        let before_s = self.tat_s;
        let known_s = self.tat_s.max(restore_s).min(latest_s);
        let known_s = known_s.max(now_s - message.burst_s);
        self.tat_s = match message.returns {
            true => known_s.max(now_s + self.debts(charge_s, now_s).min(cap_s)),
            false => known_s + charge_s,
        };
        let grant = message.wants.as_ref().map(|wants| {
            // Debt beyond the cap is forgiven, because held requests could not wait that long.
            self.tat_s = self.tat_s.min(before_s.max(now_s + cap_s));
            self.grant(wants, message, now_s)
        });
        self.since_s += if message.returns { 0.0 } else { charge_s };
        self.demand.add(message.asked, now_s, memory_s);
        self.slow_demand.add(message.asked_lately, now_s, SLOW_MEMORY_S);
        Reply {
            ahead_s: self.tat_s - now_s,
            demand: self.demand.sum(now_s, memory_s),
            slow_demand: self.slow_demand.sum(now_s, SLOW_MEMORY_S),
            age_s,
            grant,
        }
    }

    /// Takes back the slots that the node returns, and grants the slots that it wants, returned slots first.
    fn grant(&mut self, wants: &Wants, message: &Message, now_s: f64) -> Grant {
        let &Message { slot_s, burst_s, cap_s, .. } = message;
        for &ahead_s in wants.back.iter().take(HOLES_MAX) {
            if self.holes.len() < HOLES_MAX && ahead_s > 0.0 {
                let place = self.holes.partition_point(|&hole_s| hole_s <= now_s + ahead_s);
                self.holes.insert(place, now_s + ahead_s);
            } else {
                self.tat_s -= slot_s;
            }
        }
        // A slot that can no longer be used in time makes room for a later slot.
        let gone = self.holes.partition_point(|&hole_s| hole_s < now_s + wants.half_trip_s);
        self.tat_s = (self.tat_s - gone as f64 * slot_s).max(now_s - burst_s);
        self.holes.drain(..gone);
        let taken = self.holes.len().min(wants.want as usize);
        let holes: Vec<f64> = self.holes.drain(..taken).map(|hole_s| hole_s - now_s).collect();
        let want = wants.want - holes.len() as u32;
        let room_s = now_s + cap_s - wants.waited_s - wants.half_trip_s - self.tat_s;
        let count = ((room_s / slot_s + ROUNDING).max(0.0) as u32).min(want);
        let first_s = self.tat_s + slot_s - now_s;
        self.tat_s += f64::from(count) * slot_s;
        self.since_s += f64::from(count) * slot_s;
        if now_s - self.returned_s <= RETURN_S {
            self.debts_s += f64::from(count) * slot_s;
        }
        Grant { holes, first_s, count, refused: want - count }
    }

    /// The state of the key, for a node that has sent no message about the key.
    pub(super) fn hint(&self, now_s: f64) -> Hint {
        Hint {
            ahead_s: self.tat_s - now_s,
            demand: self.demand.sum,
            slow_demand: self.slow_demand.sum,
            since_s: (now_s - self.demand.at_s).max(0.0),
            age_s: (now_s - self.born_s).max(0.0),
            ..Hint::default()
        }
    }

    /// Adds the debt of one more node to the debts of all nodes that have come back from a silence. Returns the sum.
    ///
    /// Nodes come back one by one. Meanwhile, the nodes that are already back pay off the common debt and add to it.
    fn debts(&mut self, debt_s: f64, now_s: f64) -> f64 {
        if now_s - self.returned_s > RETURN_S {
            (self.returned_s, self.debts_s) = (now_s, 0.0);
        }
        self.debts_s = (self.debts_s + debt_s).max(0.0);
        self.debts_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Settings;
    use crate::law::{Law, Objective, Options};

    /// At 10/s a store forgets a debt of 2.5 s. The first node to talk knows it as of 1.5 s, another as of 2 s.
    #[test]
    fn a_charge_of_one_node_is_not_lost_in_the_better_knowledge_of_another() {
        let objective = Objective { burst: 10, rate: "10/s".parse().unwrap() };
        let law = Law::new("pace", objective, Options::default()).unwrap();
        let plan = Plan::new(law.gcra().unwrap(), &Settings::default(), 2, 0.0, Duration::ZERO);
        let mut record = Record::new(100.0);
        let message = |restore_s, charge| Message {
            charge,
            restore_s: Some(restore_s),
            known_age_s: 60.0,
            ..Message::new(&plan)
        };
        let ahead_s = |reply: Reply| (reply.ahead_s * 1e6).round() / 1e6;
        assert_eq!(ahead_s(record.merge(&message(1.5, 5.0), 100.0)), 2.0, "five requests are half a second");
        assert_eq!(ahead_s(record.merge(&message(2.0, 0.0), 100.0)), 2.5);
        assert_eq!(ahead_s(record.merge(&message(1.9, 0.0), 100.0)), 2.5, "who knows less adds nothing");
        // Once it is older, the store knows best, and only a later TAT counts.
        assert_eq!(ahead_s(record.merge(&message(0.5, 1.0), 103.0)), 0.6);
    }

    /// A store that was stopped receives a message from that time, and no longer has the record. Nodes then come back
    /// with what they owe: that is all that counts.
    #[test]
    fn debts_are_not_added_to_what_a_late_message_taught() {
        let objective = Objective { burst: 10, rate: "10/s".parse().unwrap() };
        let law = Law::new("pace", objective, Options::default()).unwrap();
        let plan = Plan::new(law.gcra().unwrap(), &Settings::default(), 2, 0.0, Duration::ZERO);
        let mut record = Record::new(100.0);
        let message = |charge, restore_s| Message {
            charge,
            restore_s: Some(restore_s),
            known_age_s: 60.0,
            ..Message::new(&plan)
        };
        let mut merge = |message: Message, now_s| record.merge(&message, now_s).ahead_s;
        assert!((merge(message(1.0, 4.4), 100.0) - 4.5).abs() < 1e-6);
        for debt in [25.0, 20.0] {
            let ahead_s = merge(Message { returns: true, ..message(debt, -60.0) }, 100.1);
            assert!((4.4..=4.5).contains(&ahead_s), "{ahead_s}");
        }
    }

    /// At 10/s, with a longest delay of five seconds.
    fn plan() -> Plan {
        let objective = Objective { burst: 10, rate: "10/s".parse().unwrap() };
        let law = Law::new("pace", objective, Options::default()).unwrap();
        Plan::new(law.gcra().unwrap(), &Settings::default(), 2, 0.0, Duration::ZERO)
    }

    /// Half a second is charged, and then a node knows a TAT of two seconds ahead.
    #[test]
    fn a_node_knows_what_was_forgotten_if_it_knows_the_record_for_over_a_second_longer() {
        for (known_age_s, ahead_s) in [(1.0, 2.0), (1.1, 2.5)] {
            let mut record = Record::new(100.0);
            record.merge(&Message { charge: 5.0, ..Message::new(&plan()) }, 100.0);
            let message = Message { restore_s: Some(2.0), known_age_s, ..Message::new(&plan()) };
            let reply = record.merge(&message, 100.0);
            assert!((reply.ahead_s - ahead_s).abs() < 1e-6, "{known_age_s}: {reply:?}");
        }
    }

    /// Two nodes come back, each with a debt of one second.
    #[test]
    fn debts_add_up_when_nodes_come_back_within_two_seconds() {
        for (second_s, ahead_s) in [(102.0, 2.0), (102.5, 1.0)] {
            let mut record = Record::new(50.0);
            let message = Message { charge: 10.0, returns: true, ..Message::new(&plan()) };
            assert!((record.merge(&message, 100.0).ahead_s - 1.0).abs() < 1e-6);
            let reply = record.merge(&message, second_s);
            assert!((reply.ahead_s - ahead_s).abs() < 1e-6, "{second_s}: {reply:?}");
        }
    }
}
