//! The nodes of a run and the store that they share: slowlane's own, or another design that a benchmark compares.

use std::sync::Arc;
use std::time::Duration;

use crate::simulate::scenario::{ANNEX_BYTES_MAX, SIZING, at, request};
use crate::simulate::{Cluster, SILENT_AFTER, Scenario, ScenarioError, Who};
use slowlane_core::base::{Decision, Decisions, Ending, Key, KeySecret, Sample, Ticket, Turn, Verdict};
use slowlane_core::cluster::{self, Beat, Due, Member, OnSilence, Presence, Response, Settings, StoreServer};
use slowlane_core::policy::Batch;
use slowlane_core::throttle::Throttle;

/// Nodes and the store that they share. Times are in nanoseconds since the start of the run.
pub trait Sharing {
    fn cluster(&self) -> &Cluster;

    /// The time between two reports from a node to the store.
    fn period(&self) -> Duration {
        self.cluster().period
    }

    /// Lets a node judge a request. All randomness comes from `bits`.
    fn decide(&mut self, node: u32, sender: Sender, bits: u64, now_ns: u64) -> Decided;

    /// Records the end of an admitted request. Laws that count the ends of requests run only on a single node.
    fn end(&mut self, _ticket: &Ticket, _ending: &Ending, _now_ns: u64) {}

    /// The number of requests that a simpler law judged, because auxiliary memory ran out.
    fn fallbacks(&self) -> u64 {
        0
    }

    /// Sends a node's message if one is due. `is_round` tells whether a period of the node has begun.
    fn send(&mut self, node: u32, is_round: bool, now_ns: u64) -> Sent;

    /// Lets the store apply a node's message. Returns the number of the message's updates, and the time at which the
    /// answer arrives.
    fn reach_store(&mut self, node: u32, now_ns: u64) -> (usize, u64);

    /// Lets a node apply the answer to its message, or give up waiting for the answer.
    fn take_reply(&mut self, node: u32, now_ns: u64);

    /// Makes the store lose all its data.
    fn flush(&mut self);

    /// The next step of each request that a node holds and that has been moved or refused.
    fn moved(&mut self, _node: u32, _now_ns: u64) -> Vec<Step> {
        Vec::new()
    }

    /// Releases a held request whose turn has come. None if the turn has moved, or if the request is no longer held.
    fn release(&mut self, _node: u32, _number: u64, _now_ns: u64) -> Option<Held> {
        None
    }

    /// Takes back a held request whose client has disconnected.
    fn leave(&mut self, _node: u32, _number: u64, _now_ns: u64) -> Option<Held> {
        None
    }
}

/// The answer to a request.
#[derive(Debug)]
pub struct Decided {
    pub verdict: Verdict,
    pub ticket: Option<Ticket>,
    /// The number of the request if the node holds the request, otherwise 0.
    pub turn: u64,
}

/// The sender of a request, and the place of the sender's source among all addresses.
#[derive(Clone, Copy, Debug)]
pub struct Sender {
    pub who: Who,
    pub connection: u32,
    pub source: u32,
}

/// The next step of a held request.
#[derive(Debug)]
pub enum Step {
    /// The request's turn comes at this time.
    At { number: u64, due_ns: u64 },
    /// The store has no slot for the request, or the request has waited for too long.
    Refused(Box<Held>),
}

/// The fate of a message.
#[derive(Debug)]
pub enum Sent {
    Nothing,
    /// The message reaches the store at this time.
    Arrives(u64),
    /// The message is lost. The node gives up waiting for the answer at this time.
    Lost(u64),
}

/// The nodes, each with its own throttle, and the store. Times are in nanoseconds since the start of the run.
pub(super) struct Nodes {
    cluster: Cluster,
    nodes: Vec<Node>,
    store: StoreServer,
}

/// A node, its exchange with the store, and the requests that the node holds.
struct Node {
    name: Member,
    throttle: Throttle,
    shared: Arc<cluster::Cluster>,
    /// The message in flight (there is at most one) and the store's answer, if the message has reached the store.
    exchange: Option<(Due, Option<Response>)>,
    sent_ns: u64,
    tried_ns: u64,
    beaten_ns: u64,
    held: Vec<Held>,
}

/// A held request.
#[derive(Clone, Debug)]
pub struct Held {
    pub(super) decision: Decision,
    pub(super) turn: Arc<Turn>,
    pub(super) who: Who,
    pub(super) connection: u32,
    pub(super) asked_ns: u64,
    /// The time of the request's turn. An event is queued for this time.
    pub(super) due_ns: u64,
}

const KEYS_MAX: usize = 4_000;
const BEAT_NS: u64 = 1_000_000_000;

/// A node whose store is silent tries to connect again after this time.
const PAUSE_NS: u64 = 250_000_000;

impl Nodes {
    pub(super) fn new(scenario: &Scenario) -> Result<Nodes, ScenarioError> {
        let cluster = scenario.cluster;
        let settings = Settings {
            period: cluster.period,
            silent_after: SILENT_AFTER,
            on_silence: OnSilence::Share,
            nodes: cluster.nodes,
            ..Settings::default()
        };
        let node = |place| {
            let shared = Arc::new(cluster::Cluster::new(settings));
            shared.set_silent(false);
            shared.set_round_trip(cluster.round_trip);
            shared.set_nodes(cluster.nodes, place);
            shared.set_run(place.into());
            let mut throttle = Throttle::new(scenario.policy()?, SIZING, ANNEX_BYTES_MAX);
            if cluster.nodes > 1 {
                throttle = throttle.in_cluster(shared.clone());
            }
            // Heartbeats are spread over a second.
            let beaten_ns = u64::from(place) * BEAT_NS / u64::from(cluster.nodes);
            let name = Member { run: format!("{place:016x}"), ..Member::default() };
            let (sent_ns, tried_ns, held) = Default::default();
            Ok(Node { name, throttle, shared, exchange: None, sent_ns, tried_ns, beaten_ns, held })
        };
        let nodes = (0..cluster.nodes).map(node).collect::<Result<_, _>>()?;
        Ok(Nodes { cluster, nodes, store: StoreServer::new("simulated".into()) })
    }

    fn half_trip_ns(&self) -> u64 {
        self.cluster.round_trip.as_nanos() as u64 / 2
    }
}

impl Node {
    /// Removes and returns the held request with this number if `may_go` returns true for that request.
    fn take(&mut self, number: u64, may_go: impl Fn(&Held) -> bool) -> Option<Held> {
        let place = self.held.iter().position(|held| held.decision.turn() == number && may_go(held))?;
        Some(self.held.remove(place))
    }
}

impl Sharing for Nodes {
    fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The node holds the request if the request's turn may still move.
    fn decide(&mut self, node: u32, sender: Sender, bits: u64, now_ns: u64) -> Decided {
        let (Sender { who, connection, source }, sample) = (sender, Sample::from_bits(bits));
        let node = &mut self.nodes[node as usize];
        let (policy, now) = (node.throttle.policy(), at(now_ns));
        let (mut batch, mut decisions) = (Batch::of(&policy), Decisions::new());
        batch.push(&request(source));
        if self.cluster.holds {
            batch.may_hold_last();
        }
        node.throttle.sweep(now);
        node.throttle.decide(&batch, now, &mut || sample, &mut decisions);
        let decision = decisions.only();
        let turn = node.throttle.turn(decision.key, decision.turn());
        let (verdict, ticket) = (decision.verdict, decision.ticket());
        let decided = Decided { verdict, ticket, turn: turn.as_ref().map_or(0, |_| decision.turn()) };
        let held = turn.map(|turn| Held { decision, turn, who, connection, asked_ns: now_ns, due_ns: 0 });
        node.held.extend(held);
        decided
    }

    fn end(&mut self, ticket: &Ticket, ending: &Ending, now_ns: u64) {
        let throttle = &self.nodes[0].throttle;
        throttle.end(&throttle.policy(), ticket, ending, at(now_ns));
    }

    fn fallbacks(&self) -> u64 {
        self.nodes.iter().map(|node| node.throttle.aux_usage().fallbacks).sum()
    }

    fn moved(&mut self, node: u32, now_ns: u64) -> Vec<Step> {
        let Node { throttle, held, .. } = &mut self.nodes[node as usize];
        let mut steps = Vec::new();
        if held.is_empty() {
            return steps;
        }
        throttle.wake_gates(at(now_ns));
        held.retain_mut(|held| match held.turn.due() {
            None => {
                steps.push(Step::Refused(Box::new(held.clone())));
                false
            }
            Some(due) => {
                let due_ns = due.as_nanos() - at(0).as_nanos();
                if due_ns != held.due_ns {
                    held.due_ns = due_ns;
                    steps.push(Step::At { number: held.decision.turn(), due_ns });
                }
                true
            }
        });
        steps
    }

    fn release(&mut self, node: u32, number: u64, now_ns: u64) -> Option<Held> {
        let node = &mut self.nodes[node as usize];
        let held = node.take(number, |held| held.due_ns <= now_ns)?;
        node.throttle.pass(held.decision.key, number, at(now_ns));
        Some(held)
    }

    fn leave(&mut self, node: u32, number: u64, now_ns: u64) -> Option<Held> {
        let node = &mut self.nodes[node as usize];
        let held = node.take(number, |_| true)?;
        node.throttle.take_back(&node.throttle.policy(), &held.decision, at(now_ns));
        Some(held)
    }

    /// An exchange of blocks is due in each period, so a message is sent when a period begins, even without updates.
    fn send(&mut self, node: u32, is_round: bool, now_ns: u64) -> Sent {
        let there_ns = now_ns + self.half_trip_ns();
        let is_dead = self.cluster.dead.is_some_and(|dead| dead.contains(Duration::from_nanos(there_ns)));
        let node = &mut self.nodes[node as usize];
        if node.exchange.is_some() {
            return Sent::Nothing;
        }
        let updates = node.shared.collect(at(now_ns), KEYS_MAX);
        if node.shared.is_silent() && (is_dead || now_ns < node.tried_ns + PAUSE_NS) {
            updates.iter().for_each(|update| node.shared.lost(update));
            if is_dead && now_ns >= node.tried_ns + PAUSE_NS {
                node.tried_ns = now_ns;
            }
            return Sent::Nothing;
        }
        let is_beat_due = now_ns >= node.beaten_ns || node.shared.is_silent();
        if updates.is_empty() && !is_beat_due && !is_round {
            return Sent::Nothing;
        }
        let beat = is_beat_due.then(|| Beat {
            member: node.name.clone(),
            secret: KeySecret::KNOWN.to_hex(),
            crowded: node.shared.crowded(at(now_ns)),
        });
        if is_beat_due {
            node.beaten_ns = now_ns + BEAT_NS;
        }
        node.exchange = Some((Due { updates, beat, blocks: None }, None));
        node.sent_ns = now_ns;
        match is_dead {
            true => Sent::Lost(now_ns + SILENT_AFTER.as_nanos() as u64),
            false => Sent::Arrives(there_ns),
        }
    }

    fn reach_store(&mut self, node: u32, now_ns: u64) -> (usize, u64) {
        let back_ns = now_ns + self.half_trip_ns();
        let Some((due, answer)) = &mut self.nodes[node as usize].exchange else { return (0, back_ns) };
        *answer = self.store.exchange(due, Presence::Node, at(now_ns));
        (due.updates.len(), back_ns)
    }

    fn take_reply(&mut self, node: u32, now_ns: u64) {
        let node = &mut self.nodes[node as usize];
        let Some((due, response)) = node.exchange.take() else { return };
        let (now, shared) = (at(now_ns), &node.shared);
        let Some(response) = response.filter(|response| response.fits(&due)) else {
            due.updates.iter().for_each(|update| shared.lost(update));
            shared.set_silent(true);
            node.tried_ns = now_ns;
            return;
        };
        let round_trip = Duration::from_nanos(now_ns - node.sent_ns);
        for (update, answer) in due.updates.iter().zip(&response.answers) {
            shared.reply(update, answer, round_trip, now);
        }
        shared.set_silent(false);
        if let Some(membership) = response.membership {
            let share = |key: &Key| node.throttle.share(*key, now);
            membership.crowded.iter().for_each(share);
            shared.set_hints(&membership.hints, round_trip, now);
        }
    }

    fn flush(&mut self) {
        self.store = StoreServer::new("simulated".into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::load::Load;

    const MS: u64 = 1_000_000;

    /// Two nodes share 10/s with a burst of 2, and are 20 ms from a store that is dead in the first second.
    fn nodes() -> Nodes {
        let (round_trip, dead) = (Duration::from_millis(20), Some("0s..1s".parse().unwrap()));
        let cluster = Cluster { round_trip, dead, ..Cluster::new(2) };
        let scenario = Scenario {
            law: "pace".into(),
            options: vec![],
            rate: "10/s".into(),
            burst: "2".into(),
            load: Load::default(),
            cluster,
            seconds: 9,
            measured: vec![],
            seed: 1,
        };
        Nodes::new(&scenario).unwrap()
    }

    fn decide(nodes: &mut Nodes, ms: u64) -> Decided {
        let sender = Sender { who: Who::Client, connection: 0, source: 1 };
        nodes.decide(0, sender, u64::MAX / 2, ms * MS)
    }

    #[test]
    fn a_message_is_lost_by_the_moment_of_its_arrival() {
        let arrives_ms = |ms: u64| match nodes().send(0, true, ms * MS) {
            Sent::Arrives(there_ns) => Some(there_ns / MS),
            Sent::Lost(_) | Sent::Nothing => None,
        };
        assert_eq!([500, 989, 990, 2_000].map(arrives_ms), [None, None, Some(1_000), Some(2_010)]);
    }

    #[test]
    fn a_message_and_its_answer_take_half_a_round_trip_each() {
        let mut nodes = nodes();
        let Sent::Arrives(there_ns) = nodes.send(0, true, 2_000 * MS) else { panic!("it is lost") };
        assert!(matches!(nodes.send(0, true, 2_005 * MS), Sent::Nothing), "one is in flight");
        let (updates, back_ns) = nodes.reach_store(0, there_ns);
        assert_eq!((updates, there_ns, back_ns), (0, 2_010 * MS, 2_020 * MS));
        nodes.take_reply(0, back_ns);
        assert!(matches!(nodes.send(0, true, 2_100 * MS), Sent::Arrives(_)));
    }

    /// Two requests of the burst pass, and the third waits for a tenth of a second.
    #[test]
    fn a_held_request_passes_at_the_slot_that_the_store_grants() {
        let mut nodes = nodes();
        let verdicts = [2_000, 2_000, 2_000, 2_000].map(|ms| decide(&mut nodes, ms));
        let numbers: Vec<u64> =
            verdicts.iter().map(|decided| decided.turn).filter(|&turn| turn != 0).collect();
        assert!(!numbers.is_empty(), "{verdicts:?}");
        let estimates = nodes.moved(0, 2_000 * MS).len();
        let Sent::Arrives(there_ns) = nodes.send(0, false, 2_010 * MS) else { panic!("it is not due") };
        let (_, back_ns) = nodes.reach_store(0, there_ns);
        nodes.take_reply(0, back_ns);
        let slots_ms: Vec<u64> = nodes
            .moved(0, back_ns)
            .iter()
            .map(|step| match step {
                Step::At { due_ns, .. } => due_ns / MS,
                Step::Refused(held) => panic!("{held:?}"),
            })
            .collect();
        assert_eq!((estimates, slots_ms.len()), (numbers.len(), numbers.len()), "{slots_ms:?}");
        assert!(slots_ms.iter().is_sorted());
    }
}
