//! A serving daemon: its start, its shutdown, and its handover to a new process.

use std::mem;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::config::{Config, ConfigFile};
use crate::daemon::listeners::Listeners;
use crate::daemon::rounds;
use crate::observe::clock::WALL;
use crate::observe::decision_log::DecisionLog;
use crate::observe::groups::{ClusterMetrics, PeersMetrics, StateMetrics, TlsMetrics, TokenServerMetrics};
#[cfg(feature = "lab")]
use crate::observe::status::ProtectedLine;
use crate::observe::{Clock, Metrics, Status, systemd};
use crate::server::admin::UpgradeRequest;
use crate::server::peers::Peers;
use crate::server::shutdown::{self, Trigger};
use crate::server::{Agent, Inherited, Transfer};
use crate::sync::{Last, Node, RunningNode, SnapshotWriter};
use crate::upgrade::{Handover, OldProcess, Program};
use crate::watch::{self, Reload, Source};
use slowlane_core::base::KeySecret;
use slowlane_core::cluster::Cluster;
use slowlane_core::policy::Policy;
use slowlane_core::throttle::Throttle;

/// The longest wait for connections to close at a shutdown. Pending answers are sent at once, and proxies are asked to
/// close their connections.
const DRAIN: Duration = Duration::from_secs(5);

/// The maximum number of upgrade requests that wait for the current upgrade, to be served only if it fails.
const UPGRADE_REQUESTS_MAX: usize = 1;

/// A daemon. After `open`, it serves until its shutdown begins or it is dropped.
#[derive(Debug)]
#[cfg_attr(not(feature = "lab"), expect(dead_code, reason = "the demonstration reads the addresses"))]
pub(crate) struct Serving {
    /// The bound addresses for SPOP, the HTTP check and the admin pages. A port of 0 in the config is replaced by the
    /// actual port.
    pub addresses: [Vec<String>; 3],
    /// `None` without a policy directory.
    pub reload: Option<Reload>,
    pub end: Arc<Trigger>,
    pub upgrades: mpsc::Receiver<UpgradeRequest>,
    agent: Arc<Agent>,
    /// `None` if this slowlane is not in a cluster.
    cluster: Option<Arc<Cluster>>,
    listeners: Listeners,
    snapshot_writer: Option<SnapshotWriter>,
    node: Option<RunningNode>,
    hold_max: Duration,
}

/// Builds all parts and starts to serve in the caller's runtime, with the state from the state file, if any.
pub(crate) fn start(config: &Config) -> anyhow::Result<Serving> {
    let found = config
        .state
        .as_ref()
        .and_then(|file| file.find(config.table.entries_max, config.sections.table.annex_bytes_max));
    let clock = found.as_ref().map_or_else(Clock::start, |found| found.clock);
    let earlier = found.as_ref().and_then(|found| found.head.key_secret());
    let mut serving = Serving::new(config, clock, earlier, Inherited::from_systemd())?;
    if let Some(found) = found {
        found.restore(&serving.agent.throttle, &serving.agent.status);
    }
    serving.open(config, Vec::new())?;
    Ok(serving)
}

/// Builds all parts, takes over everything from the previous process, and starts to serve.
pub(super) async fn take_over(config: &Config, mut old_process: OldProcess) -> anyhow::Result<Serving> {
    let (clock, secret) = (old_process.clock, old_process.key_secret);
    let mut serving = Serving::new(config, clock, secret, mem::take(&mut old_process.listeners))?;
    let agent = serving.agent.clone();
    let taking = spawn_blocking(move || old_process.take(&agent).map(|taken| (taken, old_process)));
    let (connections, old_process) = taking.await?.context("cannot take over from the previous process")?;
    let summary = serving.summary();
    let named = move || {
        systemd::status(&summary);
        systemd::ready();
    };
    old_process.taken(serving.agent.clone(), named)?;
    // A socket that the runtime does not accept is skipped and closed.
    let earlier = connections.into_iter().filter_map(|(socket, state)| Transfer::open(socket, state).ok());
    serving.open(config, earlier.collect())?;
    Ok(serving)
}

impl Serving {
    /// Builds all parts and binds the listeners. Does not serve yet.
    fn new(
        config: &Config,
        clock: Clock,
        earlier: Option<KeySecret>,
        inherited: Inherited,
    ) -> anyhow::Result<Serving> {
        let metrics = Arc::new(metrics(config));
        let status = Arc::new(Status::default());
        let cluster = config.cluster.as_ref().map(|cluster| Arc::new(Cluster::new(cluster.settings)));
        let secret = config.secret_of_this_run(earlier)?;
        let (throttle, reload) = throttle(config, secret, cluster.clone(), clock, &metrics, &status)?;
        let mut agent = Agent::new(throttle, clock, config.hold, metrics.clone(), status);
        agent.observer.decision_log = decision_log(config, &metrics, clock)?;
        agent.peers = peers(config, &metrics);
        let agent = Arc::new(agent);
        config.warnings().iter().for_each(|warning| tracing::warn!("{warning}"));
        let (ask, upgrades) = mpsc::channel(UPGRADE_REQUESTS_MAX);
        let listeners = Listeners::bind(config, inherited, &agent, ask)?;
        let (end, _) = shutdown::channel();
        Ok(Serving {
            addresses: listeners.addresses(),
            reload,
            end: Arc::new(end),
            upgrades,
            agent,
            cluster,
            listeners,
            snapshot_writer: None,
            node: None,
            hold_max: config.hold.hold_max,
        })
    }

    fn open(&mut self, config: &Config, earlier: Vec<Transfer>) -> anyhow::Result<()> {
        if let (Some(config), Some(cluster), Some(metrics)) =
            (config.cluster.clone(), self.cluster.clone(), self.agent.metrics.cluster.clone())
        {
            let (agent, reload) = (self.agent.clone(), self.reload.clone());
            let token_server = self.listeners.token_server.clone();
            let joining = Node { config, token_server, cluster, agent, reload, metrics };
            self.node = Some(joining.start().map_err(|error| anyhow!("cannot join the cluster: {error}"))?);
        }
        self.listen(earlier);
        self.snapshot_writer = snapshot_writer(config, &self.agent)?;
        Ok(())
    }

    /// Opens the listeners, and continues the connections that stopped for a handover.
    fn listen(&self, earlier: Vec<Transfer>) {
        let shutdown = self.end.shutdown();
        self.listeners.open(&self.agent, &shutdown, earlier);
        rounds::watchdog(&shutdown);
    }

    /// Reads the policy and the certificates again, and reports an edited config file.
    pub(super) fn read_again(&self) {
        let Listeners { config, certificates, .. } = &self.listeners;
        if let Some(news) = config.as_ref().and_then(ConfigFile::news) {
            tracing::warn!("{news}");
        }
        certificates.iter().for_each(|tls| tls.reload());
        if let Some(reload) = &self.reload {
            return reload.ask();
        }
        systemd::reloading();
        if certificates.is_empty() {
            tracing::info!("nothing to reload: there is no policy directory");
        }
        systemd::ready();
    }

    /// The applications that are protected.
    #[cfg(feature = "lab")]
    pub(crate) fn protected(&self) -> Vec<ProtectedLine> {
        ProtectedLine::all(&self.agent.throttle)
    }

    /// The policy in force, in words for the operator.
    pub(super) fn summary(&self) -> String {
        let policy = self.agent.throttle.policy().summary();
        match self.reload {
            Some(_) => format!("serving {policy}"),
            None => format!("serving the built-in policy: {policy}"),
        }
    }

    /// Shuts down: pending answers are sent, connections are closed, and the state is written.
    pub(super) async fn shut_down(self) {
        if timeout(DRAIN, self.end.end()).await.is_err() {
            tracing::warn!("some connections did not close within {} s", DRAIN.as_secs());
        }
        if let Some(log) = &self.agent.observer.decision_log {
            log.flush();
        }
        if let Some(snapshot_writer) = self.snapshot_writer {
            snapshot_writer.end(Last::Write);
        }
    }

    /// Hands over to a new process of the program. Returns a message for the operator, or the reason for a failure.
    /// After a failure, this process continues to serve.
    pub(super) async fn upgrade(&mut self, program: &Program) -> Result<String, String> {
        tracing::info!("upgrade: starting {}", program.path.display());
        let (agent, end) = (self.agent.clone(), self.end.clone());
        let handover =
            Handover { agent, listeners: self.listeners.listeners(), end, runtime: Handle::current() };
        let program = program.clone();
        let given = spawn_blocking(move || handover.hand_over(&program)).await;
        let successor = match given.map_err(|error| error.to_string())? {
            Ok(successor) => successor,
            Err(failure) => {
                // The listeners are opened again, unless they were never closed.
                self.end.go_on().into_iter().for_each(|stopped| self.listen(stopped));
                return Err(failure.to_string());
            }
        };
        self.listeners.listeners().iter().for_each(|(_, listener)| listener.leave());
        if let Some(snapshot_writer) = self.snapshot_writer.take() {
            snapshot_writer.end(Last::Leave);
        }
        drop(self.node.take());
        if let Some(log) = &self.agent.observer.decision_log {
            log.flush();
        }
        let pid = successor.process.id();
        systemd::main_process(pid);
        let paused_ms = successor.paused.as_secs_f64() * 1_000.0;
        let news = format!("process {pid} has taken over; decisions were paused for {paused_ms:.1} ms");
        let report = thread::Builder::new().name("successor".into()).spawn(move || successor.report());
        if let Err(error) = report {
            tracing::warn!("cannot notify the new process when clients disconnect: {error}");
        }
        Ok(news)
    }

    /// Waits for the last held answers, after another process has taken over.
    pub(super) async fn drain(&self) {
        let _ = timeout(self.hold_max + DRAIN, self.end.served()).await;
    }
}

fn metrics(config: &Config) -> Metrics {
    let mut metrics = Metrics { started: Some(Clock::wall()), ..Metrics::new() };
    let at = &mut metrics.registry;
    metrics.cluster = config.cluster.is_some().then(|| ClusterMetrics::register(at));
    metrics.token_server = config.token_server.is_some().then(|| TokenServerMetrics::register(at));
    metrics.state = config.state.is_some().then(|| StateMetrics::register(at));
    metrics.peers = config.peers.is_some().then(|| PeersMetrics::register(at));
    metrics.tls = (!config.tls_files().is_empty()).then(|| TlsMetrics::register(at));
    metrics
}

/// Builds the throttle and starts the reloader. Without a policy directory, uses the built-in policy and no reloader.
fn throttle(
    config: &Config,
    key_secret: KeySecret,
    cluster: Option<Arc<Cluster>>,
    clock: Clock,
    metrics: &Arc<Metrics>,
    status: &Arc<Status>,
) -> anyhow::Result<(Arc<Throttle>, Option<Reload>)> {
    let build = |policy| {
        let throttle = Throttle::new(policy, config.table, config.sections.table.annex_bytes_max);
        match cluster {
            Some(cluster) => throttle.in_cluster(cluster),
            None => throttle,
        }
    };
    let Some(source) = config.policy.clone() else {
        let policy = Policy::builtin().with_key_secret(key_secret);
        tracing::info!("no policy directory is set; serving the built-in policy: {}", policy.summary());
        return Ok((Arc::new(build(policy)), None));
    };
    let source = Source { key_secret, layout: source.layout.clone().on(WALL), ..source };
    let (seen, policy) = source.read_first();
    let policy = policy?;
    tracing::info!("policy: {}", policy.summary());
    let warnings = policy.warnings().to_string();
    watch::warn(&warnings);
    if !warnings.is_empty() {
        status.reloads.done(clock.now(), policy.summary(), &warnings);
    }
    let throttle = Arc::new(build(policy));
    let reload = watch::start(source, seen, throttle.clone(), metrics.clone(), status.clone(), clock);
    Ok((throttle, Some(reload)))
}

/// The registry of the proxies that enforce limits locally, if the config has a listener for them.
fn peers(config: &Config, metrics: &Metrics) -> Option<Arc<Peers>> {
    let (config, metrics) = (config.peers.as_ref()?, metrics.peers.clone()?);
    Some(Arc::new(Peers::new(config.settings.clone(), metrics)))
}

/// Starts the snapshot writer if the config names a state file.
fn snapshot_writer(config: &Config, agent: &Arc<Agent>) -> anyhow::Result<Option<SnapshotWriter>> {
    let (Some(file), Some(metrics)) = (&config.state, &agent.metrics.state) else { return Ok(None) };
    let snapshot_writer = file.clone().keep(metrics.clone(), agent.clone());
    Ok(Some(snapshot_writer.context("cannot start a thread")?))
}

/// Opens the decision log. If the log cannot be written, the start fails.
fn decision_log(config: &Config, metrics: &Metrics, clock: Clock) -> anyhow::Result<Option<DecisionLog>> {
    let settings = &config.sections.decision_log;
    let Some(path) = &settings.path else { return Ok(None) };
    let (sample, per_second, metrics) = (settings.sample, settings.per_second, metrics.decision_log.clone());
    let log = DecisionLog::start(path, sample, per_second, &settings.verdicts, metrics, clock);
    Ok(Some(log.map_err(|error| {
        let path = path.display();
        anyhow!("cannot write the decision log {path}: {error}; choose a file in a directory that this user may write to")
    })?))
}
