//! Three nodes with a million keys each, of which a thousand are hot, in virtual time: what they tell the store.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use slowlane_core::base::{Request, Sample, Timestamp, Value};
use slowlane_core::cluster::{Cluster, Records, Settings};
use slowlane_core::policy::{Layout, Policy};
use slowlane_core::table::Sizing;
use slowlane_core::throttle::Throttle;

const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);
const STEP: Duration = Duration::from_millis(5);
const SECONDS: u32 = 10;
const STEPS: u32 = 200 * SECONDS;
const NODES: u32 = 3;
const HOT: u32 = 1_000;
/// Each node is asked about a hot key so often in a second.
const HOT_PER_S: u32 = 20;
const OTHERS: u32 = 1_000_000;
/// A message is a few key updates, which take a round trip.
const TRIP: Duration = Duration::from_millis(1);

struct Node {
    throttle: Throttle,
    cluster: Arc<Cluster>,
}

impl Node {
    fn new() -> Node {
        let read = |path: &Path| match path.to_str() {
            Some("slo.map") => Ok("0 rate=unlimited\n3001 burst=20 rate=10/s\n".into()),
            Some("source.map") => Ok("0.0.0.0/0 3001\n".into()),
            _ => Err(io::ErrorKind::NotFound.into()),
        };
        let policy = Policy::parse(Path::new(""), &Layout::default(), read).unwrap();
        let cluster = Arc::new(Cluster::new(Settings { nodes: NODES, ..Settings::default() }));
        cluster.set_nodes(NODES, 0);
        let sizing = Sizing { entries_max: 1_200_000, expire: Duration::from_secs(60) };
        let throttle = Throttle::new(policy, sizing, 0).in_cluster(cluster.clone());
        Node { throttle, cluster }
    }

    fn ask(&self, source: u32, now: Timestamp) {
        let mut request = Request::new();
        request.push(b"source", Value::Address(IpAddr::V4(Ipv4Addr::from_bits(source))));
        self.throttle.decide_one(&request, now, Sample::MIDDLE);
    }

    /// Tells the store what is due. Returns how many keys that was.
    fn send(&self, records: &mut Records, now: Timestamp) -> u32 {
        let updates = self.cluster.collect(now, 4_000);
        for update in &updates {
            let answer = records.post(update.key, &update.arguments, now);
            self.cluster.reply(update, &answer, TRIP, now + TRIP);
        }
        u32::try_from(updates.len()).unwrap()
    }
}

/// Only keys that are used a lot cost the store anything: for each of them, ten key updates a second from each node.
#[test]
fn a_million_keys_cost_the_store_no_more_than_a_thousand_hot_ones() {
    let nodes: [Node; NODES as usize] = std::array::from_fn(|_| Node::new());
    let mut records = Records::new(500_000);
    let (mut now, mut response, mut reported_at_most) = (START, 0, 0);
    for step in 0..STEPS {
        now = now + STEP;
        for node in &nodes {
            // Each hot key in turn; the others once in the whole time.
            let hot = HOT * HOT_PER_S / 200;
            (0..hot).for_each(|place| node.ask((step * hot + place) % HOT, now));
            let others = OTHERS / STEPS;
            (0..others).for_each(|place| node.ask(HOT + step * others + place, now));
        }
        let of_step: u32 = nodes.iter().map(|node| node.send(&mut records, now)).sum();
        // The first second makes the keys known.
        if step >= 200 {
            (response, reported_at_most) = (response + of_step, reported_at_most.max(of_step));
        }
    }
    let per_s = f64::from(response) / f64::from(SECONDS - 1);
    let formula = f64::from(10 * NODES * HOT);
    assert!(
        (0.5..=1.2).contains(&(per_s / formula)),
        "{per_s} updates a second, where {formula} are expected"
    );
    assert!(reported_at_most < 2 * NODES * HOT, "{reported_at_most} updates at once");
    // No other key is known to the store, or shared by a node.
    assert_eq!(records.count(), HOT as usize);
    assert!(nodes.iter().all(|node| node.cluster.keys() == HOT as usize));
}
