//! Entrances: listeners, the loop that accepts connections, and the limit on them.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::observe::log::OncePerSecond;
use crate::observe::metrics::ConnectionMetrics;
use crate::server::agent::Agent;
use crate::server::listener::Listener;
use crate::server::shutdown::Shutdown;
use crate::server::stream::Stream;

/// The listeners of one protocol, and how many connections they may have together.
#[derive(Debug)]
pub(crate) struct Entrance {
    pub listeners: Vec<Listener>,
    pub connections_max: usize,
    pub metrics: ConnectionMetrics,
}

/// The pause after an `accept` that failed for lack of something, mostly of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

impl Entrance {
    /// Serves every connection on every listener until the shutdown begins.
    pub(crate) fn open<S, F>(self, agent: &Arc<Agent>, shutdown: &Shutdown, serve: S)
    where
        S: Fn(Stream, Arc<Agent>, Shutdown) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let places = Arc::new(Semaphore::new(self.connections_max));
        for listener in self.listeners {
            let accept = Accept {
                listener,
                places: places.clone(),
                metrics: self.metrics.clone(),
                agent: agent.clone(),
                error_line: OncePerSecond::default(),
                full_line: OncePerSecond::default(),
            };
            tokio::spawn(accept.run(shutdown.clone(), serve.clone()));
        }
    }
}

/// One listener's loop.
struct Accept {
    listener: Listener,
    places: Arc<Semaphore>,
    metrics: ConnectionMetrics,
    agent: Arc<Agent>,
    error_line: OncePerSecond,
    full_line: OncePerSecond,
}

impl Accept {
    async fn run<S, F>(self, mut shutdown: Shutdown, serve: S)
    where
        S: Fn(Stream, Arc<Agent>, Shutdown) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        self.accept(&mut shutdown, serve).await;
        // First the socket file goes, then the shutdown is told that this loop is over.
        drop(self);
        drop(shutdown);
    }

    /// When all places are taken, one more connection is accepted and waits for a place. Later ones wait in the
    /// system's queue and cost nothing here. The proxy's own timeout lets their requests pass.
    async fn accept<S, F>(&self, shutdown: &mut Shutdown, serve: S)
    where
        S: Fn(Stream, Arc<Agent>, Shutdown) -> F + Clone + Send + Sync + 'static,
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
            let place = tokio::select! {
                place = self.place() => place,
                () = shutdown.begun() => return,
            };
            let open = Open::new(&self.metrics);
            let (serve, agent, shutdown) = (serve.clone(), self.agent.clone(), shutdown.clone());
            tokio::spawn(async move {
                serve(accepted.open(), agent, shutdown).await;
                drop((open, place));
            });
        }
    }

    async fn place(&self) -> OwnedSemaphorePermit {
        if let Ok(place) = self.places.clone().try_acquire_owned() {
            return place;
        }
        self.metrics.waited.inc();
        if let Some(unsaid) = self.full_line.allow(self.agent.clock.now()) {
            tracing::warn!(listener = %self.listener, unsaid, "too many connections: new ones wait");
        }
        self.places.clone().acquire_owned().await.expect("the semaphore is never closed")
    }

    async fn accept_failed(&self, error: &io::Error) {
        self.metrics.accept_errors.inc();
        if let Some(unsaid) = self.error_line.allow(self.agent.clock.now()) {
            tracing::error!(listener = %self.listener, unsaid, "cannot accept a connection: {error}");
        }
        // A connection that closed before it was accepted tells nothing about the next one.
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
