//! The store's side of heartbeats: the nodes that are present, and what all of them have in common.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::base::key::Key;
use crate::base::time::Timestamp;
use crate::cluster::members::{Beat, Census, Member, PRESENT, SECRET_KEPT};

/// The most nodes.
const NODES_MAX: usize = 1_000;

/// The most crowded keys.
const CROWDED_MAX: usize = 10_000;

/// A key is crowded for so long after a node has said so.
const CROWDED: Duration = Duration::from_secs(2);

/// The nodes that are present, and what all of them have in common.
#[derive(Debug, Default)]
pub struct Roll {
    members: BTreeMap<String, (Member, Timestamp)>,
    /// The key secret of the first node, and when it is forgotten.
    secret: Option<(String, Timestamp)>,
    crowded: BTreeMap<Key, Timestamp>,
}

impl Roll {
    /// Takes up a heartbeat.
    pub fn beat(&mut self, Beat { member, secret, crowded }: Beat, now: Timestamp) -> Census {
        let known = self.secret.take().filter(|(_, ends)| now < *ends);
        let secret = known.map_or(secret, |(secret, _)| secret);
        self.secret = Some((secret.clone(), now + SECRET_KEPT));

        self.members.retain(|_, (_, at)| now.since(*at) <= PRESENT);
        if self.members.len() < NODES_MAX || self.members.contains_key(&member.run) {
            self.members.insert(member.run.clone(), (member, now));
        }

        self.crowded.retain(|_, at| now.since(*at) <= CROWDED);
        for key in crowded {
            if self.crowded.len() < CROWDED_MAX || self.crowded.contains_key(&key) {
                self.crowded.insert(key, now);
            }
        }
        Census {
            now_us: now.as_nanos() / 1_000,
            secret,
            members: self.members.values().map(|(member, _)| member.clone()).collect(),
            crowded: self.crowded.keys().copied().collect(),
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
        let mut roll = Roll::default();
        assert_eq!(roll.beat(beat(1, &[]), START).secret, "secret of 1");
        let later = START + (SECRET_KEPT - Duration::from_secs(1));
        assert_eq!(roll.beat(beat(2, &[]), later).secret, "secret of 1");
        assert_eq!(roll.beat(beat(3, &[]), later + SECRET_KEPT).secret, "secret of 3");
    }

    #[test]
    fn a_node_counts_until_it_has_been_silent_for_a_while() {
        let mut roll = Roll::default();
        roll.beat(beat(1, &[]), START);
        assert_eq!(roll.beat(beat(2, &[]), START + PRESENT).members.len(), 2);
        let members = roll.beat(beat(2, &[]), START + PRESENT + Duration::from_millis(1)).members;
        assert_eq!(members.iter().map(|member| member.name.as_str()).collect::<Vec<_>>(), ["node2"]);
    }

    #[test]
    fn crowded_keys_are_told_to_all_for_a_while() {
        let mut roll = Roll::default();
        roll.beat(beat(1, &[7]), START);
        assert_eq!(roll.beat(beat(2, &[]), START + CROWDED).crowded, [Key::from_bits(7)]);
        assert_eq!(roll.beat(beat(2, &[]), START + CROWDED + Duration::from_millis(1)).crowded, []);
    }

    #[test]
    fn strangers_find_no_more_room_than_there_is() {
        let mut roll = Roll::default();
        let keys: Vec<u64> = (0..2 * CROWDED_MAX as u64).collect();
        for run in 0..NODES_MAX + 10 {
            roll.beat(beat(run, &[]), START);
        }
        let census = roll.beat(beat(0, &keys), START);
        assert_eq!((census.members.len(), census.crowded.len()), (NODES_MAX, CROWDED_MAX));
    }
}
