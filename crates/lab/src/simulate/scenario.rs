//! A scenario: one law, one objective, a load and the nodes that share the objective.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::time::Duration;

use thiserror::Error;

use crate::simulate::load::{CLIENTS_MAX, Load, Phases, THINK_MIN, Who};
use crate::simulate::{Cluster, SILENT_AFTER, Span};
use slowlane_core::base::{Rate, Request, Timestamp, Unit, Value, units::written};
use slowlane_core::law::Law;
use slowlane_core::policy::{DEFAULT_LINE, Layout, Policy};
use slowlane_core::table::Sizing;

/// One law, one objective, a load and the nodes that share the objective.
///
/// ```
/// use slowlane_lab::simulate::{Cluster, Load, Scenario};
///
/// // 50 clients in a closed loop get 50 requests/s between them, and each request waits for a second.
/// let load = Load { clients: "50".parse().unwrap(), ..Load::default() };
/// let scenario = Scenario {
///     law: "pace".into(), options: vec![], rate: "50/s".into(), burst: "100".into(), load, cluster: Cluster::new(1), seconds: 20,
///     measured: vec![], seed: 1,
/// };
/// let outcome = scenario.run(|_| ()).unwrap();
/// let figures = outcome.phases[0].all();
/// assert!(figures.error(50.0).unwrap().abs() < 0.005);
/// assert_eq!((figures.denied, figures.p50_ms), (0, Some(999)));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// The name of a law.
    pub law: String,
    /// Names and values, as on a line of `slo.map`.
    pub options: Vec<(String, String)>,
    /// Written as on a line of `slo.map`, in the unit that the options name.
    pub rate: String,
    pub burst: String,
    pub load: Load,
    /// The nodes that share the SLO.
    pub cluster: Cluster,
    /// The length of the run, 1 to [`SECONDS_MAX`].
    pub seconds: u32,
    /// The measured parts, in order. If empty, the last three quarters of the run or of each phase are measured.
    pub measured: Vec<Span>,
    pub seed: u64,
}

/// The maximum length of a run: one day.
pub const SECONDS_MAX: u32 = 86_400;

/// The laws whose rate several nodes can share.
const SHARED_LAWS: [&str; 3] = ["pace", "token-bucket", "leaky-bucket"];

/// The maximum total number of periods of all nodes in a run: they take a minute of computing.
const PERIODS_MAX: u128 = 100_000_000;

/// The reason why a scenario cannot be run.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum ScenarioError {
    /// The faults of the SLO, one per line.
    #[error("{0}")]
    Slo(String),
    #[error(
        "the clients, greedy clients and crowd have {0} connections in all: expected at most {CLIENTS_MAX}"
    )]
    Clients(u32),
    #[error("a pause of {0:?}: expected at least {THINK_MIN:?}, or a refused client would retry forever")]
    Think(Duration),
    #[error("no load: expected clients, greedy connections, a crowd or an attacker")]
    Nobody,
    #[error(
        "{0}: several nodes can share only pace, token-bucket and leaky-bucket: choose one of these laws, \
         or simulate one node"
    )]
    SharedLaw(String),
    #[error("rate {0}: there is nothing to share among nodes: expected a rate above 0")]
    SharedRate(String),
    #[error("unit={0}: the cost of a request is unknown: add --cost, like --cost 0.4")]
    NoCost(Unit),
    #[error(
        "--cost: the SLO counts requests: give the SLO a unit, like --option unit=seconds --rate 2s/s \
         --burst 20s"
    )]
    CostOfNone,
    #[error("--cost: work is simulated on one node only: leave out --nodes")]
    SharedWork,
    #[error(
        "a round trip of {}: expected less than {}, or the store would count as silent",
        written(*.0), written(SILENT_AFTER)
    )]
    RoundTrip(Duration),
    #[error(
        "with a period of {}, the nodes would contact the store too often in this run: use a longer period, \
         or fewer seconds",
        written(*.0)
    )]
    Period(Duration),
    /// Something is planned for a time after the run has ended.
    #[error("{0}, but the run ends too early: use more seconds")]
    Late(String),
    #[error(
        "the measured part {0} begins before the previous part ends: give the parts in order, without overlap"
    )]
    MeasuredOrder(Span),
    #[error(
        "the number of clients, {1}, changes during the measured part {0}: split this part at the change"
    )]
    MeasuredPhases(Span, Phases),
    #[error(
        "{law}: more than {requests_max} requests, or too many in flight at once: use fewer seconds or clients, or \
         longer pauses"
    )]
    TooManyRequests { law: String, requests_max: u64 },
}

/// An SLO of type 2: one bucket for the single website that all requests are for.
pub(super) const SLO: u32 = 2001;

pub(super) const WEBSITE: &str = "shop.example";

/// One bucket needs one entry.
pub(super) const SIZING: Sizing = Sizing { entries_max: 16, expire: Duration::from_secs(30) };

/// More memory than the largest auxiliary state of one key takes.
pub(super) const ANNEX_BYTES_MAX: usize = 64 << 20;

/// The start of a run is midnight, for laws whose windows are aligned to the clock.
const START: Timestamp = Timestamp::from_millis(20_000 * 86_400 * 1_000);

const FIRST_SOURCE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

/// The timestamp at this time after the start of the run.
pub(super) fn at(now_ns: u64) -> Timestamp {
    START + Duration::from_nanos(now_ns)
}

/// A request for the SLO's website, from the source with this place among all addresses.
pub(super) fn request<'a>(place: u32) -> Request<'a> {
    let address = IpAddr::V4(Ipv4Addr::from_bits(FIRST_SOURCE.to_bits() + place));
    let mut request = Request::new();
    request.push(b"source", Value::Address(address));
    request.push(b"website", Value::Text(WEBSITE.as_bytes()));
    request
}

impl Scenario {
    /// # Errors
    /// Any error that [`run`](Scenario::run) would return before its first request.
    pub fn check(&self) -> Result<(), ScenarioError> {
        self.policy().map(drop)
    }

    pub(super) fn policy(&self) -> Result<Policy, ScenarioError> {
        check_load(&self.load)?;
        let (end, phases) = (Duration::from_secs(self.seconds.into()), &self.load.clients);
        if let Some(during) = self.load.attack_during.filter(|during| during.to > end) {
            return Err(ScenarioError::Late(format!("the attack is planned for {during}")));
        }
        let mut before = Duration::ZERO;
        for &span in &self.measured {
            if span.to > end {
                return Err(ScenarioError::Late(format!("a measurement is planned for {span}")));
            }
            if span.from < before {
                return Err(ScenarioError::MeasuredOrder(span));
            }
            let phase = |at: Duration| at.as_nanos() * phases.counts().len() as u128 / end.as_nanos();
            if phase(span.from) != phase(span.to - Duration::from_nanos(1)) {
                return Err(ScenarioError::MeasuredPhases(span, phases.clone()));
            }
            before = span.to;
        }
        if self.cluster.nodes > 1 {
            self.check_cluster(&self.cluster, end)?;
        }
        let options: String = self.options.iter().map(|(name, value)| format!(" {name}={value}")).collect();
        let Scenario { burst, rate, law, .. } = self;
        let objective =
            if law == Law::PROTECT { String::new() } else { format!("burst={burst} rate={rate} ") };
        let slo_map = format!("{DEFAULT_LINE}\n{SLO} {objective}law={law}{options}\n");
        let read = |path: &Path| match path.to_str() {
            Some("slo.map") => Ok(slo_map.clone().into_bytes()),
            Some("website.map") => Ok(format!("{WEBSITE} {SLO}\n").into_bytes()),
            _ => Err(io::ErrorKind::NotFound.into()),
        };
        let policy = Policy::parse(Path::new(""), &Layout::default(), read).map_err(|problems| {
            let errors = problems.listed().iter().map(|error| format!("{law}: {}", error.kind));
            ScenarioError::Slo(errors.collect::<Vec<_>>().join("\n"))
        })?;
        let unit = policy.slos().find_map(|slo| slo.unit());
        match (unit, self.load.cost) {
            (Some(unit), None) => Err(ScenarioError::NoCost(unit.clone())),
            (None, Some(_)) => Err(ScenarioError::CostOfNone),
            (Some(_), _) if self.cluster.nodes > 1 => Err(ScenarioError::SharedWork),
            _ => Ok(policy),
        }
    }

    fn check_cluster(&self, cluster: &Cluster, end: Duration) -> Result<(), ScenarioError> {
        if !SHARED_LAWS.contains(&self.law.as_str()) {
            return Err(ScenarioError::SharedLaw(self.law.clone()));
        }
        if self.rate.parse().is_ok_and(Rate::is_zero) {
            return Err(ScenarioError::SharedRate(self.rate.clone()));
        }
        if cluster.round_trip >= SILENT_AFTER {
            return Err(ScenarioError::RoundTrip(cluster.round_trip));
        }
        if end.as_nanos() * u128::from(cluster.nodes) > cluster.period.as_nanos() * PERIODS_MAX {
            return Err(ScenarioError::Period(cluster.period));
        }
        let mut faults = cluster.dead.map(|dead| dead.from).into_iter().chain(cluster.flushed);
        match faults.find(|&at| at >= end) {
            Some(at) => {
                Err(ScenarioError::Late(format!("a fault of the store is planned for {}", written(at))))
            }
            None => Ok(()),
        }
    }

    /// The laws whose objective is a rate, so that these laws can be compared.
    pub fn laws_of_rates() -> impl Iterator<Item = &'static str> {
        Law::NAMES.iter().copied().filter(|&name| name != "concurrency")
    }
}

fn check_load(load: &Load) -> Result<(), ScenarioError> {
    if load.connections() > CLIENTS_MAX {
        return Err(ScenarioError::Clients(load.connections()));
    }
    if load.think < THINK_MIN {
        return Err(ScenarioError::Think(load.think));
    }
    match Who::ALL.iter().any(|&who| load.has(who)) {
        true => Ok(()),
        false => Err(ScenarioError::Nobody),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_not_empty_and_not_too_large() {
        let nobody = Load { clients: "0".parse().unwrap(), ..Load::default() };
        assert_eq!(check_load(&nobody), Err(ScenarioError::Nobody));
        assert_eq!(check_load(&Load { greedy: 1, ..nobody.clone() }), Ok(()));
        let attack = |rate: &str| check_load(&Load { attack: Some(rate.parse().unwrap()), ..nobody.clone() });
        assert_eq!((attack("1/s"), attack("0/s")), (Ok(()), Err(ScenarioError::Nobody)));
        assert_eq!(
            check_load(&Load { greedy: 9_991, ..Load::default() }),
            Err(ScenarioError::Clients(10_001))
        );
        let think = Duration::from_micros(99);
        assert_eq!(check_load(&Load { think, ..Load::default() }), Err(ScenarioError::Think(think)));
    }
}
