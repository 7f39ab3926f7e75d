//! The proxies that are peers, by name, with the state of their connections.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use crate::observe::OncePerSecond;
use crate::observe::groups::PeersMetrics;
use crate::observe::status::{PeerConnection, PeerCount, PeerLine, PeersStatus};
use slowlane_core::base::{Address, Key, Timestamp, shown};
use slowlane_core::peers::{KEYS_MAX, Proxy};
use spop::peers::HelloStatus;

/// The maximum number of proxies, by name. Without `allow`, clients choose their own names.
const PROXIES_MAX: usize = 64;

/// The maximum number of a proxy's keys shown for one key of this slowlane, which may be a network of many addresses.
const COUNTS_MAX: usize = 10;

/// The settings of the listener for peers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeersSettings {
    /// The name of this slowlane among the peers.
    pub name: String,
    /// The names that may connect, besides those in `dial`. An empty list allows all names.
    pub allow: Vec<String>,
    /// Proxies to connect to, with their names.
    pub dial: Vec<(String, Address)>,
    /// The fields of tables whose names state no fields.
    pub fields: Vec<String>,
}

/// The proxies that are peers.
#[derive(Debug)]
pub struct Peers {
    pub settings: PeersSettings,
    pub metrics: PeersMetrics,
    pub(super) refused_line: OncePerSecond,
    /// The rate limits for log lines that all unlisted peers share, because any number of them may come and go.
    unlisted: Arc<Lines>,
    peers: Mutex<BTreeMap<String, Arc<Peer>>>,
}

/// Rate limits for log lines about a proxy.
#[derive(Debug, Default)]
pub(super) struct Lines {
    pub(super) connected: OncePerSecond,
    pub(super) ended: OncePerSecond,
    pub(super) tables: OncePerSecond,
}

/// A proxy, with or without a connection.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) lines: Arc<Lines>,
    proxy: Mutex<Proxy>,
    /// The current connection, if any. A new connection replaces it.
    connection: Mutex<Option<Arc<PeersConnection>>>,
}

/// The state of a connection. Its session owns the connection.
#[derive(Debug)]
pub(super) struct PeersConnection {
    since: Timestamp,
    /// The connection's state for operators, without its age.
    pub(super) status: Mutex<PeerConnection>,
    /// Notified when another connection of the same proxy begins.
    pub(super) is_replaced: Notify,
}

impl Peers {
    pub fn new(settings: PeersSettings, metrics: PeersMetrics) -> Peers {
        let (refused_line, unlisted) = (OncePerSecond::default(), Arc::default());
        Peers { settings, metrics, refused_line, unlisted, peers: Mutex::default() }
    }

    /// The proxy with this name. A new name adds a proxy.
    ///
    /// # Errors
    /// The status to answer with, if the name is not allowed or there are too many names.
    pub(super) fn peer(&self, name: &str) -> Result<Arc<Peer>, HelloStatus> {
        let PeersSettings { allow, dial, fields, .. } = &self.settings;
        let is_dialled = dial.iter().any(|(dialled, _)| dialled == name);
        let is_listed = is_dialled || allow.iter().any(|allowed| allowed == name);
        if !allow.is_empty() && !is_listed {
            return Err(HelloStatus::UNKNOWN_PEER);
        }
        let mut peers = self.peers.lock();
        if let Some(peer) = peers.get(name) {
            return Ok(peer.clone());
        }
        if peers.len() >= PROXIES_MAX {
            // Sessions and dialling tasks keep their peers. Among the other peers, the one with the fewest keys is
            // removed.
            let gone = peers.iter().filter(|(_, peer)| Arc::strong_count(peer) == 1);
            let gone = gone.min_by_key(|(_, peer)| peer.proxy().keys()).map(|(name, _)| name.clone());
            peers.remove(&gone.ok_or(HelloStatus::TRY_AGAIN)?);
        }
        let peer = Arc::new(Peer {
            lines: if is_listed { Arc::default() } else { self.unlisted.clone() },
            proxy: Mutex::new(Proxy::new(fields.clone(), KEYS_MAX)),
            connection: Mutex::default(),
        });
        peers.insert(name.to_owned(), peer.clone());
        Ok(peer)
    }

    /// All proxies, for operators, sorted by name.
    pub fn status(&self, now: Timestamp) -> PeersStatus {
        let proxies = self.all().into_iter().map(|(name, peer)| {
            let connection = peer.connection.lock().as_ref().map(|connection| connection.status(now));
            let proxy = peer.proxy();
            PeerLine {
                name: shown(name.as_bytes()),
                connection,
                tables: proxy.tables().map(|table| shown(table.as_bytes())).collect(),
                keys: proxy.keys(),
            }
        });
        PeersStatus { name: self.settings.name.clone(), proxies: proxies.collect() }
    }

    /// Each proxy's counts for a key, and the limits pushed to it.
    pub fn counts(&self, of: Key, now: Timestamp) -> Vec<PeerCount> {
        let mut counts = Vec::new();
        for (name, peer) in self.all() {
            let proxy = peer.proxy();
            let known = proxy.counts(of).take(COUNTS_MAX);
            counts.extend(known.map(|(table, key, count)| PeerCount::of(&name, table, key, count, now)));
        }
        counts
    }

    fn all(&self) -> Vec<(String, Arc<Peer>)> {
        self.peers.lock().iter().map(|(name, peer)| (name.clone(), peer.clone())).collect()
    }
}

impl PeersConnection {
    pub(super) fn new(address: String, is_dialled: bool, now: Timestamp) -> Arc<PeersConnection> {
        let status = Mutex::new(PeerConnection { address, is_dialled, ..PeerConnection::default() });
        Arc::new(PeersConnection { since: now, status, is_replaced: Notify::new() })
    }

    fn status(&self, now: Timestamp) -> PeerConnection {
        PeerConnection { since_s: now.since(self.since).as_secs(), ..self.status.lock().clone() }
    }
}

impl Peer {
    pub(super) fn proxy(&self) -> MutexGuard<'_, Proxy> {
        self.proxy.lock()
    }

    pub(super) fn is_connected(&self) -> bool {
        self.connection.lock().is_some()
    }

    /// Makes this the current connection of the proxy. The previous connection ends.
    pub(super) fn connect(&self, connection: &Arc<PeersConnection>) {
        if let Some(before) = self.connection.lock().replace(connection.clone()) {
            before.is_replaced.notify_one();
        }
    }

    /// Notes that a connection has ended, unless another has replaced it.
    pub(super) fn disconnect(&self, connection: &Arc<PeersConnection>) {
        self.connection.lock().take_if(|latest| Arc::ptr_eq(latest, connection));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use slowlane_core::peers::Moment;
    use slowlane_core::policy::Policy;
    use slowlane_core::table::Sizing;
    use slowlane_core::throttle::Throttle;

    #[test]
    fn strangers_make_room_for_each_other_and_keep_the_proxy_that_has_counted() {
        let settings = PeersSettings { name: "slowlane".into(), allow: vec![], dial: vec![], fields: vec![] };
        let peers = Peers::new(settings, PeersMetrics::default());
        let sizing = Sizing { entries_max: 10, expire: Duration::from_secs(60) };
        let throttle = Throttle::new(Policy::builtin(), sizing, 0);
        let moment = Moment { now: Timestamp::from_millis(60_000), wall: Duration::from_secs(1_800_000_000) };
        let lb1 = peers.peer("a-proxy-that-counts").unwrap();
        lb1.proxy().defined("slowlane_pace_all", None);
        lb1.proxy().counted(&throttle, "slowlane_pace_all", b"all", [1, 0], moment, &mut Vec::new());
        assert_eq!(lb1.proxy().keys(), 1);
        drop(lb1);

        let held: Vec<_> =
            (0..PROXIES_MAX - 2).map(|name| peers.peer(&format!("b{name}")).unwrap()).collect();
        for unlisted in 0..200 {
            peers.peer(&format!("c{unlisted}")).unwrap();
        }
        assert_eq!(peers.peer("a-proxy-that-counts").unwrap().proxy().keys(), 1);
        let last = peers.peer("last").unwrap();
        assert_eq!(peers.peer("a-proxy-that-counts").map(drop), Ok(()));
        let counts = peers.peer("a-proxy-that-counts").unwrap();
        assert_eq!(peers.peer("one too many").map(drop), Err(HelloStatus::TRY_AGAIN), "all are in use");
        drop((held, last, counts));
        assert_eq!(peers.peer("one more").map(drop), Ok(()));
    }
}
