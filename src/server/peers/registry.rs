//! The proxies that are peers, by their names, with the state of their connections.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::base::address::Address;
use crate::base::key::Key;
use crate::base::time::Timestamp;
use crate::observe::peers_metrics::PeersMetrics;
use crate::peers::{Glance, KEYS_MAX, Proxy};
use crate::wire::peers::Status;

/// The most names. Without `allow`, a client chooses its name.
const PROXIES_MAX: usize = 64;

/// The settings of the peers' side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The name of this slowlane among the peers.
    pub name: String,
    /// The names that may connect. Empty: all.
    pub allow: Vec<String>,
    /// Proxies to connect to, with their names.
    pub dial: Vec<(String, Address)>,
    /// The fields of the tables whose names have none.
    pub fields: Vec<String>,
}

/// The proxies that are peers.
#[derive(Debug)]
pub struct Peers {
    pub settings: Settings,
    pub metrics: PeersMetrics,
    stations: Mutex<BTreeMap<String, Arc<Station>>>,
}

/// A proxy, with or without a connection.
#[derive(Debug)]
pub(super) struct Station {
    proxy: Mutex<Proxy>,
    /// The number of its last connection. An older one ends.
    latest: watch::Sender<u64>,
    connection: Mutex<Option<Connection>>,
}

/// The state of a connection, for operators.
#[derive(Clone, Debug, Default)]
pub(super) struct Connection {
    pub(super) since: Timestamp,
    pub(super) address: String,
    pub(super) is_dialled: bool,
    pub(super) has_all: bool,
    pub(super) updates: u64,
    pub(super) pushes: u64,
    pub(super) unacknowledged: u64,
}

/// A proxy as operators see it.
#[derive(Clone, Debug)]
pub struct PeerStatus {
    pub name: String,
    /// None: it is not connected.
    pub connected: Option<PeerConnection>,
    pub tables: Vec<String>,
    pub keys: usize,
}

/// A connection as operators see it.
#[derive(Clone, Debug)]
pub struct PeerConnection {
    pub since: Timestamp,
    pub address: String,
    /// Whether slowlane has connected to it.
    pub is_dialled: bool,
    /// Whether it has told all its entries.
    pub has_all: bool,
    pub updates: u64,
    pub pushes: u64,
    pub unacknowledged: u64,
}

impl Peers {
    pub fn new(settings: Settings, metrics: PeersMetrics) -> Peers {
        Peers { settings, metrics, stations: Mutex::default() }
    }

    /// The proxy of a name.
    ///
    /// # Errors
    /// The status to answer with: the name is not allowed, or there are too many.
    pub(super) fn station(&self, name: &str) -> Result<Arc<Station>, Status> {
        let Settings { allow, dial, fields, .. } = &self.settings;
        let is_dialled = dial.iter().any(|(dialled, _)| dialled == name);
        if !allow.is_empty() && !is_dialled && !allow.iter().any(|allowed| allowed == name) {
            return Err(Status::UNKNOWN_PEER);
        }
        let mut stations = lock(&self.stations);
        if let Some(station) = stations.get(name) {
            return Ok(station.clone());
        }
        if stations.len() >= PROXIES_MAX {
            return Err(Status::TRY_AGAIN);
        }
        let station = Arc::new(Station {
            proxy: Mutex::new(Proxy::new(fields.clone(), KEYS_MAX)),
            latest: watch::Sender::new(0),
            connection: Mutex::default(),
        });
        stations.insert(name.to_owned(), station.clone());
        Ok(station)
    }

    /// All proxies, by their names.
    pub fn statuses(&self) -> Vec<PeerStatus> {
        self.all()
            .into_iter()
            .map(|(name, station)| {
                let proxy = station.proxy();
                let connected = lock(&station.connection).clone();
                let connected = connected.map(|connection| {
                    let Connection {
                        since,
                        address,
                        is_dialled,
                        has_all,
                        updates,
                        pushes,
                        unacknowledged,
                    } = connection;
                    PeerConnection { since, address, is_dialled, has_all, updates, pushes, unacknowledged }
                });
                let tables = proxy.tables().map(str::to_owned).collect();
                PeerStatus { name, connected, tables, keys: proxy.keys() }
            })
            .collect()
    }

    /// What each proxy has counted under a key, and what it was taught.
    pub fn glances(&self, of: Key) -> Vec<(String, Glance)> {
        let all = self.all().into_iter();
        all.flat_map(|(name, station)| {
            let glances = station.proxy().glances(of);
            glances.into_iter().map(move |glance| (name.clone(), glance))
        })
        .collect()
    }

    fn all(&self) -> Vec<(String, Arc<Station>)> {
        lock(&self.stations).iter().map(|(name, station)| (name.clone(), station.clone())).collect()
    }
}

impl Station {
    pub(super) fn proxy(&self) -> MutexGuard<'_, Proxy> {
        lock(&self.proxy)
    }

    pub(super) fn is_connected(&self) -> bool {
        lock(&self.connection).is_some()
    }

    /// Begins a connection. The one before ends. Returns the number of its unacknowledged updates, too.
    pub(super) fn connect(&self, connection: Connection) -> (Latest, u64) {
        let mut number = 0;
        self.latest.send_modify(|latest| {
            *latest += 1;
            number = *latest;
        });
        let before = lock(&self.connection).replace(connection);
        let behind = before.map_or(0, |connection| connection.unacknowledged);
        (Latest { number, latest: self.latest.subscribe() }, behind)
    }

    /// Notes the state of a connection, unless it is no longer the latest.
    pub(super) fn note(&self, latest: &Latest, note: impl FnOnce(&mut Connection)) {
        if latest.is_latest()
            && let Some(connection) = &mut *lock(&self.connection)
        {
            note(connection);
        }
    }

    /// Ends a connection, unless another has replaced it. Returns the number of its unacknowledged updates.
    pub(super) fn disconnect(&self, latest: &Latest) -> u64 {
        let mut connection = lock(&self.connection);
        let ended = if latest.is_latest() { connection.take() } else { None };
        ended.map_or(0, |connection| connection.unacknowledged)
    }
}

/// Tells a connection of its successor.
#[derive(Debug)]
pub(super) struct Latest {
    number: u64,
    latest: watch::Receiver<u64>,
}

impl Latest {
    pub(super) fn is_latest(&self) -> bool {
        *self.latest.borrow() == self.number
    }

    /// Returns once another connection of the same proxy has begun.
    pub(super) async fn is_replaced(&mut self) {
        let number = self.number;
        if self.latest.wait_for(|latest| *latest != number).await.is_err() {
            // The registry is gone: the daemon ends, and nobody replaces anything.
            std::future::pending().await
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
