//! Acceptors: the listeners of a service, their accept loops, and the limit on connections.

use std::fmt::Debug;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use prometheus_client::metrics::gauge::Gauge;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::observe::{ConnectionMetrics, OncePerSecond, revived_task};
use crate::server::{Agent, Guest, Listener, Lobby, Shutdown, Stream, Tls, Transfer, TransferState};
use slowlane_core::base::{Network, Timestamp};

/// Serves the connections of an acceptor.
pub(crate) trait Service: Debug + Send + Sync {
    /// Serves a connection until it ends.
    fn call(self: Arc<Self>, accepted: Accepted) -> BoxFuture<'static, ()>;

    /// The lobby that each connection enters first, if clients must authenticate.
    fn lobby(&self) -> Option<&Arc<Lobby>> {
        None
    }
}

/// A connection that is being passed to its service.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) stream: Stream,
    /// The connection's state, if it stopped for a handover.
    pub(crate) earlier: Option<TransferState>,
    /// The connection's place in the lobby. `None` without a lobby, or if the connection stopped for a handover.
    pub(crate) guest: Option<Guest>,
    pub(crate) agent: Arc<Agent>,
    pub(crate) shutdown: Shutdown,
}

/// The listeners of a service, and the limit on connections that they share.
#[derive(Debug)]
pub(crate) struct Acceptor {
    pub(crate) name: &'static str,
    pub(crate) listeners: Vec<Arc<Listener>>,
    pub(crate) access_list: Arc<AccessList>,
    pub(crate) places: Arc<Semaphore>,
    pub(crate) metrics: ConnectionMetrics,
    pub(crate) service: Arc<dyn Service>,
    pub(crate) agent: Arc<Agent>,
    /// The runtime of the listeners, which also serves their connections.
    pub(crate) runtime: Handle,
    pub(crate) error_line: OncePerSecond,
    pub(crate) full_line: OncePerSecond,
}

/// The pause after an `accept` that fails for lack of a resource, usually file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

impl Acceptor {
    /// Serves the connections of every listener, and connections that were stopped for a handover, until the shutdown
    /// begins. After a failed handover, `open` is called again, with this process's own connections.
    pub(crate) fn open(self: &Arc<Self>, shutdown: &Shutdown, earlier: impl Iterator<Item = Transfer>) {
        for Transfer { stream, state } in earlier {
            let (open, place) = (OpenConnection::new(&self.metrics), self.places.clone().try_acquire_owned());
            let (earlier, agent, shutdown) = (Some(state), self.agent.clone(), shutdown.clone());
            let accepted = Accepted { stream, earlier, guest: None, agent, shutdown };
            let served = self.service.clone().call(accepted);
            self.runtime.spawn(async move {
                served.await;
                drop((open, place));
            });
        }
        for listener in &self.listeners {
            let (acceptor, listener, shutdown) = (self.clone(), listener.clone(), shutdown.clone());
            self.runtime.spawn(async move {
                revived_task("a listener", || acceptor.accept(&listener, &shutdown)).await;
                // Dropping them in this order removes the socket file before the shutdown can finish.
                drop((acceptor, listener));
                drop(shutdown);
            });
        }
    }

    /// Serves the connections of a listener until the shutdown begins.
    ///
    /// At the limit, one more connection is accepted and waits for a place. Later connections wait in the system's
    /// backlog, and their requests pass after the proxy's own timeout. If the service has a lobby, connections enter it
    /// without waiting.
    async fn accept(&self, listener: &Listener, shutdown: &Shutdown) {
        while let Some(stream) = self.next(listener, shutdown).await {
            let Some(lobby) = self.service.lobby() else {
                // The connection is served even after the shutdown begins: the next process cannot accept it again.
                let place = shutdown.signal.unless_begun(self.place(listener)).await;
                let (open, served) = (OpenConnection::new(&self.metrics), self.serve(stream, None, shutdown));
                tokio::spawn(async move {
                    served.await;
                    drop((open, place));
                });
                continue;
            };
            let (place, go) = lobby.enter();
            let guest = Guest::new(place, self.places.clone());
            let (open, served) =
                (OpenConnection::new(&self.metrics), self.serve(stream, Some(guest), shutdown));
            tokio::spawn(async move {
                tokio::select! {
                    () = served => {}
                    _ = go => {}
                }
                drop(open);
            });
        }
    }

    /// Performs the handshake of a connection, then serves it. The future does not keep the listeners open.
    fn serve(
        &self,
        stream: Stream,
        guest: Option<Guest>,
        shutdown: &Shutdown,
    ) -> impl Future<Output = ()> + use<> {
        let (access_list, service) = (self.access_list.clone(), self.service.clone());
        let (agent, shutdown) = (self.agent.clone(), shutdown.clone());
        async move {
            if let Some(stream) = access_list.open(stream, &shutdown).await {
                service.call(Accepted { stream, earlier: None, guest, agent, shutdown }).await;
            }
        }
    }

    /// The next connection to serve, or `None` once the shutdown has begun.
    async fn next(&self, listener: &Listener, shutdown: &Shutdown) -> Option<Stream> {
        loop {
            let stream = match shutdown.signal.unless_begun(listener.accept()).await? {
                Ok(stream) => stream,
                Err(error) => {
                    self.accept_failed(listener, &error).await;
                    continue;
                }
            };
            self.metrics.accepted.inc();
            tracing::debug!(%listener, "a connection");
            if self.access_list.admits(&stream, self.agent.clock.now()) {
                return Some(stream);
            }
            self.metrics.not_allowed.inc();
        }
    }

    async fn place(&self, listener: &Listener) -> OwnedSemaphorePermit {
        if let Ok(place) = self.places.clone().try_acquire_owned() {
            return place;
        }
        self.metrics.waited.inc();
        if let Some(suppressed) = self.full_line.allow(self.agent.clock.now()) {
            tracing::warn!(%listener, suppressed, "too many connections: new connections wait until others close");
        }
        self.places.clone().acquire_owned().await.expect("the semaphore is never closed")
    }

    async fn accept_failed(&self, listener: &Listener, error: &io::Error) {
        self.metrics.accept_errors.inc();
        if let Some(suppressed) = self.error_line.allow(self.agent.clock.now()) {
            tracing::error!(%listener, suppressed, "cannot accept a connection: {error}");
        }
        // These errors mean that a client disconnected before `accept`, so no pause is needed.
        if !matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) {
            tokio::time::sleep(ACCEPT_PAUSE).await;
        }
    }
}

/// Counts a connection as open until this value is dropped.
struct OpenConnection(Gauge);

impl OpenConnection {
    fn new(metrics: &ConnectionMetrics) -> OpenConnection {
        metrics.open.inc();
        OpenConnection(metrics.open.clone())
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Restricts connections by network and by TLS. TCP connections are checked before any of their bytes are read; Unix
/// sockets are protected by file permissions instead.
#[derive(Debug, Default)]
pub(crate) struct AccessList {
    /// The networks that may connect. An empty list allows all networks.
    pub(crate) allow: Vec<Network>,
    pub(crate) tls: Option<Arc<Tls>>,
    pub(crate) refused_line: OncePerSecond,
}

impl AccessList {
    /// Whether connections are unrestricted: without TLS, and without a list of networks.
    pub(crate) fn is_open(&self) -> bool {
        self.tls.is_none() && self.allow.is_empty()
    }

    /// Whether the peer may connect. A refusal is logged.
    pub(super) fn admits(&self, stream: &Stream, now: Timestamp) -> bool {
        if self.allow.is_empty() || matches!(stream, Stream::Unix(_)) {
            return true;
        }
        // A peer that has already disconnected has no address.
        let peer = stream.peer_ip();
        let is_allowed = peer.is_some_and(|peer| self.allows(peer));
        if !is_allowed {
            let peer = peer.map(|peer| peer.to_string()).unwrap_or_default();
            let text = || format!("closed a connection from {peer}: `allow` does not list its network");
            self.refused_line.warn(now, text);
        }
        is_allowed
    }

    pub(super) fn allows(&self, peer: IpAddr) -> bool {
        self.allow.is_empty() || self.allow.iter().any(|network| network.contains(peer))
    }

    /// The stream of a connection, after any TLS handshake. `None` if the handshake failed or the shutdown began.
    pub(super) async fn open(&self, mut stream: Stream, shutdown: &Shutdown) -> Option<Stream> {
        let Some(tls) = &self.tls else { return Some(stream) };
        stream.watch().ok()?;
        let Stream::Tcp(stream) = stream else { return Some(stream) };
        // Boxed, so that a connection without TLS needs no room for a handshake.
        let handshake = Box::pin(tls.handshake(stream));
        shutdown.signal.unless_begun(handshake).await.flatten().map(Stream::Tls)
    }
}
