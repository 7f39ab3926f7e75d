//! The sockets: listeners, their connections, and everything that waits.

pub mod admin;
pub mod admin_socket;
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

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::base::hold::HoldLimits;
use crate::base::request::Value;
use crate::base::time::Timestamp;
use crate::base::verdict::{Decision, Verdict};
use crate::observe::clock::Clock;
use crate::observe::decision_log::DecisionLog;
use crate::observe::log::OncePerSecond;
use crate::observe::metrics::{ConnectionMetrics, Metrics};
use crate::observe::status::Status;
use crate::server::holds::{Holds, Place};
use crate::server::shutdown::Shutdown;
use crate::server::socket::{Listener, Stream};
use crate::throttle::Throttle;

/// What every connection works with.
#[derive(Debug)]
pub struct Agent {
    pub throttle: Arc<Throttle>,
    pub clock: Clock,
    pub metrics: Arc<Metrics>,
    pub status: Arc<Status>,
    holds: Arc<Holds>,
    holds_line: OncePerSecond,
    decision_log: Option<DecisionLog>,
}

impl Agent {
    pub fn new(
        throttle: Arc<Throttle>,
        clock: Clock,
        hold: HoldLimits,
        metrics: Arc<Metrics>,
        status: Arc<Status>,
    ) -> Agent {
        let holds = Holds::new(hold, metrics.holds.clone(), metrics.holds_refused.clone());
        let holds_line = OncePerSecond::default();
        Agent { throttle, clock, metrics, status, holds, holds_line, decision_log: None }
    }

    /// With a log of its decisions.
    pub fn with_decision_log(self, decision_log: Option<DecisionLog>) -> Agent {
        Agent { decision_log, ..self }
    }

    pub fn decision_log(&self) -> Option<&DecisionLog> {
        self.decision_log.as_ref()
    }

    /// Logs a decision, if there is a log that wants it.
    #[inline]
    fn log<'a, F>(&self, decision: &Decision, now: Timestamp, fields: impl FnOnce() -> F)
    where
        F: Iterator<Item = (&'a [u8], Value<'a>)>,
    {
        if let Some(log) = &self.decision_log
            && log.wants(decision, now, || fastrand::u64(..))
        {
            let entry = self.throttle.table().get(decision.key, now);
            let rate = entry.map_or(0, |(entry, _)| entry.gpc0_rate.read(now.ticks_ms()));
            log.write(decision, rate, fields());
        }
    }

    /// A place for one held answer; where there is none, the verdict that stands in for the hold.
    fn place(&self) -> Result<Place, Verdict> {
        self.holds.place().ok_or_else(|| {
            let verdict = self.holds.when_full().verdict();
            if let Some(unsaid) = self.holds_line.allow(self.clock.now()) {
                tracing::warn!(unsaid, "too many answers are held: {} at once", verdict.name());
            }
            verdict
        })
    }
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
