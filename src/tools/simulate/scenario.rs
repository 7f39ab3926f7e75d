//! A scenario: one law, one objective and the load that meets them.

use std::path::Path;
use std::time::Duration;
use std::{fmt, io};

use thiserror::Error;

use crate::base::units::Rate;
use crate::law::Law;
use crate::policy::{DEFAULT_LINE, Fault, Layout, Policy};
use crate::table::Sizing;
use crate::tools::simulate::load::{Load, LoadError};

/// One law, one objective and the clients.
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

/// The scenario cannot be run.
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

/// The faults of the SLO, one per line.
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

/// Of type 2: one bucket for the only website.
pub(super) const SLO: u16 = 2001;

pub(super) const WEBSITE: &str = "shop.example";

/// One bucket needs one entry.
pub(super) const SIZING: Sizing = Sizing { entries_max: 16, expire: Duration::from_secs(30) };

/// As much as the largest annex of one key takes up, and more.
pub(super) const ANNEX_BYTES_MAX: usize = 64 << 20;

impl Scenario {
    /// # Errors
    /// What [`run`](Scenario::run) would refuse before it begins.
    pub fn check(&self) -> Result<(), ScenarioError> {
        self.policy().map(drop)
    }

    pub(super) fn policy(&self) -> Result<Policy, ScenarioError> {
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
