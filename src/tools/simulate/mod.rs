//! The simulator: any law under any load, in virtual time.
//!
//! ```text
//! Load ─▶ Queue: who asks when ─▶ Throttle::decide ─verdict─▶ who asks again when ─▶ Queue
//!                                                  └────────▶ Record ─▶ Outcome ─▶ report, plot
//! ```
//! It asks the same [`Throttle`] that serves, with a policy of one line. There is no clock and no sleep: the moment is
//! that of the next thing to happen, and all chance comes from the seed. The same scenario has the same outcome, to
//! the bit, on any machine.

mod load;
mod outcome;
mod plot;
mod queue;
mod record;
mod report;
mod run;
mod scenario;

use std::time::Duration;

pub use load::{CLIENTS_MAX, Load, LoadError, PHASES_MAX, Phases, Retry, THINK_MIN, Who};
pub use outcome::{Figures, Outcome, Phase};
pub use plot::plot;
pub use report::report;
pub use scenario::{REQUESTS_MAX, SECONDS_MAX, Scenario, ScenarioError, SloFaults};

use crate::base::slo_id::SloId;
use crate::throttle::Throttle;
pub use crate::tools::chart::LINES_MAX;
use crate::tools::simulate::record::Record;
use crate::tools::simulate::scenario::{ANNEX_BYTES_MAX, SIZING, SLO};

impl Scenario {
    /// Runs it to its end; `progress` is told the virtual time that has passed, about once in a virtual second.
    ///
    /// # Errors
    /// The law refuses its options, or something is more than may be.
    pub fn run(&self, progress: impl FnMut(Duration)) -> Result<Outcome, ScenarioError> {
        Ok(Outcome::new(self, &self.record(progress)?))
    }

    fn record(&self, progress: impl FnMut(Duration)) -> Result<Record, ScenarioError> {
        let policy = self.policy()?;
        let slo = SloId::new(SLO).and_then(|id| policy.slo(id)).expect("the policy was made of it");
        let aims_at_rate = !slo.law.counts_ends();
        let throttle = Throttle::new(policy, SIZING, ANNEX_BYTES_MAX);
        run::run(self, &throttle, aims_at_rate, REQUESTS_MAX, progress)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_shorter_than_a_bin_settle_never() {
        let clients = vec!["9"; PHASES_MAX].join("-").parse().unwrap();
        let load = Load { clients, ..Load::default() };
        let rate = "50/s".parse().unwrap();
        let scenario =
            Scenario { law: "fair".into(), options: vec![], rate, burst: 1, load, seconds: 1, seed: 1 };
        let outcomes = [scenario.run(|_| ()).unwrap()];
        assert!(outcomes[0].phases.iter().all(|phase| phase.settled_s.is_none()));
        assert!(!report(&outcomes).is_empty() && !plot(&outcomes).is_empty());
    }

    #[test]
    fn in_no_time_does_a_bucket_let_through_more_than_its_burst_and_its_rate() {
        for (law, seed) in ["pace", "fair", "token-bucket", "leaky-bucket"].into_iter().zip(1..) {
            let load = Load { clients: "0-50-0-9".parse().unwrap(), greedy: 9, ..Load::default() };
            let scenario = Scenario {
                law: law.into(),
                options: vec![],
                rate: "50/s".parse().unwrap(),
                burst: 100,
                load: Load { attack: Some("200/s".parse().unwrap()), ..load },
                seconds: 20,
                seed,
            };
            let bins = scenario.record(|_| ()).unwrap().bins;
            for from in 0..bins.len() {
                let mut let_through = 0;
                for (count, bin) in (1..).zip(&bins[from..]) {
                    let_through += bin.all;
                    // One more, for delays are rounded up to milliseconds.
                    assert!(
                        let_through <= 100 + 10 * count + 1,
                        "{law}: {count} fifths of a second from {from}"
                    );
                }
            }
        }
    }
}
