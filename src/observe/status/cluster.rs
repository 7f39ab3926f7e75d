//! The state of the cluster, as this node sees it.

use std::fmt;

use serde::Serialize;

use slowlane_core::base::plural;
use slowlane_core::cluster::Member;

/// The cluster as the operator of this node sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ClusterLine {
    /// The store's address, without its password.
    pub store: String,
    /// The id of this node's process.
    pub run: String,
    /// Why the store does not answer; `None` while it answers.
    pub silent: Option<String>,
    /// How long the store has been silent, or has been answering, in seconds.
    pub since_s: u64,
    pub round_trip_ms: f64,
    /// The number of keys shared now, and the number of requests not yet reported to the store.
    pub keys: usize,
    #[serde(rename = "owed")]
    pub debt: f64,
    /// All nodes, including this one.
    pub nodes: Vec<Member>,
}

impl ClusterLine {
    /// The nodes whose SLOs differ from this node's.
    pub(super) fn others(&self) -> impl Iterator<Item = &Member> {
        let ours = self.nodes.iter().find(|node| node.run == self.run).map(|node| &node.policy);
        self.nodes.iter().filter(move |node| ours.is_some_and(|ours| *ours != node.policy))
    }
}

/// The text of `slowlane status cluster`.
impl fmt::Display for ClusterLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ClusterLine { store, since_s, round_trip_ms, keys, debt, nodes, .. } = self;
        match &self.silent {
            None => writeln!(f, "store {store}: up for {since_s} s, round trip {round_trip_ms:.1} ms")?,
            Some(reason) => writeln!(f, "store {store}: silent for {since_s} s: {reason}")?,
        }
        let debt = plural(debt.round() as u64, "request");
        writeln!(f, "{} shared, {debt} not yet reported", plural(*keys, "key"))?;
        let width = nodes.iter().map(|node| node.name.len()).max().unwrap_or_default().max(4);
        writeln!(f, "{:width$}  version  policy            clock", "node")?;
        for node @ Member { name, run, version, policy, clock_ms, .. } in nodes {
            let here = if *run == self.run { "  (this node)" } else { "" };
            let other = if self.others().any(|other| other == node) { "  OTHER SLOs" } else { "" };
            writeln!(f, "{name:width$}  {version:7}  {policy}  {clock_ms:+} ms{here}{other}")?;
        }
        Ok(())
    }
}
