//! Models of how others share a rate between nodes, for a comparison with slowlane under the same loads.
//!
//! Each is the core of a published description. A node decides at once, and every model only refuses. Apart from
//! `divided`, nodes report their counts to a store at intervals, and its answer arrives a round trip later.

use std::collections::BTreeMap;
use std::time::Duration;

use slowlane_core::base::{Rate, Verdict};
use slowlane_lab::simulate::{
    Cluster, Decided, SILENT_AFTER, Scenario, ScenarioError, Sender, Sent, Sharing, SimulationOutcome,
};

/// The models, by the names that they have beside the laws.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// Sliding windows over the counts of all nodes, added up five times a second. Adobe, "Rate Limiting in Pipeline",
    /// 2020: windows of one second, the one before weighted by its part of the last second.
    WindowCounts,
    /// A token bucket in the store, which may go into debt. A node passes everything until the store says that it must
    /// refuse until a moment; a bucket of its own with the whole rate stops the worst. Databricks, "High Performance
    /// Ratelimiting", 2025, in its final form.
    RejectUntil,
    /// Each request is refused with the chance 1 - rate/demand, from the demand on all nodes in the second before.
    /// Databricks had this rejection rate before the bucket. Uber, "Uber's Rate Limiting System", 2026, has it, and
    /// takes 2 to 3 s for what takes one message here.
    DropRate,
    /// A token bucket on each node, with an equal part of the rate and the whole burst. Cortex, the global strategy of
    /// `ingestion_rate_strategy.go`, 2019. It begins with a part of the burst, because the tables show steady states.
    Divided,
}

pub const MODELS: [(&str, Model); 4] = [
    ("window-counts", Model::WindowCounts),
    ("reject-until", Model::RejectUntil),
    ("drop-rate", Model::DropRate),
    ("divided", Model::Divided),
];

impl Model {
    pub fn named(name: &str) -> Option<Model> {
        MODELS.iter().find(|(of, _)| *of == name).map(|&(_, model)| model)
    }
}

/// The second of now, the one before, and one more for reports under way.
const SECONDS_KEPT: usize = 3;

/// Requests in each of the last seconds, numbered from the start of the run.
type Counts = BTreeMap<u64, f64>;

/// The requests of the second before this one.
fn before(counts: &Counts, now_s: f64) -> f64 {
    let second = (now_s as u64).checked_sub(1);
    second.and_then(|second| counts.get(&second)).copied().unwrap_or_default()
}

/// The requests in the last second, if those of the second before this one are spread evenly over it.
fn sliding(counts: &Counts, now_s: f64) -> f64 {
    before(counts, now_s + 1.0) + before(counts, now_s) * (1.0 - now_s.fract())
}

fn add(counts: &mut Counts, more: &Counts, sign: f64) {
    more.iter().for_each(|(&second, count)| *counts.entry(second).or_default() += sign * count);
    while counts.len() > SECONDS_KEPT {
        counts.pop_first();
    }
}

/// A token bucket. Times are seconds since the start of the run.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    rate: f64,
    burst: f64,
    tokens: f64,
    filled_s: f64,
}

impl Bucket {
    fn new(rate: f64, burst: f64) -> Bucket {
        Bucket { rate, burst, tokens: burst, filled_s: 0.0 }
    }

    fn fill(&mut self, now_s: f64) {
        self.tokens = (self.tokens + (now_s - self.filled_s) * self.rate).min(self.burst);
        self.filled_s = now_s;
    }

    fn take(&mut self, now_s: f64) -> bool {
        self.fill(now_s);
        let has_one = self.tokens >= 1.0;
        self.tokens -= if has_one { 1.0 } else { 0.0 };
        has_one
    }
}

/// The store's answer to a report.
#[derive(Clone, Debug, Default)]
struct View {
    counts: Counts,
    reject_until_s: f64,
    drop: f64,
}

struct Node {
    bucket: Bucket,
    view: View,
    /// Counted by this node, and not yet in its view.
    own: Counts,
    /// The report in flight, and its answer once it has reached the store.
    exchange: Option<(Counts, Option<View>)>,
}

/// Runs a scenario under a law or a model. The policy of a model is a law with the same rate and burst.
pub fn run(scenario: &Scenario) -> Result<SimulationOutcome, ScenarioError> {
    let Some(model) = Model::named(&scenario.law).filter(|_| scenario.cluster.nodes > 1) else {
        return scenario.run(|_| ());
    };
    let (rate, burst) = (scenario.rate.parse().expect("a rate"), scenario.burst.parse().expect("a burst"));
    let lawful = Scenario { law: "token-bucket".into(), ..scenario.clone() };
    let mut outcome = lawful.run_on(Box::new(Others::new(model, scenario.cluster, rate, burst)))?;
    outcome.scenario = scenario.clone();
    Ok(outcome)
}

/// The nodes of a model and their store.
struct Others {
    cluster: Cluster,
    model: Model,
    rate: f64,
    nodes: Vec<Node>,
    store: (Counts, Bucket),
}

impl Others {
    fn new(model: Model, cluster: Cluster, rate: Rate, burst: u32) -> Others {
        let (rate, burst) = (rate.per_second(), f64::from(burst));
        let parts = if model == Model::Divided { f64::from(cluster.nodes) } else { 1.0 };
        let bucket = Bucket { tokens: burst / parts, ..Bucket::new(rate / parts, burst) };
        let node = |_| Node { bucket, view: View::default(), own: Counts::new(), exchange: None };
        let nodes = (0..cluster.nodes).map(node).collect();
        Others { cluster, model, rate, nodes, store: (Counts::new(), Bucket::new(rate, burst)) }
    }

    /// Whether a request passes. The chance is a number from 0 to 1.
    fn passes(&mut self, node: u32, now_s: f64, chance: f64) -> bool {
        let node = &mut self.nodes[node as usize];
        let passes = match self.model {
            Model::WindowCounts => {
                sliding(&node.view.counts, now_s) + sliding(&node.own, now_s) + 1.0 <= self.rate
            }
            Model::RejectUntil => now_s >= node.view.reject_until_s && node.bucket.take(now_s),
            Model::DropRate => chance >= node.view.drop,
            Model::Divided => node.bucket.take(now_s),
        };
        if passes || self.model == Model::DropRate {
            *node.own.entry(now_s as u64).or_default() += 1.0;
        }
        passes
    }
}

impl Sharing for Others {
    fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Adobe's nodes report five times a second.
    fn period(&self) -> Duration {
        self.cluster.period * if self.model == Model::WindowCounts { 2 } else { 1 }
    }

    fn decide(&mut self, node: u32, _: Sender, bits: u64, now_ns: u64) -> Decided {
        let chance = (bits >> 1) as f64 / (1_u64 << 63) as f64;
        let passes = self.passes(node, seconds(now_ns), chance);
        let verdict = if passes { Verdict::Pass } else { Verdict::Deny { retry_after_s: 1 } };
        Decided { verdict, ticket: None, turn: 0 }
    }

    /// Sends the report of a node, unless one is in flight.
    fn send(&mut self, node: u32, is_round: bool, now_ns: u64) -> Sent {
        let node = &mut self.nodes[node as usize];
        if !is_round || self.model == Model::Divided || node.exchange.is_some() {
            return Sent::Nothing;
        }
        add(&mut node.own, &Counts::new(), 1.0);
        node.exchange = Some((node.own.clone(), None));
        let there = Duration::from_nanos(now_ns) + self.cluster.round_trip / 2;
        match self.cluster.dead.is_some_and(|dead| dead.contains(there)) {
            true => Sent::Lost(now_ns + SILENT_AFTER.as_nanos() as u64),
            false => Sent::Arrives(there.as_nanos() as u64),
        }
    }

    fn reach_store(&mut self, node: u32, now_ns: u64) -> (usize, u64) {
        let (now_s, back_ns) = (seconds(now_ns), now_ns + self.cluster.round_trip.as_nanos() as u64 / 2);
        let Some((report, answer)) = &mut self.nodes[node as usize].exchange else { return (0, back_ns) };
        let (counts, bucket) = &mut self.store;
        add(counts, report, 1.0);
        bucket.fill(now_s);
        bucket.tokens -= report.values().sum::<f64>();
        *answer = Some(View {
            counts: counts.clone(),
            reject_until_s: now_s + (-bucket.tokens / self.rate).max(0.0),
            drop: 1.0 - self.rate / before(counts, now_s).max(self.rate),
        });
        (1, back_ns)
    }

    /// A node applies an answer. Without one, its report is lost, and its counts are part of the next one.
    fn take_reply(&mut self, node: u32, _: u64) {
        let node = &mut self.nodes[node as usize];
        if let Some((report, Some(view))) = node.exchange.take() {
            add(&mut node.own, &report, -1.0);
            node.view = view;
        }
    }

    fn flush(&mut self) {
        self.store = (Counts::new(), Bucket::new(self.rate, self.store.1.burst));
    }
}

fn seconds(now_ns: u64) -> f64 {
    now_ns as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;
    use slowlane_lab::simulate::Load;

    use super::*;

    fn scenario(model: &str, nodes: u32, rate: &str, burst: u32, load: Load) -> Scenario {
        Scenario {
            law: model.into(),
            options: vec![],
            rate: rate.into(),
            burst: burst.to_string(),
            load,
            cluster: Cluster::new(nodes),
            seconds: 100,
            measured: vec!["10s..100s".parse().unwrap()],
            seed: 1,
        }
    }

    fn others(model: &str, nodes: u32, rate: &str, burst: u32) -> Others {
        Others::new(Model::named(model).unwrap(), Cluster::new(nodes), rate.parse().unwrap(), burst)
    }

    impl Others {
        fn pass_of(&mut self, asked: u32, node: u32, now_s: f64) -> u32 {
            (0..asked).map(|_| u32::from(self.passes(node, now_s, 0.5))).sum()
        }

        fn exchange(&mut self, node: u32, now_s: f64) {
            let now_ns = (now_s * 1e9) as u64;
            assert!(matches!(self.send(node, true, now_ns), Sent::Arrives(_)));
            self.reach_store(node, now_ns);
            self.take_reply(node, now_ns);
        }
    }

    /// The example of the source: four requests in the first second and two by the middle of the next.
    #[test]
    fn windows_slide_and_nodes_see_each_other_after_a_report() {
        assert_eq!(sliding(&Counts::from([(0, 4.0), (1, 2.0)]), 1.5), 4.0);
        let mut others = others("window-counts", 2, "5/s", 5);
        assert_eq!(
            [others.pass_of(9, 0, 0.5), others.pass_of(9, 1, 0.5)],
            [5, 5],
            "neither knows of the other"
        );
        [0, 1, 0].into_iter().for_each(|node| others.exchange(node, 0.6));
        // Ten requests: nine tenths of a second later, half of the limit is left.
        assert_eq!([others.pass_of(9, 0, 0.9), others.pass_of(9, 0, 1.2)], [0, 0]);
        assert_eq!([others.pass_of(9, 0, 1.75), others.pass_of(9, 1, 1.75)], [2, 2]);
    }

    /// Two nodes pass ten each where ten may pass: a debt of ten, which takes a second at 10/s.
    #[test]
    fn a_debt_in_the_store_is_refused_until_it_is_paid() {
        let mut others = others("reject-until", 2, "10/s", 10);
        assert_eq!([others.pass_of(30, 0, 1.0), others.pass_of(30, 1, 1.0)], [10, 10]);
        [0, 1, 0].into_iter().for_each(|node| others.exchange(node, 1.0));
        assert_eq!([others.pass_of(1, 0, 1.99), others.pass_of(1, 1, 1.99)], [0, 0]);
        assert_eq!([others.pass_of(30, 0, 2.0), others.pass_of(30, 1, 2.0)], [10, 10]);
    }

    /// Three times the rate: the counts of single seconds deviate by the square root of (1 - 1/3)/100, 8.2 %.
    #[test]
    fn chance_drops_the_right_part_and_errs_in_each_second() {
        let (mut others, mut rng) = (others("drop-rate", 3, "100/s", 100), Rng::with_seed(1));
        let mut counts = Vec::new();
        for second in 0..300 {
            let mut passed = 0.0;
            for request in 0..300_u32 {
                let now_s = f64::from(second) + (f64::from(request) + 0.5) / 300.0;
                passed += f64::from(u8::from(others.passes(request % 3, now_s, rng.f64())));
                if request % 10 == 0 {
                    others.exchange(request / 10 % 3, now_s);
                }
            }
            counts.push(passed);
        }
        let counts = &counts[2..];
        let mean = counts.iter().sum::<f64>() / counts.len() as f64;
        let variance = counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / counts.len() as f64;
        assert!((mean - 100.0).abs() < 1.5, "{mean}");
        assert!((variance.sqrt() - 8.2).abs() < 1.0, "{}", variance.sqrt());
    }

    /// Requests at the rate, four fifths of them on the first of five nodes: its fifth of the rate passes there, and
    /// the other fifth elsewhere.
    #[test]
    fn a_divided_rate_wastes_the_parts_of_idle_nodes() {
        let load = Load {
            clients: "0".parse().unwrap(),
            attack: Some("1000/s".parse().unwrap()),
            ..Load::default()
        };
        let skewed = Cluster { skew: Some("80%".parse().unwrap()), ..Cluster::new(5) };
        let scenario = scenario("divided", 5, "1000/s", 10, load);
        let outcome = run(&Scenario { cluster: skewed, ..scenario }).unwrap();
        let phase = &outcome.phases[0];
        assert!((phase.all().rate_per_s - 400.0).abs() < 10.0, "{phase:?}");
        assert_eq!(phase.messages_per_s, 0.0);
    }
}
