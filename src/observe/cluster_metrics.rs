//! The metrics of a node of a cluster. A slowlane that is alone has none of them.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// The handles of the metrics of a node.
#[derive(Clone, Debug, Default)]
pub struct ClusterMetrics {
    /// 1 while the store answers.
    pub up: Gauge,
    pub nodes: Gauge,
    pub round_trip_s: Gauge<f64, AtomicU64>,
    pub messages: Counter,
    pub keys: Gauge,
    pub owed: Gauge<f64, AtomicU64>,
    pub taught: Counter,
    pub silent_s: Counter<f64, AtomicU64>,
    pub keys_refused: Counter,
    pub other_policies: Gauge,
    pub blocks_alone: Gauge,
    pub errors: Arc<Family<[(&'static str, &'static str); 1], Counter>>,
}

impl ClusterMetrics {
    pub(super) fn register(registry: &mut Registry) -> ClusterMetrics {
        let metrics = ClusterMetrics::default();
        let registry = registry.sub_registry_with_prefix("cluster");
        registry.register("up", "1 while the store of the cluster answers", metrics.up.clone());
        registry.register("nodes", "Nodes of the cluster, with this one", metrics.nodes.clone());
        let help = "Time from a message to the store's answer, as of the last one";
        registry.register("round_trip_seconds", help, metrics.round_trip_s.clone());
        registry.register(
            "messages",
            "Messages about a key that the store has answered",
            metrics.messages.clone(),
        );
        registry.register("keys", "Keys that this node shares now", metrics.keys.clone());
        let help = "Requests let through by this node that the store does not know of yet";
        registry.register("owed_requests", help, metrics.owed.clone());
        let help = "Messages that taught the store a key that it had forgotten";
        registry.register("taught", help, metrics.taught.clone());
        registry.register("silent_seconds", "Time without an answer of the store", metrics.silent_s.clone());
        let help =
            "Requests whose key found no room among the shared ones, and got an equal part of the rate";
        registry.register("keys_refused", help, metrics.keys_refused.clone());
        let help = "Nodes with other SLOs than this one";
        registry.register("other_policies", help, metrics.other_policies.clone());
        let help = "Blocks that hold on this node alone, because the store has no room for them";
        registry.register("blocks_alone", help, metrics.blocks_alone.clone());
        registry.register("errors", "Failures of the store, by kind", (*metrics.errors).clone());
        metrics
    }

    /// Counts a failure of the store.
    pub fn failed(&self, kind: &'static str) {
        self.errors.get_or_create(&[("kind", kind)]).inc();
    }
}

/// The handles of the metrics of a token server. A slowlane that is none has none of them.
#[derive(Clone, Debug, Default)]
pub struct TokenServerMetrics {
    pub records: Gauge,
    pub refused: Counter,
    pub commands: Counter,
    pub strangers_gone: Counter,
}

impl TokenServerMetrics {
    pub(super) fn register(registry: &mut Registry) -> TokenServerMetrics {
        let metrics = TokenServerMetrics::default();
        let registry = registry.sub_registry_with_prefix("token_server");
        registry.register(
            "records",
            "Keys that this token server keeps for the nodes",
            metrics.records.clone(),
        );
        let help = "Messages about a key for which this token server had no room";
        registry.register("records_refused", help, metrics.refused.clone());
        registry.register("commands", "Commands of nodes to this token server", metrics.commands.clone());
        let help = "Connections without the token that gave way to newer ones";
        registry.register("strangers_gone", help, metrics.strangers_gone.clone());
        metrics
    }
}
