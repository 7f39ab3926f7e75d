//! Several nodes that share the SLO: how the load is spread over the nodes, and the faults of their store.

use std::str::FromStr;
use std::time::Duration;

use fastrand::Rng;

use crate::simulate::{Span, Who};

/// The maximum number of nodes.
pub const NODES_MAX: u32 = 1_000;

/// The store counts as silent after this long without an answer.
pub const SILENT_AFTER: Duration = Duration::from_millis(500);

/// An uneven distribution of the load over the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skew {
    /// The part of the load that the first node gets; the other nodes share the remainder equally.
    First(Share),
    /// Node number n gets a part of the load in proportion to 1/n (Zipf's law).
    Zipf,
}

impl FromStr for Skew {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Skew, &'static str> {
        if text == "zipf" { Ok(Skew::Zipf) } else { text.parse().map(Skew::First) }
    }
}

/// A part of a load: 0 to 100 percent, in steps of a hundredth of a percent.
///
/// ```
/// use slowlane_lab::simulate::Share;
/// let most: Share = "80%".parse().unwrap();
/// assert_eq!((most.of(5), most.of(400)), (4, 320));
/// assert!("0.8".parse::<Share>().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    hundredths: u32,
}

const EXPECTED_SHARE: &str = "expected a part of the load from 0% to 100%, like 80% or 12.5%";

impl Share {
    pub(super) const ALL: u32 = 10_000;

    /// The share of a number, rounded down.
    pub fn of(self, count: u32) -> u32 {
        (u64::from(count) * u64::from(self.hundredths) / u64::from(Share::ALL)) as u32
    }

    /// Whether a random number below [`Share::ALL`] falls within this share.
    pub(super) fn covers(self, drawn: u32) -> bool {
        drawn < self.hundredths
    }
}

impl FromStr for Share {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Share, &'static str> {
        let number = text.strip_suffix('%').ok_or(EXPECTED_SHARE)?;
        let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
        let is_short = (1..=3).contains(&whole.len()) && (1..=2).contains(&part.len());
        if !is_short || !whole.bytes().chain(part.bytes()).all(|byte| byte.is_ascii_digit()) {
            return Err(EXPECTED_SHARE);
        }
        let hundredths = format!("{whole}{part:0<2}").parse().expect("at most five digits");
        if hundredths <= Share::ALL { Ok(Share { hundredths }) } else { Err(EXPECTED_SHARE) }
    }
}

/// The golden ratio minus 1. Its multiples, modulo 1, are evenly spread.
const GOLDEN_RATIO: f64 = 0.618_033_988_75;

/// One node, or several nodes and a store that is a round trip away from each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// From 1 to [`NODES_MAX`]. With one node, no other field matters except `holds` under `law=protect`.
    pub nodes: u32,
    /// The total time that a message to the store and the store's answer take.
    pub round_trip: Duration,
    /// The time between two reports from a node to the store.
    pub period: Duration,
    /// Whether each request goes to a random node. If not, a connection stays on its node, and only an attacker's
    /// requests go to random nodes.
    pub is_spread: bool,
    /// None if all nodes get the same load.
    pub skew: Option<Skew>,
    /// Whether the node holds the answer until the request's turn, which may still move. If not, the proxy delays the
    /// request itself, and the delay is final.
    pub holds: bool,
    /// Messages that would reach the store during this time are lost.
    pub dead: Option<Span>,
    /// The store forgets everything at this moment.
    pub flushed: Option<Duration>,
}

impl Cluster {
    /// This many nodes with equal loads. They report every 100 ms to a store without faults; a round trip takes 1 ms.
    pub fn new(nodes: u32) -> Cluster {
        Cluster {
            nodes,
            round_trip: Duration::from_millis(1),
            period: Duration::from_millis(100),
            is_spread: false,
            skew: None,
            holds: true,
            dead: None,
            flushed: None,
        }
    }

    /// The node of the next request of a connection.
    pub(super) fn node(&self, who: Who, connection: u32, rng: &mut Rng) -> u32 {
        match self.nodes {
            1 => 0,
            _ if self.is_spread || who == Who::Attacker => self.any(rng),
            _ => self.home(connection),
        }
    }

    /// The node on which a connection stays. Each node gets about its part of any number of connections.
    fn home(&self, connection: u32) -> u32 {
        let skew = match self.skew {
            None => return connection % self.nodes,
            Some(Skew::Zipf) => return self.by_weight((f64::from(connection + 1) * GOLDEN_RATIO).fract()),
            Some(Skew::First(skew)) => skew,
        };
        let before = skew.of(connection);
        if skew.of(connection + 1) > before { 0 } else { 1 + (connection - before) % (self.nodes - 1) }
    }

    fn any(&self, rng: &mut Rng) -> u32 {
        match self.skew {
            None => rng.u32(0..self.nodes),
            Some(Skew::Zipf) => self.by_weight(rng.f64()),
            Some(Skew::First(skew)) if skew.covers(rng.u32(0..Share::ALL)) => 0,
            Some(Skew::First(_)) => rng.u32(1..self.nodes),
        }
    }

    /// The node at this fraction of the sum of all nodes' weights.
    fn by_weight(&self, part: f64) -> u32 {
        let weight = |node: u32| 1.0 / f64::from(node + 1);
        let mut left = part * (0..self.nodes).map(weight).sum::<f64>();
        let passed = (0..self.nodes).position(|node| {
            left -= weight(node);
            left < 0.0
        });
        passed.map_or(0, |node| node as u32)
    }
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;
    use proptest::prelude::*;

    use super::*;

    /// The connections or requests of each node, of 1000.
    fn counts(cluster: Cluster, who: Who) -> Vec<u32> {
        let (mut rng, mut counts) = (Rng::with_seed(1), vec![0; cluster.nodes as usize]);
        (0..1_000).for_each(|connection| counts[cluster.node(who, connection, &mut rng) as usize] += 1);
        counts
    }

    #[test]
    fn connections_are_spread_evenly_but_for_the_share_of_the_first_node() {
        let skewed = |skew: &str| Cluster { skew: Some(skew.parse().unwrap()), ..Cluster::new(5) };
        assert_eq!(counts(Cluster::new(5), Who::Client), [200; 5]);
        assert_eq!(counts(skewed("80%"), Who::Client), [800, 50, 50, 50, 50]);
        assert_eq!(counts(skewed("0%"), Who::Greedy), [0, 250, 250, 250, 250]);
        assert_eq!(counts(skewed("100%"), Who::Client), [1_000, 0, 0, 0, 0]);
        let few: Vec<u32> = (0..10).map(|client| skewed("80%").home(client)).collect();
        assert_eq!(few, [1, 0, 0, 0, 0, 2, 0, 0, 0, 0], "also of few");
    }

    #[test]
    fn requests_to_any_node_are_spread_by_chance() {
        let skewed = Cluster { skew: Some("80%".parse().unwrap()), ..Cluster::new(5) };
        for counts in
            [counts(skewed, Who::Attacker), counts(Cluster { is_spread: true, ..skewed }, Who::Client)]
        {
            assert!((750..850).contains(&counts[0]), "{counts:?}");
            assert!(counts[1..].iter().all(|count| (25..80).contains(count)), "{counts:?}");
        }
        assert!(counts(Cluster::new(5), Who::Attacker).iter().all(|count| (150..250).contains(count)));
    }

    proptest! {
        #[test]
        fn a_part_reads_back_as_it_was_written(hundredths in 0..=Share::ALL) {
            let share = Share { hundredths };
            prop_assert_eq!(format!("{}%", f64::from(hundredths) / 100.0).parse(), Ok(share));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[0-9.%]{0,8}") {
            if let Ok(share) = text.parse::<Share>() {
                prop_assert!(share.hundredths <= Share::ALL && share.of(7) <= 7);
            }
        }
    }

    #[test]
    fn other_texts_than_percents_are_refused() {
        for text in
            ["", "%", "80", "0.8", "100.01%", "101%", "-1%", "+1%", "1.%", ".5%", "1.234%", "80 %", "é%"]
        {
            assert_eq!(text.parse::<Share>(), Err(EXPECTED_SHARE), "{text:?}");
        }
        assert_eq!("007.5%".parse(), Ok(Share { hundredths: 750 }));
    }
}
