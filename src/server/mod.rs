//! The sockets: listeners, their connections, and everything that waits.

pub mod admin;
pub mod admin_socket;
mod agent;
pub mod holds;
pub mod http;
mod http1;
mod inbox;
mod page;
mod patience;
mod repeats;
pub mod runtime_api;
pub mod shutdown;
pub mod socket;
pub mod spoe;

pub use agent::Agent;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::observe::log::OncePerSecond;
use crate::observe::metrics::ConnectionMetrics;
use crate::server::shutdown::Shutdown;
use crate::server::socket::{Listener, Stream};

/// One way in: the listeners of a protocol, and the most connections they may have together.
#[derive(Debug)]
pub struct Entrance {
    pub listeners: Vec<Listener>,
    pub connections_max: usize,
    pub metrics: ConnectionMetrics,
}

/// An `accept` that fails for want of something, mostly of file descriptors, is tried again after this.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

impl Entrance {
    /// Serves every connection on every listener until the end begins.
    pub fn open<S, F>(self, agent: &Arc<Agent>, shutdown: &Shutdown, serve: S)
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
        S: Fn(Stream, Arc<Agent>, Shutdown) -> F,
        F: Future<Output = ()> + Send + 'static,
    {
        self.accept(&mut shutdown, serve).await;
        // Who waits for the end finds no socket file any more.
        drop(self);
        drop(shutdown);
    }

    /// One connection too many is accepted and waits for a place, the next ones in the system's queue, where
    /// they cost nothing here. The proxy's own timeout lets their requests pass.
    async fn accept<S, F>(&self, shutdown: &mut Shutdown, serve: S)
    where
        S: Fn(Stream, Arc<Agent>, Shutdown) -> F,
        F: Future<Output = ()> + Send + 'static,
    {
        loop {
            let stream = tokio::select! {
                stream = self.listener.accept() => stream,
                () = shutdown.begun() => return,
            };
            let stream = match stream {
                Ok(stream) => stream,
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
            let served = serve(stream, self.agent.clone(), shutdown.clone());
            tokio::spawn(async move {
                served.await;
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
        // A connection that was gone before it was accepted says nothing about the next.
        if !matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) {
            tokio::time::sleep(ACCEPT_PAUSE).await;
        }
    }
}

/// Counts a connection as open for as long as it is.
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
