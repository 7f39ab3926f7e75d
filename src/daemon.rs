//! The daemon, from start to shutdown.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "it starts the runtime, its threads and its timers"
)]

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow};
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tokio::time::{interval, timeout};

use crate::base::address::Address;
use crate::base::key::KeySecret;
use crate::cluster::Cluster;
use crate::config::{AdminConfig, Config, ConfigFile, Listen, TokenServerConfig};
use crate::observe::clock::Clock;
use crate::observe::decision_log::{DecisionLog, Place};
use crate::observe::log;
use crate::observe::metrics::{ConnectionMetrics, Metrics};
use crate::observe::revive::revived_task;
use crate::observe::status::Status;
use crate::observe::systemd;
use crate::policy::Policy;
use crate::server::Agent;
use crate::server::admin::Admin;
use crate::server::admin_socket;
use crate::server::entrance::Entrance;
use crate::server::handed::Handed;
use crate::server::http::Check;
use crate::server::listener::{Guarded, Listener, UNIX_MODE};
use crate::server::shutdown::{self, Shutdown, Trigger};
use crate::server::spoe::Spoe;
use crate::sync::{Found, Keeper, Node, TokenServer};
use crate::throttle::{KEY_BLOCKS_MAX, Throttle};
use crate::watch::{self, Reload};

/// The longest shutdown. Pending answers are sent at once, and proxies are asked to close their connections.
const DRAIN: Duration = Duration::from_secs(5);

/// Serves until SIGTERM or SIGINT. An error means that the start failed and nothing was served.
pub(crate) fn run(config: Config) -> anyhow::Result<()> {
    raise_file_limit();
    let runtime = Runtime::new().context("cannot start the runtime")?;
    runtime.block_on(serve(config))
}

async fn serve(config: Config) -> anyhow::Result<()> {
    tracing::info!("slowlane {} starts", env!("CARGO_PKG_VERSION"));
    let mut signals = Signals::new().context("cannot listen to signals")?;
    let serving = start(&config).await?;

    systemd::ready();
    signals.wait(serving.reload, config.file.as_ref()).await;
    tracing::info!("shutting down: held requests are let through, connections closed");
    systemd::stopping();
    if timeout(DRAIN, serving.end.end()).await.is_err() {
        tracing::warn!("some connections did not close within {} s", DRAIN.as_secs());
    }
    if let Some(log) = serving.agent.decision_log() {
        log.flush();
    }
    if let Some(keeper) = serving.keeper {
        keeper.end();
    }
    Ok(())
}

/// A daemon that serves until its shutdown begins or it is dropped.
#[derive(Debug)]
pub(crate) struct Serving {
    /// The bound addresses. A port of 0 in the config is replaced by the real one.
    pub spop: Vec<String>,
    pub admin: Vec<String>,
    /// `None` without a policy directory.
    pub reload: Option<Reload>,
    pub end: Trigger,
    agent: Arc<Agent>,
    keeper: Option<Keeper>,
    _asides: Vec<Aside>,
}

/// Builds all parts and starts to serve.
pub(crate) async fn start(config: &Config) -> anyhow::Result<Serving> {
    let found =
        config.state.as_ref().and_then(|file| file.find(config.table.entries_max, config.annex_bytes_max));
    let clock = found.as_ref().map_or_else(Clock::start, |found| found.clock);
    let metrics = Arc::new(metrics(config));
    let status = Arc::new(Status::default());
    let cluster = config.cluster.as_ref().map(|cluster| Arc::new(Cluster::new(cluster.settings)));
    let key_secret = config.secret_of_this_run(found.as_ref().and_then(Found::key_secret))?;
    let (throttle, reload) = throttle(config, key_secret, cluster.clone(), clock, &metrics, &status)?;
    if let Some(found) = found {
        found.restore(&throttle);
    }
    let agent = Agent::new(throttle, clock, config.hold, metrics.clone(), status);
    let agent = Arc::new(agent.with_decision_log(decision_log(config, &metrics, clock)?));
    config.warnings().iter().for_each(|warning| tracing::warn!("{warning}"));

    // All listeners are bound before the first one serves, so a failed start answers no request.
    let mut handed = Handed::from_systemd();
    let spop = entrance(&config.spop.listen, handed.take("spop"), UNIX_MODE, &metrics.spop).await?;
    let http = entrance(&config.http.listen, handed.take("http"), UNIX_MODE, &metrics.http).await?;
    let token_server = match &config.token_server {
        Some(config) => Some(BoundTokenServer::bind(config, clock, &metrics).await?),
        None => None,
    };
    let aside = Aside::start("admin")?;
    let page = Admin::new(config.admin.token.clone(), config.admin.hosts.clone());
    let (admin, socket) = aside.run(bind_admin(config.admin.clone(), handed, metrics.clone())).await??;

    let addresses = |entrance: &Entrance| entrance.listeners.iter().map(Listener::to_string).collect();
    let (spop_addresses, admin_addresses) = (addresses(&spop), addresses(&admin));

    if let (Some(config), Some(cluster), Some(metrics)) = (&config.cluster, cluster, &metrics.cluster) {
        let (config, metrics, reload) = (config.clone(), metrics.clone(), reload.clone());
        let (throttle, status) = (agent.throttle.clone(), agent.status.clone());
        let node = Node { config, cluster, throttle, reload, clock, metrics, status };
        node.start().context("cannot join the cluster")?;
    }

    let (end, shutdown) = shutdown::channel();
    let spoe = Arc::new(Spoe::new(config.spop.frame_bytes_max, config.spop.timeout));
    spop.open(&agent, &shutdown, move |stream, agent, shutdown| spoe.clone().serve(stream, agent, shutdown));
    let check = Check::new(config.http.idle_timeout);
    http.open(&agent, &shutdown, move |stream, agent, shutdown| check.clone().serve(stream, agent, shutdown));
    aside.enter(|| {
        admin.open(&agent, &shutdown, move |stream, agent, shutdown| {
            page.clone().serve(stream, agent, shutdown)
        });
        socket.open(&agent, &shutdown, admin_socket::serve);
        // In the thread of the admin listener: it may wait for readers of the status.
        keep_status(agent.clone(), &shutdown);
        watch_fields(agent.clone(), &shutdown);
        watch_table(agent.clone(), &shutdown);
        watch_blocks(agent.clone(), &shutdown);
    });
    let asides = token_server.map(|bound| bound.open(&agent, &shutdown)).into_iter().chain([aside]).collect();
    watchdog(&shutdown);
    let (spop, admin) = (spop_addresses, admin_addresses);
    let keeper = keeper(config, &agent)?;
    Ok(Serving { spop, admin, reload, end, agent, keeper, _asides: asides })
}

fn metrics(config: &Config) -> Metrics {
    let mut metrics = Metrics::new();
    if config.cluster.is_some() {
        metrics = metrics.with_cluster();
    }
    if config.token_server.is_some() {
        metrics = metrics.with_token_server();
    }
    if config.state.is_some() {
        metrics = metrics.with_state();
    }
    metrics
}

/// Reads the first policy and starts the reloader, which reads the later ones.
fn throttle(
    config: &Config,
    key_secret: KeySecret,
    cluster: Option<Arc<Cluster>>,
    clock: Clock,
    metrics: &Arc<Metrics>,
    status: &Arc<Status>,
) -> anyhow::Result<(Arc<Throttle>, Option<Reload>)> {
    let build = |policy| {
        let throttle = Throttle::new(policy, config.table, config.annex_bytes_max);
        match cluster {
            Some(cluster) => throttle.in_cluster(cluster),
            None => throttle,
        }
    };
    let Some(source) = config.policy.clone() else {
        let policy = Policy::builtin().with_key_secret(key_secret);
        tracing::info!("no policy directory, serving the built-in policy: {}", policy.summary());
        systemd::status(&format!("serving the built-in policy: {}", policy.summary()));
        return Ok((Arc::new(build(policy)), None));
    };
    let source = source.with_key_secret(key_secret);
    let (seen, policy) = source.read_first();
    let policy = policy?;
    tracing::info!("policy: {}", policy.summary());
    watch::warn(&policy.warnings().to_string());
    systemd::status(&format!("serving {}", policy.summary()));
    let throttle = Arc::new(build(policy));
    let reload = watch::start(source, seen, throttle.clone(), metrics.clone(), status.clone(), clock);
    Ok((throttle, Some(reload)))
}

/// Starts to keep the state in a file.
fn keeper(config: &Config, agent: &Agent) -> anyhow::Result<Option<Keeper>> {
    let (Some(file), Some(metrics)) = (&config.state, &agent.metrics.state) else { return Ok(None) };
    let keeper = Keeper::start(file.clone(), agent.throttle.clone(), agent.clock, metrics.clone());
    Ok(Some(keeper.context("cannot start a thread")?))
}

/// Opens the decision log. The start fails if it cannot be written.
fn decision_log(config: &Config, metrics: &Metrics, clock: Clock) -> anyhow::Result<Option<DecisionLog>> {
    let Some(settings) = &config.decision_log else { return Ok(None) };
    let log = DecisionLog::start(settings, metrics.decision_log.clone(), clock);
    let log = log.map_err(|error| match &settings.place {
        Place::File(path) => anyhow!(
            "cannot write the decision log {}: {error}; choose a file in a folder that this user may write to",
            path.display()
        ),
        Place::Stdout => anyhow!("cannot write the decision log: {error}"),
    })?;
    Ok(Some(log))
}

/// Binds the listeners of a protocol. Sockets from systemd replace the addresses in the config.
async fn entrance(
    listen: &Listen,
    handed: Vec<Listener>,
    unix_mode: u32,
    metrics: &ConnectionMetrics,
) -> anyhow::Result<Entrance> {
    let mut listeners = handed;
    if listeners.is_empty() {
        for address in &listen.addresses {
            listeners.push(Listener::bind(address, unix_mode).await?);
        }
    }
    for listener in &listeners {
        tracing::info!("{} on {listener}", listen.name);
    }
    Ok(Entrance { listeners, connections_max: listen.connections_max, metrics: metrics.clone() })
}

/// Binds the admin listener and the admin socket.
async fn bind_admin(
    config: AdminConfig,
    mut handed: Handed,
    metrics: Arc<Metrics>,
) -> anyhow::Result<(Entrance, Entrance)> {
    let addresses = config.socket.into_iter().map(Address::Unix).collect();
    let socket = Listen { name: "admin socket", addresses, connections_max: config.listen.connections_max };
    let socket = entrance(&socket, Vec::new(), config.socket_mode, &metrics.admin).await?;
    let admin = entrance(&config.listen, handed.take("admin"), config.socket_mode, &metrics.admin).await?;
    if config.token.is_none() {
        admin.listeners.iter().try_for_each(|listener| Guarded::Admin.unless_bound_locally(listener))?;
    }
    Ok((admin, socket))
}

/// The token server with its listeners bound, in a thread of its own.
struct BoundTokenServer {
    entrance: Entrance,
    server: Arc<TokenServer>,
    aside: Aside,
}

impl BoundTokenServer {
    async fn bind(
        config: &TokenServerConfig,
        clock: Clock,
        metrics: &Metrics,
    ) -> anyhow::Result<BoundTokenServer> {
        let aside = Aside::start("token server")?;
        let (listen, connections) = (config.listen.clone(), metrics.nodes.clone());
        let bind = async move { entrance(&listen, Vec::new(), UNIX_MODE, &connections).await };
        let entrance = aside.run(bind).await??;
        if config.token.is_none() {
            entrance
                .listeners
                .iter()
                .try_for_each(|listener| Guarded::TokenServer.unless_bound_locally(listener))?;
        }
        let metrics = metrics.token_server.clone().unwrap_or_default();
        let server = TokenServer::new(config.token.clone(), clock, metrics);
        Ok(BoundTokenServer { entrance, server, aside })
    }

    /// Starts to serve. The thread ends with the returned value.
    fn open(self, agent: &Arc<Agent>, shutdown: &Shutdown) -> Aside {
        let BoundTokenServer { entrance, server, aside } = self;
        aside.enter(|| {
            entrance.open(agent, shutdown, move |stream, agent, shutdown| {
                server.clone().serve(stream, agent, shutdown)
            });
        });
        aside
    }
}

/// A thread for a listener beside those of the proxies, so that its load does not slow decisions down.
#[derive(Debug)]
struct Aside {
    handle: Handle,
    _end: oneshot::Sender<()>,
}

impl Aside {
    fn start(name: &str) -> anyhow::Result<Aside> {
        let runtime =
            Builder::new_current_thread().enable_all().build().context("cannot start the runtime")?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel::<()>();
        let serve = move || drop(runtime.block_on(ended));
        thread::Builder::new().name(name.into()).spawn(serve).context("cannot start a thread")?;
        Ok(Aside { handle, _end: end })
    }

    async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> anyhow::Result<T> {
        Ok(self.handle.spawn(work).await?)
    }

    /// Calls `open`. Tasks that it spawns run in the thread.
    fn enter(&self, open: impl FnOnce()) {
        let _entered = self.handle.enter();
        open();
    }
}

/// The signals of the daemon.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    user1: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
            user1: signal(SignalKind::user_defined1())?,
        })
    }

    /// Returns on SIGTERM or SIGINT.
    ///
    /// SIGHUP reads the policy again and reports an edited config file. SIGUSR1 turns debug logging on or off.
    async fn wait(&mut self, reload: Option<Reload>, file: Option<&ConfigFile>) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                _ = self.user1.recv() => log::toggle_debug(),
                _ = self.hangup.recv() => {
                    if let Some(news) = file.and_then(ConfigFile::news) {
                        tracing::warn!("{news}");
                    }
                    match &reload {
                        Some(reload) => reload.ask(),
                        None => {
                            systemd::reloading();
                            tracing::info!("nothing to reload: there is no policy directory");
                            systemd::ready();
                        }
                    }
                }
            }
        }
    }
}

/// Notifies the watchdog of systemd, if it is enabled.
fn watchdog(shutdown: &Shutdown) {
    let Some(often) = systemd::watchdog() else { return };
    let shutdown = shutdown.clone();
    let beats = move || {
        let mut shutdown = shutdown.clone();
        async move {
            let mut beat = interval(often);
            loop {
                tokio::select! {
                    _ = beat.tick() => systemd::alive(),
                    () = shutdown.begun() => return,
                }
            }
        }
    };
    tokio::spawn(revived_task("the watchdog", beats));
}

/// Does the work once a second until the shutdown begins.
fn each_second(name: &'static str, shutdown: &Shutdown, work: impl FnMut() + Send + 'static) {
    let (shutdown, work) = (shutdown.clone(), Arc::new(Mutex::new(work)));
    let go_on = move || {
        let (mut shutdown, work) = (shutdown.clone(), work.clone());
        async move {
            let mut look = interval(Duration::from_secs(1));
            loop {
                tokio::select! {
                    _ = look.tick() => (work.lock().unwrap_or_else(PoisonError::into_inner))(),
                    () = shutdown.begun() => return,
                }
            }
        }
    };
    tokio::spawn(revived_task(name, go_on));
}

/// Warns once a second while the table evicts live entries.
fn watch_table(agent: Arc<Agent>, shutdown: &Shutdown) {
    let mut before = 0;
    each_second("the look at the table", shutdown, move || {
        let evictions = agent.throttle.usage().evictions;
        if evictions > before {
            tracing::warn!(
                "the table is full: {} live entries evicted; raise [table] size",
                evictions - before
            );
        }
        before = evictions;
    });
}

/// Forgets blocks that are over. Warns once when keys can no longer be blocked.
fn watch_blocks(agent: Arc<Agent>, shutdown: &Shutdown) {
    let (mut before, mut is_told) = (0, false);
    each_second("the look at the blocks", shutdown, move || {
        let now = agent.clock.now();
        agent.throttle.sweep_blocks(now);
        let refused = agent.throttle.block_usage(now).refused;
        if refused > before && !is_told {
            tracing::warn!(
                "{KEY_BLOCKS_MAX} keys are blocked, the most: block= blocks no further ones; a shorter block= helps"
            );
        }
        is_told = refused > before;
        before = refused;
    });
}

/// Warns of fields that the policy needs, and that no request carries.
fn watch_fields(agent: Arc<Agent>, shutdown: &Shutdown) {
    each_second("the look for missing fields", shutdown, move || {
        let total = agent.metrics.verdicts.total();
        for line in agent.status.missing.tick(&agent.throttle.policy(), total) {
            tracing::warn!(
                "{line}: let the proxy send it (`slowlane config` prints files that do), or take it out of the policy"
            );
        }
    });
}

/// Samples the counters once a second for the history in the status.
fn keep_status(agent: Arc<Agent>, shutdown: &Shutdown) {
    each_second("the history of the status", shutdown, move || {
        agent.status.tick(agent.clock.now(), &agent.metrics.verdicts, agent.throttle.table());
    });
}

/// Raises the soft limit of open files, often 1024, to the hard limit: every connection needs a file descriptor.
fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // On failure the old limit stays in force.
    let _ = setrlimit(Resource::Nofile, limit);
}
