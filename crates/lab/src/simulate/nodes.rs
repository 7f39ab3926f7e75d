//! The nodes of a run, their views of the shared SLO, and the store's record of it.

use std::time::Duration;

use crate::simulate::{Cluster, SILENT_AFTER, Scenario};
use slowlane_core::base::{Timestamp, Verdict};
use slowlane_core::cluster::{Message, OnSilence, Plan, Record, Reply, View};
use slowlane_core::law::Judgement;

/// The nodes and the store. Times are nanoseconds since the start of the run.
pub(super) struct Nodes {
    pub(super) cluster: Cluster,
    plan: Plan,
    views: Vec<View>,
    /// The last message of each node, and its answer. At most one is in flight.
    letters: Vec<(Message, Reply)>,
    /// None: the store knows nothing of the SLO.
    record: Option<Record>,
}

/// The age of a record that begins with a message: its requests came a little earlier.
const AGE_S: f64 = 0.02;

impl Nodes {
    /// `max_delay` is the longest delay of the law. Zero: it refuses.
    pub(super) fn new(cluster: Cluster, scenario: &Scenario, max_delay: Duration) -> Nodes {
        let plan = Plan {
            rate_per_s: scenario.rate.per_second(),
            burst: f64::from(if max_delay.is_zero() { scenario.burst.max(1) } else { scenario.burst }),
            max_delay,
            period: cluster.period,
            silent_after: SILENT_AFTER,
            on_silence: OnSilence::Share,
            nodes: cluster.nodes,
        };
        Nodes {
            cluster,
            plan,
            views: vec![View::new(&plan, at(0)); cluster.nodes as usize],
            letters: vec![<(Message, Reply)>::default(); cluster.nodes as usize],
            record: None,
        }
    }

    /// Lets a node decide a request.
    pub(super) fn judge(&mut self, node: u32, now_ns: u64) -> Verdict {
        match self.views[node as usize].judge(&self.plan, 1.0, at(now_ns)) {
            Ok(delay) => Verdict::after(delay),
            Err(wait) => Judgement::deny(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX), 0).verdict,
        }
    }

    /// Sends the message of a node if it is due. Returns its arrival at the store; none if it is lost.
    pub(super) fn report(&mut self, node: u32, now_ns: u64) -> Option<u64> {
        let view = &mut self.views[node as usize];
        if !view.has_to_tell(&self.plan, at(now_ns)) {
            return None;
        }
        let message = view.message(&self.plan, at(now_ns));
        let there_ns = now_ns + self.half_trip_ns();
        if self.cluster.dead.is_some_and(|dead| dead.contains(Duration::from_nanos(there_ns))) {
            self.views[node as usize].lost(&message);
            return None;
        }
        self.letters[node as usize].0 = message;
        Some(there_ns)
    }

    /// The store applies a message. Returns the arrival of its answer.
    pub(super) fn reach_store(&mut self, node: u32, now_ns: u64) -> u64 {
        let now_s = Duration::from_nanos(now_ns).as_secs_f64();
        let record = self.record.get_or_insert_with(|| Record::new(now_s - AGE_S));
        let (message, reply) = &mut self.letters[node as usize];
        *reply = record.merge(message, now_s);
        now_ns + self.half_trip_ns()
    }

    /// A node applies the answer to its message.
    pub(super) fn take_reply(&mut self, node: u32, now_ns: u64) {
        let (message, reply) = self.letters[node as usize];
        let round_trip = self.cluster.round_trip;
        self.views[node as usize].reply(&self.plan, &message, &reply, round_trip, at(now_ns));
    }

    /// The store loses everything.
    pub(super) fn flush(&mut self) {
        self.record = None;
    }

    fn half_trip_ns(&self) -> u64 {
        self.cluster.round_trip.as_nanos() as u64 / 2
    }
}

fn at(now_ns: u64) -> Timestamp {
    Timestamp::from_nanos(now_ns)
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
            law: "token-bucket".into(),
            options: vec![],
            rate: "10/s".parse().unwrap(),
            burst: 2,
            load: Load::default(),
            cluster: Some(cluster),
            seconds: 9,
            measured: None,
            seed: 1,
        };
        Nodes::new(cluster, &scenario, Duration::ZERO)
    }

    #[test]
    fn a_message_is_lost_by_the_moment_of_its_arrival() {
        let reported_ms = |ms: u64| {
            let mut nodes = nodes();
            nodes.judge(0, ms * MS);
            nodes.report(0, ms * MS).map(|there_ns| there_ns / MS)
        };
        assert_eq!([500, 989, 990, 2_000].map(reported_ms), [None, None, Some(1_000), Some(2_010)]);
    }

    #[test]
    fn a_message_and_its_answer_take_half_a_round_trip_each() {
        let mut nodes = nodes();
        nodes.judge(0, 2_000 * MS);
        let there_ns = nodes.report(0, 2_000 * MS).unwrap();
        let back_ns = nodes.reach_store(0, there_ns);
        assert_eq!((there_ns, back_ns), (2_010 * MS, 2_020 * MS));
        // The node talks again when it has an answer, a request and a new period.
        nodes.judge(0, 2_500 * MS);
        assert_eq!(nodes.report(0, 2_500 * MS), None);
        nodes.take_reply(0, back_ns);
        assert_eq!(nodes.report(0, 2_500 * MS), Some(2_510 * MS));
    }

    #[test]
    fn a_flushed_store_begins_a_new_record() {
        let mut nodes = nodes();
        nodes.judge(0, 2_000 * MS);
        let there_ns = nodes.report(0, 2_000 * MS).unwrap();
        nodes.reach_store(0, there_ns);
        assert!(nodes.record.is_some());
        nodes.flush();
        assert!(nodes.record.is_none());
    }
}
