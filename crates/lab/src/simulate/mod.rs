//! The simulator: any law under any load, in virtual time.
//!
//! ```text
//! Load ─▶ Queue: the next event ─▶ Throttle::decide ─verdict─▶ the next request of a client ─▶ Queue
//!                    ▲                              └────────▶ Record ─▶ SimulationOutcome ─▶ report
//!                    └── Nodes: one Throttle each ─▶ message ─▶ StoreServer ─▶ answer, turns of held requests
//! ```
//! The simulator uses the same [`Throttle`](slowlane_core::throttle::Throttle) as production, with one SLO under test.
//! If there are several nodes, each has its own throttle, and they share the store of a token server. Other
//! implementations of [`Sharing`] can replace the nodes and the store for a comparison. There is no clock and no sleep:
//! the current time is the time of the next event, and all randomness comes from the seed. A scenario with one node has
//! the same outcome, to the bit, on any machine, unless it has costs or uses `law=protect`. Costs, `law=protect` and
//! the nodes' views of the store use exponentials or logarithms, whose last bit depends on the machine's math library.

mod cluster;
mod load;
mod nodes;
mod outcome;
mod record;
mod report;
mod run;
mod scenario;

use record::Record;

pub use cluster::{Cluster, NODES_MAX, SILENT_AFTER, Share, Skew};
pub use load::{Costs, CrowdLoad, Load, Phases, Span, Who};
pub use nodes::{Decided, Held, Sender, Sent, Sharing, Step};
pub use outcome::{Figures, Phase, SimulationOutcome};
pub use report::{json, report};
pub use scenario::{SECONDS_MAX, Scenario, ScenarioError};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_shorter_than_a_bin_never_settle() {
        let clients = vec!["9"; load::PHASES_MAX].join("-").parse().unwrap();
        let load = Load { clients, ..Load::default() };
        let scenario = Scenario {
            law: "fair".into(),
            options: vec![],
            rate: "50/s".into(),
            burst: "1".into(),
            load,
            cluster: Cluster::new(1),
            seconds: 1,
            measured: vec![],
            seed: 1,
        };
        let outcomes = [scenario.run(|_| ()).unwrap()];
        assert!(outcomes[0].phases.iter().all(|phase| phase.settled_s.is_none()));
        assert!(!report(&outcomes).is_empty());
    }

    #[test]
    fn a_bucket_never_lets_through_more_than_its_burst_and_its_rate() {
        for (law, seed) in ["pace", "fair", "token-bucket", "leaky-bucket"].into_iter().zip(1..) {
            let load = Load { clients: "0-50-0-9".parse().unwrap(), greedy: 9, ..Load::default() };
            let scenario = Scenario {
                law: law.into(),
                options: vec![],
                rate: "50/s".into(),
                burst: "100".into(),
                load: Load { attack: Some("200/s".parse().unwrap()), ..load },
                cluster: Cluster::new(1),
                seconds: 20,
                measured: vec![],
                seed,
            };
            let bins = scenario.record(None, u64::MAX, |_| ()).unwrap().bins;
            for from in 0..bins.len() {
                let mut let_through = 0.0;
                for (count, bin) in (1..).zip(&bins[from..]) {
                    let_through += bin;
                    // One more, because delays are rounded up to milliseconds.
                    assert!(
                        let_through <= f64::from(100 + 5 * count + 1),
                        "{law}: {count} tenths of a second from {from}"
                    );
                }
            }
        }
    }
}
