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

use std::path::Path;
use std::time::Duration;
use std::{fmt, io};

use thiserror::Error;

pub use load::{CLIENTS_MAX, Load, LoadError, PHASES_MAX, Phases, Retry, THINK_MIN, Who};
pub use outcome::{Figures, Outcome, Phase};
pub use plot::plot;
pub use report::report;

use crate::base::slo_id::SloId;
use crate::base::units::Rate;
use crate::law::Law;
use crate::policy::{DEFAULT_LINE, Fault, Layout, Policy};
use crate::table::Sizing;
use crate::throttle::Throttle;
pub use crate::tools::chart::LINES_MAX;
use crate::tools::simulate::record::Record;

/// One law, one objective and those who ask.
///
/// ```
/// use slowlane::tools::simulate::{Load, Scenario};
///
/// // 50 clients in a closed loop get 50 requests/s between them, and each request waits for a second.
/// let load = Load { clients: "50".parse().unwrap(), ..Load::default() };
/// let rate = "50/s".parse().unwrap();
/// let scenario = Scenario { law: "pace".into(), options: vec![], rate, burst: 100, load, seconds: 20, seed: 1 };
/// let outcome = scenario.run(|_| ()).unwrap();
/// let figures = &outcome.phases[0].all;
/// assert!(figures.error(rate).unwrap().abs() < 0.005);
/// assert_eq!((figures.denied, figures.p50_ms), (0, Some(999)));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    pub law: String,
    /// As an SLO line has them: name and value.
    pub options: Vec<(String, String)>,
    pub rate: Rate,
    pub burst: u32,
    pub load: Load,
    /// 1 to [`SECONDS_MAX`].
    pub seconds: u32,
    pub seed: u64,
}

/// A day.
pub const SECONDS_MAX: u32 = 86_400;

/// The most requests of one run: some minutes of computing.
pub const REQUESTS_MAX: u64 = 100_000_000;

/// Why a scenario cannot be run.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum ScenarioError {
    #[error("{0}")]
    Slo(SloFaults),
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error("{0} seconds: expected 1 to {SECONDS_MAX}")]
    Seconds(u32),
    #[error(
        "{law}: more than {requests_max} requests, or too many under way at once: take fewer seconds or clients, or \
         longer pauses"
    )]
    TooManyRequests { law: String, requests_max: u64 },
}

/// What is wrong with the SLO, one fault per line.
#[derive(Clone, Debug, PartialEq)]
pub struct SloFaults {
    law: String,
    faults: Vec<Fault>,
}

impl fmt::Display for SloFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.faults.iter().map(|fault| format!("{}: {fault}", self.law)).collect();
        f.write_str(&lines.join("\n"))
    }
}

/// Of type 2: one bucket for the website that everybody asks for.
const SLO: u16 = 2001;

const WEBSITE: &str = "shop.example";

/// One bucket needs one entry.
const SIZING: Sizing = Sizing { entries_max: 16, expire: Duration::from_secs(30) };

/// As much as the largest annex of one key takes up, and more.
const ANNEX_BYTES_MAX: usize = 64 << 20;

impl Scenario {
    /// # Errors
    /// What [`run`](Scenario::run) would refuse before it begins.
    pub fn check(&self) -> Result<(), ScenarioError> {
        self.policy().map(drop)
    }

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

    fn policy(&self) -> Result<Policy, ScenarioError> {
        self.load.check()?;
        if !(1..=SECONDS_MAX).contains(&self.seconds) {
            return Err(ScenarioError::Seconds(self.seconds));
        }
        let slo_map = format!("{DEFAULT_LINE}\n{SLO} {}\n", self.line());
        let website_map = format!("{WEBSITE} {SLO}\n");
        let read = |path: &Path| match path.to_str() {
            Some("slo.map") => Ok(slo_map.clone().into_bytes()),
            Some("website.map") => Ok(website_map.clone().into_bytes()),
            _ => Err(io::ErrorKind::NotFound.into()),
        };
        Policy::parse(Path::new(""), &Layout::default(), read).map_err(|problems| {
            let faults = problems.listed().iter().map(|problem| problem.fault.clone()).collect();
            ScenarioError::Slo(SloFaults { law: self.law.clone(), faults })
        })
    }

    /// The SLO as a line of `slo.map` has it.
    fn line(&self) -> String {
        let mut line = format!("burst={} rate={} law={}", self.burst, self.rate, self.law);
        for (name, value) in &self.options {
            line += &format!(" {name}={value}");
        }
        line
    }

    /// The laws whose objective is a rate, which can be held against each other.
    pub fn laws_of_rates() -> impl Iterator<Item = &'static str> {
        Law::NAMES.iter().copied().filter(|&name| name != "concurrency")
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
