//! A scenario: one law, one objective, a load and the nodes that share them.

use std::path::Path;
use std::time::Duration;
use std::{fmt, io};

use thiserror::Error;

use crate::simulate::cluster::{Cluster, ClusterError};
use crate::simulate::load::{Load, LoadError, Phases};
use crate::simulate::span::Span;
use slowlane_core::base::units::Rate;
use slowlane_core::law::Law;
use slowlane_core::policy::{DEFAULT_LINE, Fault, Layout, Policy};

/// One law, one objective, a load and the nodes that share them.
///
/// ```
/// use slowlane_lab::simulate::{Load, Scenario};
///
/// // 50 clients in a closed loop get 50 requests/s between them, and each request waits for a second.
/// let load = Load { clients: "50".parse().unwrap(), ..Load::default() };
/// let rate = "50/s".parse().unwrap();
/// let scenario = Scenario {
///     law: "pace".into(), options: vec![], rate, burst: 100, load, cluster: None, seconds: 20, measured: None, seed: 1,
/// };
/// let outcome = scenario.run(|_| ()).unwrap();
/// let figures = &outcome.phases[0].all;
/// assert!(figures.error(rate).unwrap().abs() < 0.005);
/// assert_eq!((figures.denied, figures.p50_ms), (0, Some(999)));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    pub law: String,
    /// Names and values, as on a line of `slo.map`.
    pub options: Vec<(String, String)>,
    pub rate: Rate,
    pub burst: u32,
    pub load: Load,
    /// Several nodes share the SLO. None: there is one.
    pub cluster: Option<Cluster>,
    /// 1 to [`SECONDS_MAX`].
    pub seconds: u32,
    /// The measured part. None: the last three quarters, of the run or of each of its phases.
    pub measured: Option<Span>,
    pub seed: u64,
}

/// One day.
pub const SECONDS_MAX: u32 = 86_400;

/// Why a scenario cannot be run.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum ScenarioError {
    #[error("{0}")]
    Slo(SloFaults),
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error("{0} seconds: expected 1 to {SECONDS_MAX}")]
    Seconds(u32),
    #[error("{0} is measured, but the run ends before that: use more seconds")]
    MeasuredLate(Span),
    #[error(
        "{0} is measured, but each phase of {1} has a measured part of its own: name one number of clients"
    )]
    MeasuredPhases(Span, Phases),
    #[error(
        "{law}: more than {requests_max} requests, or too many in flight at once: use fewer seconds or clients, or \
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

/// An SLO of type 2: one bucket for the website that all requests are for.
pub(super) const SLO: u16 = 2001;

pub(super) const WEBSITE: &str = "shop.example";

impl Scenario {
    /// # Errors
    /// Any error that [`run`](Scenario::run) would give before its first request.
    pub fn check(&self) -> Result<(), ScenarioError> {
        self.policy().map(drop)
    }

    pub(super) fn policy(&self) -> Result<Policy, ScenarioError> {
        self.load.check()?;
        if !(1..=SECONDS_MAX).contains(&self.seconds) {
            return Err(ScenarioError::Seconds(self.seconds));
        }
        self.check_measured()?;
        let end = Duration::from_secs(self.seconds.into());
        if let Some(cluster) = self.cluster {
            cluster.check(&self.law, self.rate, end)?;
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

    fn check_measured(&self) -> Result<(), ScenarioError> {
        let (end, phases) = (Duration::from_secs(self.seconds.into()), &self.load.clients);
        match self.measured {
            Some(span) if span.to() > end => Err(ScenarioError::MeasuredLate(span)),
            Some(span) if phases.counts().len() > 1 => {
                Err(ScenarioError::MeasuredPhases(span, phases.clone()))
            }
            _ => Ok(()),
        }
    }

    /// The SLO as the value of a line of `slo.map`.
    fn line(&self) -> String {
        let mut line = format!("burst={} rate={} law={}", self.burst, self.rate, self.law);
        for (name, value) in &self.options {
            line += &format!(" {name}={value}");
        }
        line
    }

    /// The laws whose objective is a rate, so that they can be compared.
    pub fn laws_of_rates() -> impl Iterator<Item = &'static str> {
        Law::NAMES.iter().copied().filter(|&name| name != "concurrency")
    }
}
