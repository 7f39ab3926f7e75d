//! The sockets: listeners, their connections, and everything that waits.

pub mod admin;
pub mod holds;
pub mod http;
mod inbox;
mod repeats;
pub mod shutdown;
pub mod socket;
pub mod spoe;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::server::holds::Holds;
use crate::server::shutdown::Shutdown;
use crate::server::socket::{Listener, Stream};
use crate::telemetry::log::OncePerSecond;
use crate::telemetry::metrics::{ConnectionMetrics, Metrics};
use crate::throttle::Throttle;
use crate::time::Clock;

/// What every connection works with.
#[derive(Debug)]
pub struct Agent {
    pub throttle: Arc<Throttle>,
    pub clock: Clock,
    pub holds: Arc<Holds>,
    pub metrics: Arc<Metrics>,
}

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
}

impl Accept {
    /// A connection that finds no place waits here, unread, and those behind it in the system's queue, until
    /// the proxy's own timeout lets its requests pass. Were a place taken before there is a connection for it,
    /// every idle listener would keep one from the others.
    async fn run<S, F>(self, mut shutdown: Shutdown, serve: S)
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
            let place = self.places.clone().acquire_owned();
            let place = tokio::select! {
                place = place => place.expect("the semaphore is never closed"),
                () = shutdown.begun() => return,
            };
            self.metrics.accepted.inc();
            let open = Open::new(&self.metrics);
            let served = serve(stream, self.agent.clone(), shutdown.clone());
            tokio::spawn(async move {
                served.await;
                drop((open, place));
            });
        }
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
