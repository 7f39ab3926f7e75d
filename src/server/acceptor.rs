//! Entrances: listeners, their accept loops, and the limit on connections.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::observe::log::OncePerSecond;
use crate::observe::metrics::ConnectionMetrics;
use crate::observe::revive::revived_task;
use crate::server::access_list::AccessList;
use crate::server::agent::Agent;
use crate::server::listener::Listener;
use crate::server::lobby::{Guest, Lobby};
use crate::server::shutdown::Shutdown;
use crate::server::stream::Stream;

/// The listeners of one protocol, and the most connections that they may have together.
#[derive(Debug)]
pub(crate) struct Acceptor {
    listeners: Vec<Arc<Listener>>,
    places: Arc<Semaphore>,
    access_list: Arc<AccessList>,
    metrics: ConnectionMetrics,
}

/// The pause after `accept` failed for lack of a resource, mostly file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

impl Acceptor {
    pub(crate) fn new(
        listeners: Vec<Arc<Listener>>,
        connections_max: usize,
        access_list: Arc<AccessList>,
        metrics: ConnectionMetrics,
    ) -> Acceptor {
        Acceptor { listeners, places: Arc::new(Semaphore::new(connections_max)), access_list, metrics }
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
        self.accept_all(agent, shutdown, move |accept, shutdown| {
            let serve = serve.clone();
            async move { accept.serve_known(shutdown, serve).await }
        });
    }

    /// The same for clients that have to show who they are: each begins in the lobby.
    pub(crate) fn open_lobby<S, F>(
        &self,
        agent: &Arc<Agent>,
        shutdown: &Shutdown,
        lobby: &Arc<Lobby>,
        serve: S,
    ) where
        S: Fn(Stream, Guest, Shutdown) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let lobby = lobby.clone();
        self.accept_all(agent, shutdown, move |accept, shutdown| {
            let (lobby, serve) = (lobby.clone(), serve.clone());
            async move { accept.serve_guests(&lobby, shutdown, serve).await }
        });
    }

    /// Runs an accept loop on each listener.
    fn accept_all<A, F>(&self, agent: &Arc<Agent>, shutdown: &Shutdown, run: A)
    where
        A: Fn(Arc<Accept>, Shutdown) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        for listener in &self.listeners {
            let accept = Arc::new(Accept {
                listener: listener.clone(),
                places: self.places.clone(),
                access_list: self.access_list.clone(),
                metrics: self.metrics.clone(),
                agent: agent.clone(),
                error_line: OncePerSecond::default(),
                full_line: OncePerSecond::default(),
            });
            let (run, shutdown) = (run.clone(), shutdown.clone());
            tokio::spawn(async move {
                revived_task("a listener", || run(accept.clone(), shutdown.clone())).await;
                // This order removes the socket file before the shutdown can finish.
                drop(accept);
                drop(shutdown);
            });
        }
    }
}

/// The accept loop of one listener.
struct Accept {
    listener: Arc<Listener>,
    places: Arc<Semaphore>,
    access_list: Arc<AccessList>,
    metrics: ConnectionMetrics,
    agent: Arc<Agent>,
    error_line: OncePerSecond,
    full_line: OncePerSecond,
}

impl Accept {
    /// Serves connections until the shutdown begins.
    ///
    /// At the limit, one more connection is accepted and waits. Later ones wait in the backlog of the system. Their
    /// requests pass after the proxy's own timeout.
    async fn serve_known<K, S, F>(&self, shutdown: Shutdown, serve: S)
    where
        K: Default + Send + 'static,
        S: Fn(Stream, K, Arc<Agent>, Shutdown) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        while let Some(stream) = self.next(&shutdown).await {
            // The next process accepts no connection that this one has accepted.
            let place = shutdown.unless_begun(self.place()).await;
            let open = Open::new(&self.metrics);
            let (serve, agent, shutdown) = (serve.clone(), self.agent.clone(), shutdown.clone());
            let access_list = self.access_list.clone();
            tokio::spawn(async move {
                if let Some(stream) = access_list.open(stream, &shutdown).await {
                    serve(stream, K::default(), agent, shutdown).await;
                }
                drop((open, place));
            });
        }
    }

    /// Serves connections until the shutdown begins, each from the lobby on.
    async fn serve_guests<S, F>(&self, lobby: &Arc<Lobby>, shutdown: Shutdown, serve: S)
    where
        S: Fn(Stream, Guest, Shutdown) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        while let Some(stream) = self.next(&shutdown).await {
            let (place, go) = lobby.enter();
            let guest = Guest::new(place, self.places.clone());
            let open = Open::new(&self.metrics);
            let (serve, access_list, shutdown) = (serve.clone(), self.access_list.clone(), shutdown.clone());
            tokio::spawn(async move {
                let served = async {
                    if let Some(stream) = access_list.open(stream, &shutdown).await {
                        serve(stream, guest, shutdown).await;
                    }
                };
                tokio::select! {
                    () = served => {}
                    _ = go => {}
                }
                drop(open);
            });
        }
    }

    /// The next connection that may come in. None: the shutdown has begun.
    async fn next(&self, shutdown: &Shutdown) -> Option<Stream> {
        loop {
            let stream = match shutdown.unless_begun(self.listener.accept()).await? {
                Ok(stream) => stream,
                Err(error) => {
                    self.accept_failed(&error).await;
                    continue;
                }
            };
            self.metrics.accepted.inc();
            tracing::debug!(listener = %self.listener, "a connection");
            if self.access_list.admits(&stream, self.agent.clock.now()) {
                return Some(stream);
            }
            self.metrics.not_allowed.inc();
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
