//! The nodes of a cluster: how they announce themselves, and how the store lists them.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::{Key, KeySecret, Timestamp};
use crate::cluster::Hint;

/// A node's report about itself in each heartbeat.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Member {
    /// The node's name, chosen by its operator.
    pub name: String,
    /// Identifies the run of the process: no two runs have the same number.
    pub run: String,
    pub version: String,
    /// A hash of the SLOs that the node shares.
    pub policy: String,
    /// The node's wall clock minus the store's, in milliseconds.
    pub clock_ms: i64,
}

/// The role of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    Node,
    /// The token server's own node. Its key secret counts only until another node reports a key secret: a token server
    /// that has just started, or a standby, knows none of the keys that the nodes count.
    Own,
    /// A node without requests under shared SLOs, which takes no share of the rate.
    Onlooker,
}

/// How long a node counts as present without a heartbeat. A heartbeat is sent each second; three may be lost.
pub const PRESENT: Duration = Duration::from_millis(3_500);

/// How long the key secret outlives the last node, so that nodes find it again after all were stopped overnight.
pub const SECRET_KEPT: Duration = Duration::from_secs(86_400);

/// The maximum length of a string in a node's report about itself.
const TEXT_BYTES_MAX: usize = 128;

impl Member {
    /// Reads a node's report about itself. None if it is malformed, or a string is too long or has control characters.
    pub fn read(arguments: &[u8]) -> Option<Member> {
        let member: Member = serde_json::from_slice(arguments).ok()?;
        member.is_within_bounds().then_some(member)
    }

    /// Whether all strings are short and have no control characters, so that they can be displayed.
    pub(super) fn is_within_bounds(&self) -> bool {
        let texts = [&self.name, &self.run, &self.version, &self.policy];
        texts.iter().all(|text| text.len() <= TEXT_BYTES_MAX && !text.chars().any(char::is_control))
    }

    pub fn arguments(&self) -> String {
        serde_json::to_string(self).expect("strings and numbers can always be written as JSON")
    }
}

/// A heartbeat: the report about itself that a node sends to the store once a second.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Beat {
    pub member: Member,
    /// The key secret of this node, in hex.
    pub secret: String,
    /// Keys that all nodes must share from now on.
    pub crowded: Vec<Key>,
}

impl Beat {
    pub(super) fn is_within_bounds(&self) -> bool {
        self.member.is_within_bounds() && KeySecret::read(self.secret.as_bytes()).is_some()
    }
}

/// The answer to a heartbeat.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Membership {
    /// The store's clock, in microseconds.
    pub now_us: u64,
    /// The key secret of the cluster, in hex.
    pub secret: String,
    pub members: Vec<Member>,
    pub crowded: Vec<Key>,
    /// The state of some of the crowded keys, at most [`HINTS_MAX`](crate::cluster::HINTS_MAX).
    pub hints: Vec<(Key, Hint)>,
}

/// The maximum number of nodes: half the number of connections that a token server accepts.
const NODES_MAX: usize = 1_000;

/// The maximum number of crowded keys: as many as ten full heartbeats report.
const CROWDED_MAX: usize = 10_000;

/// A key counts as crowded for this long after a node has reported it. Nodes report crowded keys once a second, and one
/// report may be lost.
const CROWDED: Duration = Duration::from_secs(2);

/// The nodes that are present, and their common state.
#[derive(Debug, Default)]
pub struct NodeList {
    members: BTreeMap<String, (Member, Timestamp)>,
    secret: Option<Secret>,
    crowded: BTreeMap<Key, Timestamp>,
}

/// The key secret of the cluster, from the first node that reported one.
#[derive(Debug)]
struct Secret {
    hex: String,
    /// When the secret is forgotten.
    ends: Timestamp,
    of: Presence,
}

impl NodeList {
    /// Applies a heartbeat. An onlooker does not become a member, and its key secret is not adopted.
    pub fn beat(&mut self, beat: Beat, presence: Presence, now: Timestamp) -> Membership {
        let Beat { member, secret, crowded } = beat;
        let gives_way = |known: &Secret| known.of == Presence::Own && presence == Presence::Node;
        self.secret.take_if(|known| now >= known.ends || gives_way(known));
        let hex = self.secret.as_ref().map_or(secret, |known| known.hex.clone());
        self.members.retain(|_, (_, at)| now.since(*at) <= PRESENT);
        if presence != Presence::Onlooker {
            let of = self.secret.as_ref().map_or(presence, |known| known.of);
            self.secret = Some(Secret { hex: hex.clone(), ends: now + SECRET_KEPT, of });
            if self.members.len() < NODES_MAX || self.members.contains_key(&member.run) {
                self.members.insert(member.run.clone(), (member, now));
            }
        }

        self.crowded.retain(|_, at| now.since(*at) <= CROWDED);
        for key in crowded {
            if self.crowded.len() < CROWDED_MAX || self.crowded.contains_key(&key) {
                self.crowded.insert(key, now);
            }
        }
        Membership {
            now_us: now.as_nanos() / 1_000,
            secret: hex,
            members: self.members.values().map(|(member, _)| member.clone()).collect(),
            crowded: self.crowded.keys().copied().collect(),
            hints: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::from_nanos(1_000_000_000_000);

    fn beat(run: usize, crowded: &[u64]) -> Beat {
        Beat {
            member: Member { name: format!("node{run}"), run: format!("{run:016x}"), ..Member::default() },
            secret: format!("secret of {run}"),
            crowded: crowded.iter().map(|&bits| Key::from_bits(bits)).collect(),
        }
    }

    #[test]
    fn the_first_node_brings_the_secret_and_it_outlives_the_last_one() {
        let mut node_list = NodeList::default();
        assert_eq!(node_list.beat(beat(1, &[]), Presence::Node, START).secret, "secret of 1");
        let later = START + (SECRET_KEPT - Duration::from_secs(1));
        assert_eq!(node_list.beat(beat(2, &[]), Presence::Node, later).secret, "secret of 1");
        assert_eq!(node_list.beat(beat(3, &[]), Presence::Node, later + SECRET_KEPT).secret, "secret of 3");
    }

    /// A token server that restarts, or takes over as the standby, has a secret of its own.
    #[test]
    fn the_secret_of_a_token_server_gives_way_to_that_of_the_first_node() {
        let mut node_list = NodeList::default();
        let mut secret = |run, presence| node_list.beat(beat(run, &[]), presence, START).secret;
        let (node, own, onlooker) = (Presence::Node, Presence::Own, Presence::Onlooker);
        assert_eq!(secret(9, onlooker), "secret of 9");
        assert_eq!([secret(1, own), secret(1, own), secret(9, onlooker)], ["secret of 1"; 3]);
        assert_eq!(
            [secret(2, node), secret(1, own), secret(3, node), secret(9, onlooker)],
            ["secret of 2"; 4]
        );
        assert_eq!(
            node_list.beat(beat(9, &[]), onlooker, START).members.len(),
            3,
            "an onlooker counts for nothing"
        );
    }

    #[test]
    fn a_node_counts_until_it_has_been_silent_for_a_while() {
        let mut node_list = NodeList::default();
        node_list.beat(beat(1, &[]), Presence::Node, START);
        assert_eq!(node_list.beat(beat(2, &[]), Presence::Node, START + PRESENT).members.len(), 2);
        let members =
            node_list.beat(beat(2, &[]), Presence::Node, START + PRESENT + Duration::from_millis(1)).members;
        assert_eq!(members.iter().map(|member| member.name.as_str()).collect::<Vec<_>>(), ["node2"]);
    }

    #[test]
    fn crowded_keys_are_told_to_all_for_a_while() {
        let mut node_list = NodeList::default();
        node_list.beat(beat(1, &[7]), Presence::Node, START);
        assert_eq!(
            node_list.beat(beat(2, &[]), Presence::Node, START + CROWDED).crowded,
            [Key::from_bits(7)]
        );
        assert_eq!(
            node_list.beat(beat(2, &[]), Presence::Node, START + CROWDED + Duration::from_millis(1)).crowded,
            []
        );
    }

    #[test]
    fn strangers_find_no_more_room_than_there_is() {
        let mut node_list = NodeList::default();
        let keys: Vec<u64> = (0..2 * CROWDED_MAX as u64).collect();
        for run in 0..NODES_MAX + 10 {
            node_list.beat(beat(run, &[]), Presence::Node, START);
        }
        let membership = node_list.beat(beat(0, &keys), Presence::Node, START);
        assert_eq!((membership.members.len(), membership.crowded.len()), (NODES_MAX, CROWDED_MAX));
    }
}
