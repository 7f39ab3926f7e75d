//! Entrances: listeners, their accept loops, and the limit on connections.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::observe::log::OncePerSecond;
use crate::observe::metrics::ConnectionMetrics;
use crate::observe::revive::revived_task;
use crate::server::agent::Agent;
use crate::server::gate::Gate;
use crate::server::listener::Listener;
use crate::server::shutdown::Shutdown;
use crate::server::stream::Stream;

/// The listeners of one protocol, and the most connections that they may have together.
#[derive(Debug)]
pub(crate) struct Entrance {
    listeners: Vec<Arc<Listener>>,
    places: Arc<Semaphore>,
    gate: Arc<Gate>,
    metrics: ConnectionMetrics,
}

/// The pause after `accept` failed for lack of a resource, mostly file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

impl Entrance {
    pub(crate) fn new(
        listeners: Vec<Arc<Listener>>,
        connections_max: usize,
        gate: Arc<Gate>,
        metrics: ConnectionMetrics,
    ) -> Entrance {
        Entrance { listeners, places: Arc::new(Semaphore::new(connections_max)), gate, metrics }
    }

    pub(crate) fn listeners(&self) -> &[Arc<Listener>] {
        &self.listeners
    }

    /// Serves every connection on every listener until the shutdown begins, and those of an earlier process with what
    /// it knew of them. After a handover that failed, it is opened again.
    pub(crate) fn open<K, S, F>(
        &self,
        agent: &Arc<Agent>,
        shutdown: &Shutdown,
        earlier: Vec<(Stream, K)>,
        serve: S,
    ) where
        K: Default + Send + 'static,
        S: Fn(Stream, K, Arc<Agent>, Shutdown) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        for (stream, known) in earlier {
            let (open, place) = (Open::new(&self.metrics), self.places.clone().try_acquire_owned());
            let (serve, agent, shutdown) = (serve.clone(), agent.clone(), shutdown.clone());
            tokio::spawn(async move {
                serve(stream, known, agent, shutdown).await;
                drop((open, place));
            });
        }
        for listener in &self.listeners {
            let accept = Accept {
                listener: listener.clone(),
                places: self.places.clone(),
                gate: self.gate.clone(),
                metrics: self.metrics.clone(),
                agent: agent.clone(),
                error_line: OncePerSecond::default(),
                full_line: OncePerSecond::default(),
            };
            tokio::spawn(accept.run(shutdown.clone(), serve.clone()));
        }
    }
}

/// The accept loop of one listener.
struct Accept {
    listener: Arc<Listener>,
    places: Arc<Semaphore>,
    gate: Arc<Gate>,
    metrics: ConnectionMetrics,
    agent: Arc<Agent>,
    error_line: OncePerSecond,
    full_line: OncePerSecond,
}

impl Accept {
    async fn run<K, S, F>(self, shutdown: Shutdown, serve: S)
    where
        K: Default + Send + 'static,
        S: Fn(Stream, K, Arc<Agent>, Shutdown) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        revived_task("a listener", || self.accept(shutdown.clone(), serve.clone())).await;
        // This order removes the socket file before the shutdown can finish.
        drop(self);
        drop(shutdown);
    }

    /// Accepts connections until the shutdown begins.
    ///
    /// At the limit, one more connection is accepted and waits. Later ones wait in the backlog of the system. Their
    /// requests pass after the proxy's own timeout.
    async fn accept<K, S, F>(&self, shutdown: Shutdown, serve: S)
    where
        K: Default + Send + 'static,
        S: Fn(Stream, K, Arc<Agent>, Shutdown) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                () = shutdown.begun() => return,
            };
            let accepted = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    self.accept_failed(&error).await;
                    continue;
                }
            };
            self.metrics.accepted.inc();
            tracing::debug!(listener = %self.listener, "a connection");
            if !self.gate.admits(&accepted, self.agent.clock.now()) {
                self.metrics.not_allowed.inc();
                continue;
            }
            let place = tokio::select! {
                place = self.place() => Some(place),
                // The next process accepts no connection that this one has accepted.
                () = shutdown.begun() => None,
            };
            let open = Open::new(&self.metrics);
            let (serve, agent, mut shutdown) = (serve.clone(), self.agent.clone(), shutdown.clone());
            let gate = self.gate.clone();
            tokio::spawn(async move {
                if let Some(stream) = gate.open(accepted, &mut shutdown).await {
                    serve(stream, K::default(), agent, shutdown).await;
                }
                drop((open, place));
            });
        }
    }

    async fn place(&self) -> OwnedSemaphorePermit {
        if let Ok(place) = self.places.clone().try_acquire_owned() {
            return place;
        }
        self.metrics.waited.inc();
        if let Some(suppressed) = self.full_line.allow(self.agent.clock.now()) {
            tracing::warn!(listener = %self.listener, suppressed, "too many connections: new ones wait");
        }
        self.places.clone().acquire_owned().await.expect("the semaphore is never closed")
    }

    async fn accept_failed(&self, error: &io::Error) {
        self.metrics.accept_errors.inc();
        if let Some(suppressed) = self.error_line.allow(self.agent.clock.now()) {
            tracing::error!(listener = %self.listener, suppressed, "cannot accept a connection: {error}");
        }
        // These mean that a client closed before `accept`, so the next connection needs no pause.
        if !matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) {
            tokio::time::sleep(ACCEPT_PAUSE).await;
        }
    }
}

/// Counts a connection as open until it is dropped.
struct Open(ConnectionMetrics);

impl Open {
    fn new(metrics: &ConnectionMetrics) -> Open {
        metrics.open.inc();
        Open(metrics.clone())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.dec();
    }
}
