//! The proxies that enforce limits locally, as operators see them.

use std::fmt;

use serde::{Deserialize, Serialize};

use slowlane_core::base::{Timestamp, plural, shown};
use slowlane_core::peers::{ProxyCount, Pushed};
use slowlane_core::throttle::ProxyLimits;

/// All proxies that have been connected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PeersStatus {
    /// The name of this slowlane among the peers.
    pub name: String,
    pub proxies: Vec<PeerLine>,
}

/// A proxy, connected now or earlier.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PeerLine {
    pub name: String,
    /// `None` if the proxy is not connected.
    pub connection: Option<PeerConnection>,
    /// The names of the tables in which the proxy counts requests.
    pub tables: Vec<String>,
    pub keys: usize,
}

/// The connection of a proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PeerConnection {
    pub address: String,
    pub since_s: u64,
    /// Whether slowlane made the connection, rather than the proxy.
    pub is_dialled: bool,
    /// Whether the proxy has sent all its entries.
    pub is_synced: bool,
    /// The number of counts received from the proxy, and the number of limits pushed to it.
    pub updates: u64,
    pub pushes: u64,
    /// The number of limits that the proxy has not acknowledged.
    pub acks_behind: u64,
}

/// Counters of the proxies that enforce limits locally.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeersUse {
    pub connected: usize,
    /// The number of proxies that were connected earlier, but are not now.
    pub lost: usize,
    pub keys: usize,
    /// The number of limits that these proxies have not acknowledged.
    pub acks_behind: u64,
}

impl PeersUse {
    pub fn of(status: &PeersStatus) -> PeersUse {
        let connections = || status.proxies.iter().filter_map(|proxy| proxy.connection.as_ref());
        let connected = connections().count();
        PeersUse {
            connected,
            lost: status.proxies.len() - connected,
            keys: status.proxies.iter().map(|proxy| proxy.keys).sum(),
            acks_behind: connections().map(|connection| connection.acks_behind).sum(),
        }
    }
}

/// A proxy's counts for a key, and the limit pushed to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PeerCount {
    pub peer: String,
    pub table: String,
    pub key: String,
    pub admitted: u32,
    pub denied: u32,
    /// Milliseconds since the proxy last sent a count.
    pub seen_ms: u64,
    /// The columns of the proxy's table of limits: slot, tau, maximum, X. `None` if no limit was pushed.
    pub pushed: Option<[u64; 4]>,
    /// The pushed limit in words.
    pub update: String,
    /// Milliseconds since the push.
    pub pushed_ms: Option<u64>,
}

impl PeerCount {
    pub fn of(peer: &str, table: &str, key: &[u8], count: &ProxyCount, now: Timestamp) -> PeerCount {
        let ago = |at: Timestamp| now.since(at).as_millis() as u64;
        PeerCount {
            peer: shown(peer.as_bytes()),
            table: shown(table.as_bytes()),
            key: shown(String::from_utf8_lossy(key).as_bytes()),
            admitted: count.admitted,
            denied: count.denied,
            seen_ms: ago(count.seen),
            pushed: count.pushed.map(|pushed| pushed.numbers),
            update: count.pushed.map_or_else(|| "no limit pushed".into(), in_words),
            pushed_ms: count.pushed.map(|pushed| ago(pushed.at)),
        }
    }
}

fn in_words(pushed: Pushed) -> String {
    let [slot_us, tau_us, max_us, _] = pushed.numbers;
    match pushed.limits {
        None => "no limit: another SLO has the key".into(),
        Some(ProxyLimits::Unlimited) => "unlimited".into(),
        Some(ProxyLimits::Ask) => "queries over SPOE".into(),
        Some(ProxyLimits::Refused(_)) => "refuse all".into(),
        Some(ProxyLimits::Paced(_)) => format!("slot {slot_us} us, tau {tau_us} us, max {max_us} us"),
    }
}

/// A line of `slowlane why`.
impl fmt::Display for PeerCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PeerCount { peer, table, key, admitted, denied, seen_ms, update, pushed_ms, .. } = self;
        let ago = pushed_ms.map_or_else(String::new, |ms| format!(", {ms} ms ago"));
        write!(f, "{peer}: {admitted} admitted, {denied} denied of {key} in {table}, {seen_ms} ms ago; ")?;
        write!(f, "{update}{ago}")
    }
}

/// The text of `slowlane status peers`:
///
/// ```text
/// this slowlane is the peer slowlane
/// lb1  connected for 12 s from 127.0.0.1, 300 counts, 4 limits, 0 not acknowledged
///      slowlane_pace: 12 keys in all
/// ```
impl fmt::Display for PeersStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "this slowlane is the peer {}", self.name)?;
        if self.proxies.is_empty() {
            writeln!(f, "no proxy has connected yet")?;
        }
        let width = self.proxies.iter().map(|proxy| proxy.name.len()).max().unwrap_or(0);
        for PeerLine { name, connection, tables, keys } in &self.proxies {
            match connection {
                None => writeln!(f, "{name:width$}  not connected")?,
                Some(connection) => {
                    let PeerConnection { address, since_s, updates, pushes, acks_behind, .. } = connection;
                    let from = if connection.is_dialled { "at" } else { "from" };
                    let rest = if connection.is_synced { "" } else { "; still sending its entries" };
                    writeln!(
                        f,
                        "{name:width$}  connected for {since_s} s {from} {address}, {}, {}, \
                         {acks_behind} not acknowledged{rest}",
                        plural(*updates, "count"),
                        plural(*pushes, "limit"),
                    )?;
                }
            }
            writeln!(f, "{:width$}  {}: {} in all", "", tables.join(", "), plural(*keys, "key"))?;
        }
        Ok(())
    }
}
