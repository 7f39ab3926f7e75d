//! The load: the clients, and when they send their requests.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::time::Duration;

use fastrand::Rng;
use slowlane_core::base::units::{duration, written};
use slowlane_core::base::{Amount, Rate};

/// The maximum total number of client, greedy and crowd connections.
pub(super) const CLIENTS_MAX: u32 = 10_000;

/// The maximum number of phases of a run.
pub(super) const PHASES_MAX: usize = 24;

/// The minimum pause. Without a pause, a refused client would retry at the same moment for ever.
pub(super) const THINK_MIN: Duration = Duration::from_micros(100);

/// The load. Clients, greedy connections and a crowd wait for each answer; an attacker does not.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// Connections, each with its own source.
    pub clients: Phases,
    /// Connections that share one source.
    pub greedy: u32,
    /// The rate of another source, which ignores all answers.
    pub attack: Option<Rate>,
    /// None if the attacker sends during the whole run.
    pub attack_during: Option<Span>,
    /// Many sources in a few networks. Each source sends its next request almost at once.
    pub crowd: Option<CrowdLoad>,
    /// The number of requests that the application serves at a time, while others wait in order. None if all are served
    /// at once.
    pub workers: Option<u32>,
    /// The mean pause of clients and greedy connections, from an answer to the next request. Pauses vary uniformly from
    /// 0.5 to 1.5 times this mean.
    pub think: Duration,
    /// The time that the application takes for a request. If None, the time is the request's cost, if the unit is
    /// seconds; otherwise zero, or `SERVICE_IN_FLIGHT` with workers or under a law that counts requests in flight.
    pub service: Option<Duration>,
    /// The costs of requests in the unit of the SLO. None if the SLO counts requests.
    pub cost: Option<Costs>,
    /// A client with a longer delay disconnects after this time. Its slot is lost, unless the node holds the request.
    pub patience: Option<Duration>,
    /// Whether clients ignore Retry-After and, after a 429, retry after only the usual pause.
    pub ignores_retry_after: bool,
}

/// The default service time. Without a service time, no request would ever be in flight.
const SERVICE_IN_FLIGHT: Duration = Duration::from_millis(20);

/// A group of senders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    Client,
    Greedy,
    Attacker,
    Crowd,
}

impl Who {
    pub const ALL: [Who; 4] = [Who::Client, Who::Greedy, Who::Attacker, Who::Crowd];

    pub const fn name(self) -> &'static str {
        match self {
            Who::Client => "clients",
            Who::Greedy => "greedy",
            Who::Attacker => "attacker",
            Who::Crowd => "crowd",
        }
    }
}

impl Default for Load {
    /// Ten clients that pause for a millisecond.
    fn default() -> Load {
        Load {
            clients: Phases(vec![10]),
            greedy: 0,
            attack: None,
            attack_during: None,
            crowd: None,
            workers: None,
            think: Duration::from_millis(1),
            service: None,
            cost: None,
            patience: None,
            ignores_retry_after: false,
        }
    }
}

impl Load {
    pub(super) fn has(&self, who: Who) -> bool {
        match who {
            Who::Client => self.clients.max() > 0,
            Who::Greedy => self.greedy > 0,
            Who::Attacker => self.attack.is_some_and(|rate| !rate.is_zero()),
            Who::Crowd => self.crowd.is_some(),
        }
    }

    /// The total number of connections: client connections come first, then greedy connections, then the crowd's.
    pub(super) fn connections(&self) -> u32 {
        let crowd = self.crowd.map_or(0, |crowd| crowd.sources.saturating_mul(crowd.connections));
        self.clients.max().saturating_add(self.greedy).saturating_add(crowd)
    }

    pub(super) fn group(&self, connection: u32) -> Who {
        match connection.checked_sub(self.clients.max()) {
            None => Who::Client,
            Some(other) if other < self.greedy => Who::Greedy,
            Some(_) => Who::Crowd,
        }
    }

    pub(super) fn service(&self, aims_at_rate: bool) -> Duration {
        let is_instant = aims_at_rate && self.workers.is_none();
        self.service.unwrap_or(if is_instant { Duration::ZERO } else { SERVICE_IN_FLIGHT })
    }

    /// The number of the source of a connection. The sources of clients come first.
    pub(super) fn source(&self, who: Who, connection: u32) -> u32 {
        let of_group = self.sources(who);
        match who {
            Who::Client => connection,
            Who::Greedy | Who::Attacker => of_group.start,
            Who::Crowd => {
                of_group.start + (connection - self.clients.max() - self.greedy) % of_group.len() as u32
            }
        }
    }

    /// The numbers of the sources of a group.
    pub(super) fn sources(&self, who: Who) -> Range<u32> {
        let clients = self.clients.max();
        match who {
            Who::Client => 0..clients,
            Who::Greedy => clients..clients + 1,
            Who::Attacker => clients + 1..clients + 2,
            Who::Crowd => clients + 2..clients + 2 + self.crowd.map_or(0, |crowd| crowd.sources),
        }
    }

    /// The place of a source among all addresses: either in its own network, or in one of the crowd's networks.
    pub(super) fn place(&self, source: u32) -> u32 {
        let member = source.checked_sub(self.sources(Who::Crowd).start);
        match self.crowd.zip(member) {
            None => source * NETWORK_PLACES,
            Some((CrowdLoad { networks, .. }, member)) => {
                CROWD_PLACE + member % networks * NETWORK_PLACES + member / networks
            }
        }
    }
}

/// The number of addresses in an IPv4 network, and the place at which the crowd's first network begins.
const NETWORK_PLACES: u32 = 256;
const CROWD_PLACE: u32 = 1 << 23;

/// A crowd: the number of sources, the connections from each, and the networks over which the sources are spread.
///
/// ```
/// use slowlane_lab::simulate::CrowdLoad;
/// let crowd: CrowdLoad = "200x2/5".parse().unwrap();
/// assert_eq!((crowd.sources, crowd.connections, crowd.networks), (200, 2, 5));
/// assert!(["200x2", "0x1/1", "2x1/3", "9x9/", "255x1/1"].iter().all(|text| text.parse::<CrowdLoad>().is_err()));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrowdLoad {
    pub sources: u32,
    pub connections: u32,
    pub networks: u32,
}

impl FromStr for CrowdLoad {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<CrowdLoad, &'static str> {
        let numbers = text.split(['x', '/']).map(str::parse).collect::<Result<Vec<u32>, _>>();
        match numbers.as_deref() {
            Ok(&[sources @ 1..=CLIENTS_MAX, connections @ 1..=CLIENTS_MAX, networks])
                if (1..=sources).contains(&networks) && sources.div_ceil(networks) < NETWORK_PLACES - 1 =>
            {
                Ok(CrowdLoad { sources, connections, networks })
            }
            _ => Err(
                "expected SOURCESxCONNECTIONS/NETWORKS with at most 254 sources per network, like 200x2/5",
            ),
        }
    }
}

/// Log-normal costs: their median, and the standard deviation of their logarithm.
///
/// ```
/// use slowlane_lab::simulate::Costs;
/// let costs: Costs = "0.4,0".parse().unwrap();
/// assert_eq!(costs.sample(&mut fastrand::Rng::new()).to_string(), "0.4");
/// assert_eq!("0.4".parse::<Costs>(), "0.4,1".parse());
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    median: Amount,
    sigma: f64,
}

/// The maximum standard deviation: costs with a larger deviation have no useful mean.
const SIGMA_MAX: f64 = 3.0;

impl Costs {
    pub fn sample(&self, rng: &mut Rng) -> Amount {
        // A normal deviate, by Box and Muller.
        let normal = (-2.0 * (1.0 - rng.f64()).ln()).sqrt() * (std::f64::consts::TAU * rng.f64()).cos();
        Amount::from_micros((self.median.micros() as f64 * (self.sigma * normal).exp()).round() as u64)
    }
}

impl FromStr for Costs {
    type Err = String;

    fn from_str(text: &str) -> Result<Costs, String> {
        let (median, sigma) = text.split_once(',').unwrap_or((text, "1"));
        let median = Amount::read(median.as_bytes()).ok().filter(|median| *median > Amount::ZERO);
        let sigma = sigma.parse().ok().filter(|sigma| (0.0..=SIGMA_MAX).contains(sigma));
        median.zip(sigma).map(|(median, sigma)| Costs { median, sigma }).ok_or_else(|| {
            format!(
                "expected a median above 0, like 0.4, or a median and a sigma from 0 to {SIGMA_MAX}, like 0.4,0.5"
            )
        })
    }
}

/// The number of clients, either in the whole run or in each of its equal phases.
///
/// ```
/// use slowlane_lab::simulate::Phases;
/// let step: Phases = "5-50-5".parse().unwrap();
/// assert_eq!((step.counts(), step.to_string()), (&[5, 50, 5][..], "5-50-5".to_owned()));
/// assert!("5-".parse::<Phases>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phases(Vec<u32>);

impl Phases {
    /// Never empty.
    pub fn counts(&self) -> &[u32] {
        &self.0
    }

    pub(super) fn max(&self) -> u32 {
        self.0.iter().copied().max().expect("there is always at least one count")
    }
}

impl FromStr for Phases {
    type Err = String;

    fn from_str(text: &str) -> Result<Phases, String> {
        let count = |digits: &str| {
            let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
            digits.parse().ok().filter(|&count| is_number && count <= CLIENTS_MAX)
        };
        let counts = text.split('-').map(count).collect::<Option<Vec<u32>>>();
        counts.filter(|counts| counts.len() <= PHASES_MAX).map(Phases).ok_or_else(|| {
            format!(
                "expected a number of clients from 0 to {CLIENTS_MAX}, like 50, or up to {PHASES_MAX} such numbers \
                 joined by hyphens, like 5-50-5, one for each equal part of the run"
            )
        })
    }
}

impl fmt::Display for Phases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts: Vec<String> = self.0.iter().map(u32::to_string).collect();
        f.write_str(&counts.join("-"))
    }
}

/// A part of a run, written `FROM..TO`. `FROM` and `TO` are times since the start of the run; `TO` is excluded.
///
/// ```
/// use std::time::Duration;
/// use slowlane_lab::simulate::Span;
/// let minute: Span = "20s..80s".parse().unwrap();
/// assert_eq!((minute.from, minute.to), (Duration::from_secs(20), Duration::from_secs(80)));
/// assert!("80s..20s".parse::<Span>().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub from: Duration,
    /// Always later than `from`.
    pub to: Duration,
}

const EXPECTED_SPAN: &str =
    "expected two times after the start of the run, the earlier time first, like 20s..80s";

impl Span {
    pub fn contains(self, moment: Duration) -> bool {
        (self.from..self.to).contains(&moment)
    }
}

impl FromStr for Span {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Span, &'static str> {
        let (from, to) = text.split_once("..").ok_or(EXPECTED_SPAN)?;
        let (from, to) =
            (duration(from).map_err(|_| EXPECTED_SPAN)?, duration(to).map_err(|_| EXPECTED_SPAN)?);
        if from < to { Ok(Span { from, to }) } else { Err(EXPECTED_SPAN) }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", written(self.from), written(self.to))
    }
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn other_texts_than_numbers_of_clients_are_refused() {
        for text in ["", "-", "x", "5--5", "+5", " 5", "10001", "99999999999", "5@3s", &"1-".repeat(30)] {
            assert!(text.parse::<Phases>().is_err(), "{text:?}");
        }
        assert_eq!("007".parse(), Ok(Phases(vec![7])));
        for text in ["", "0", "-1", "x", "1,", "1,-1", "1,4", "1,nan", "1,1,1", "1e3", "400ms"] {
            assert!(text.parse::<Costs>().is_err(), "{text:?}");
        }
    }

    /// Half of the costs are above the median, and a sixth above the median times e.
    #[test]
    fn costs_are_log_normal() {
        let (costs, mut rng) = ("2".parse::<Costs>().unwrap(), Rng::with_seed(1));
        let costs: Vec<f64> = (0..20_000).map(|_| costs.sample(&mut rng).micros() as f64 / 1e6).collect();
        let share = |over: f64| costs.iter().filter(|&&cost| cost > over).count() as f64 / costs.len() as f64;
        assert!((share(2.0) - 0.5).abs() < 0.01 && (share(2.0 * std::f64::consts::E) - 0.159).abs() < 0.01);
    }

    proptest! {
        #[test]
        fn a_part_reads_back_as_it_was_written(from_ms in 0u64..1_000_000, length_ms in 1u64..1_000_000) {
            let from = Duration::from_millis(from_ms);
            let span = Span { from, to: from + Duration::from_millis(length_ms) };
            prop_assert_eq!(span.to_string().parse(), Ok(span));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[0-9a-z.]{0,12}") {
            if let Ok(span) = text.parse::<Span>() {
                prop_assert!(span.from < span.to && span.contains(span.from) && !span.contains(span.to));
            }
        }
    }

    #[test]
    fn other_texts_than_two_times_in_order_are_refused() {
        for text in ["", "20s", "20s..", "..80s", "20..80", "20s-80s", "5s..5s", "1s..2s..3s", "20s .. 80s"] {
            assert_eq!(text.parse::<Span>(), Err(EXPECTED_SPAN), "{text:?}");
        }
    }
}
