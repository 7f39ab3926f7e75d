//! The cost of a decision in process, with and without the codec, at 100,000 and 1,000,000 keys.
//!
//! `cargo bench --bench decide [-- SECONDS] [alone] [cluster]`. The policy is that of the bench `spop`: four fields, and
//! five lookups in maps of 100,000 lines. The third lookup answers. Sources are drawn evenly. A batch of 64 questions is
//! generated first, and then timed from its bytes to the bytes of the answers.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests and benches are the world outside"
)]
#![allow(unreachable_pub, reason = "nothing here is reachable from outside, and pub(crate) is noise")]

#[path = "../support/mod.rs"]
mod support;

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use ::spop::{Connection, Data, Frame, Notify, Step};
use arrayvec::ArrayVec;
use slowlane::proxy::haproxy::{self, Id, Question};
use slowlane_core::base::{BATCH_MAX, Decisions, KeySecret, Sample, Timestamp};
use slowlane_core::cluster::{Cluster, Settings};
use slowlane_core::policy::Batch;
use slowlane_core::table::Sizing;
use slowlane_core::throttle::Throttle;
use support::effort::{self, Effort};
use support::five_maps::{LINES, policy, request, source};
use support::programs::spop;
use support::{Cost, print as line};

const BATCH: usize = 64;

/// Virtual time after filling the table, long enough that the filling does not count as a flood.
const PAUSE: Duration = Duration::from_secs(120);

fn main() {
    effort::run(&[("alone", alone), ("cluster", in_cluster)], Effort::from_arguments(3.0));
}

fn alone(effort: Effort) {
    let lines = effort.count(LINES);
    for keys in [100_000, 1_000_000].map(|keys| effort.count(keys)) {
        for law in ["pace", "adaptive", "token-bucket", "sliding-window"] {
            let mut agent = Agent::new(law, keys, lines, None);
            let (decision, whole) = (agent.decisions(effort.time), agent.answers(effort.time));
            line(&format!("decision, {keys} keys"), law, decision, "ns", &[]);
            line(&format!("codec and decision, {keys} keys"), law, whole, "ns", &[("decision", decision)]);
        }
    }
}

/// A node of a cluster beside a slowlane that is alone: with keys that are hardly used, and with a few that are shared.
fn in_cluster(effort: Effort) {
    let lines = effort.count(LINES);
    for (subject, keys, nodes) in
        [("hardly used", effort.count(1_000_000), 2), ("shared", effort.count(20_000), 1_000)]
    {
        let cluster = Arc::new(Cluster::new(Settings { nodes, ..Settings::default() }));
        let agents = &mut [None, Some(cluster)].map(|cluster| Agent::new("pace", keys, lines, cluster));
        let costs = effort.in_turns(agents, |agent| [agent.decisions(effort.time)]);
        let [[alone], [shared]] = costs[..] else { unreachable!("two agents were measured") };
        line(&format!("decision, {keys} keys"), &format!("{subject}, alone"), alone, "ns", &[]);
        line(
            &format!("decision, {keys} keys"),
            &format!("{subject}, cluster"),
            shared,
            "ns",
            &[("alone", alone)],
        );
    }
}

struct Agent {
    throttle: Throttle,
    connection: Connection,
    arguments: haproxy::Arguments,
    rng: fastrand::Rng,
    keys: u32,
    now: Timestamp,
    out: Vec<u8>,
}

impl Agent {
    fn new(law: &str, keys: u32, lines: u32, cluster: Option<Arc<Cluster>>) -> Agent {
        let (mut connection, mut out) = (Connection::new(16_380), Vec::new());
        connection.receive(Frame::cut(&spop::hello(), 16_380).unwrap().unwrap().0, &mut out);
        let sizing = Sizing { entries_max: keys + keys / 4, expire: Duration::from_secs(600) };
        let throttle = Throttle::new(policy(law, keys, lines), sizing, 0);
        let throttle = match cluster {
            Some(cluster) => throttle.in_cluster(cluster),
            None => throttle,
        };
        let now = Timestamp::from_millis(1_700_000_000_000);
        for number in 0..keys {
            throttle.decide_one(&request(number), now, Sample::MIDDLE);
        }
        let (rng, now) = (fastrand::Rng::with_seed(7), now + PAUSE);
        Agent {
            throttle,
            connection,
            arguments: haproxy::Arguments::default(),
            rng,
            keys,
            now,
            out: Vec::new(),
        }
    }

    /// Nanoseconds for each decision.
    fn decisions(&mut self, time: Duration) -> f64 {
        let mut cost = Cost::within(time);
        while cost.has_time() {
            let numbers: [u32; BATCH] = std::array::from_fn(|_| self.rng.u32(0..self.keys));
            self.now = self.now + Duration::from_micros(50);
            cost.of(BATCH, || {
                for number in numbers {
                    black_box(self.throttle.decide_one(&request(number), self.now, Sample::MIDDLE));
                }
            });
        }
        cost.ns_each()
    }

    /// Nanoseconds for each NOTIFY, from its bytes to those of its ACK.
    fn answers(&mut self, time: Duration) -> f64 {
        let mut cost = Cost::within(time);
        let mut bytes = Vec::new();
        while cost.has_time() {
            bytes.clear();
            for _ in 0..BATCH {
                self.ask(&mut bytes);
            }
            self.now = self.now + Duration::from_micros(50);
            cost.of(BATCH, || self.answer(&bytes));
            black_box(&self.out);
        }
        cost.ns_each()
    }

    fn ask(&mut self, bytes: &mut Vec<u8>) {
        let source = source(self.rng.u32(0..self.keys));
        let arguments: [(&[u8], Data<'_>); 4] = [
            (b"source", Data::Ipv4(source)),
            (b"website", Data::Str(b"shop.example")),
            (b"owner", Data::Str(b"acme")),
            (b"method", Data::Str(b"GET")),
        ];
        Notify::begin(bytes, self.rng.u64(0..100_000), 1).message(b"request", &arguments).finish();
    }

    fn answer(&mut self, mut bytes: &[u8]) {
        self.out.clear();
        let policy = self.throttle.policy();
        let (mut ids, mut batch) = (ArrayVec::<Id, BATCH_MAX>::new(), Batch::of(&policy));
        let mut decisions = Decisions::new();
        while let Some((frame, length)) = Frame::cut(bytes, 16_380).unwrap() {
            if let Step::Notify(notify) = self.connection.receive(frame, &mut self.out) {
                let mut draft = batch.draft();
                let asked = haproxy::question(&notify, &mut self.arguments, |place, name, value| {
                    let place = *place.get_or_insert_with(|| draft.place_of(name));
                    draft.field_at(place, value);
                });
                assert_eq!(asked, Ok(Question::Verdict { wants_quota: false, may_hold: false }));
                batch.keep_draft();
                ids.push(Id::of(&notify));
            }
            bytes = &bytes[length..];
            if batch.is_full() || bytes.is_empty() {
                self.throttle.decide(&batch, self.now, &mut || Sample::MIDDLE, &mut decisions);
                for (id, decided) in ids.iter().zip(decisions.iter()) {
                    haproxy::answer_verdict(*id, decided, KeySecret::KNOWN, None, &mut self.out);
                }
                ids.clear();
                batch.clear();
            }
        }
    }
}
