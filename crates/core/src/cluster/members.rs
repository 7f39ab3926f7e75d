//! The nodes of a cluster, as they announce themselves.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::{Key, KeySecret};
use crate::cluster::Hint;

/// A node's report about itself in each heartbeat.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Member {
    /// Its name, chosen by its operator.
    pub name: String,
    /// The run of the process: no two are the same.
    pub run: String,
    pub version: String,
    /// A hash of the SLOs that it shares.
    pub policy: String,
    /// Its wall clock minus the store's, in milliseconds.
    pub clock_ms: i64,
}

/// The role of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    Node,
    /// The node of a token server. Its key secret counts until that of another node comes: a token server that has just
    /// started, or a standby, knows none of the keys that the nodes count.
    Own,
    /// It has no requests under shared SLOs, and leaves the rate to the nodes.
    Onlooker,
}

/// How long a node counts without a heartbeat: three heartbeats, one per second, may be lost.
pub const PRESENT: Duration = Duration::from_millis(3_500);

/// How long the key secret outlives the last node: nodes that are all stopped overnight find it again.
pub const SECRET_KEPT: Duration = Duration::from_secs(86_400);

/// The longest name of a node that is accepted.
const TEXT_BYTES_MAX: usize = 128;

impl Member {
    /// Reads the arguments of a node. None if they are too long or not those of a slowlane.
    pub fn read(arguments: &[u8]) -> Option<Member> {
        let member: Member = serde_json::from_slice(arguments).ok()?;
        member.is_within_bounds().then_some(member)
    }

    /// Whether its texts can be displayed.
    pub(super) fn is_within_bounds(&self) -> bool {
        let texts = [&self.name, &self.run, &self.version, &self.policy];
        texts.iter().all(|text| text.len() <= TEXT_BYTES_MAX && !text.chars().any(char::is_control))
    }

    pub fn arguments(&self) -> String {
        serde_json::to_string(self).expect("texts and numbers can be written")
    }
}

/// A heartbeat: a node's message to the store apart from key updates.
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
    /// The state of some of these keys, at most [`HINTS_MAX`](crate::cluster::HINTS_MAX).
    pub hints: Vec<(Key, Hint)>,
}
