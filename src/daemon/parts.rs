//! The parts of a daemon that serve no socket, built from its config.

use std::sync::Arc;

use anyhow::{Context, anyhow};

use crate::config::Config;
use crate::observe::clock::WALL;
use crate::observe::decision_log::DecisionLog;
use crate::observe::groups::{ClusterMetrics, PeersMetrics, StateMetrics, TlsMetrics, TokenServerMetrics};
use crate::observe::{Clock, Metrics, Status};
use crate::server::Agent;
use crate::server::peers::Peers;
use crate::sync::SnapshotWriter;
use crate::watch::{self, Reload, Source};
use slowlane_core::base::KeySecret;
use slowlane_core::cluster::Cluster;
use slowlane_core::policy::Policy;
use slowlane_core::throttle::Throttle;

pub(super) fn metrics(config: &Config) -> Metrics {
    let mut metrics = Metrics { started: Some(Clock::wall()), ..Metrics::new() };
    let at = &mut metrics.registry;
    metrics.cluster = config.cluster.is_some().then(|| ClusterMetrics::register(at));
    metrics.token_server = config.token_server.is_some().then(|| TokenServerMetrics::register(at));
    metrics.state = config.state.is_some().then(|| StateMetrics::register(at));
    metrics.peers = config.peers.is_some().then(|| PeersMetrics::register(at));
    metrics.tls = (!config.tls_files().is_empty()).then(|| TlsMetrics::register(at));
    metrics
}

/// Reads the first policy and starts the reloader, which reads later ones.
pub(super) fn throttle(
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
        tracing::info!("no policy directory, serving the built-in policy: {}", policy.summary());
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

/// The proxies that enforce limits locally.
pub(super) fn peers(config: &Config, metrics: &Metrics) -> Option<Arc<Peers>> {
    let (config, metrics) = (config.peers.as_ref()?, metrics.peers.clone()?);
    Some(Arc::new(Peers::new(config.settings.clone(), metrics)))
}

/// Starts the snapshot writer.
pub(super) fn snapshot_writer(config: &Config, agent: &Arc<Agent>) -> anyhow::Result<Option<SnapshotWriter>> {
    let (Some(file), Some(metrics)) = (&config.state, &agent.metrics.state) else { return Ok(None) };
    let snapshot_writer = file.clone().keep(metrics.clone(), agent.clone());
    Ok(Some(snapshot_writer.context("cannot start a thread")?))
}

/// Opens the decision log. The start fails if it cannot be written.
pub(super) fn decision_log(
    config: &Config,
    metrics: &Metrics,
    clock: Clock,
) -> anyhow::Result<Option<DecisionLog>> {
    let settings = &config.sections.decision_log;
    let Some(path) = &settings.path else { return Ok(None) };
    let (sample, per_second, metrics) = (settings.sample, settings.per_second, metrics.decision_log.clone());
    let log = DecisionLog::start(path, sample, per_second, &settings.verdicts, metrics, clock);
    Ok(Some(log.map_err(|error| {
        let path = path.display();
        anyhow!("cannot write the decision log {path}: {error}; choose a file in a directory that this user may write to")
    })?))
}
