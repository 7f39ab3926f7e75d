//! The metrics of a node of a cluster. A slowlane that is alone has none of them.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::observe::metrics::metric;

/// The handles of the metrics of a node.
#[derive(Clone, Debug, Default)]
pub struct ClusterMetrics {
    /// 1 while the store answers.
    pub up: Gauge,
    pub nodes: Gauge,
    pub round_trip_s: Gauge<f64, AtomicU64>,
    pub messages: Counter,
    pub restored: Counter,
    pub silent_s: Counter<f64, AtomicU64>,
    pub keys_refused: Counter,
    pub other_policies: Gauge,
    pub blocks_alone: Gauge,
    pub errors: Family<[(&'static str, &'static str); 1], Counter>,
}

impl ClusterMetrics {
    pub(super) fn register(registry: &mut Registry) -> ClusterMetrics {
        let at = registry.sub_registry_with_prefix("cluster");
        ClusterMetrics {
            up: metric(at, "up", "1 while the store of the cluster answers"),
            nodes: metric(at, "nodes", "Nodes of the cluster, including this one"),
            round_trip_s: metric(at, "round_trip_seconds", "Round trip of the last message to the store"),
            messages: metric(at, "messages", "Key updates that the store has answered"),
            restored: metric(at, "taught", "Key updates that restored a key that the store had lost"),
            silent_s: metric(at, "silent_seconds", "Time without an answer of the store"),
            keys_refused: metric(
                at,
                "keys_refused",
                "Requests whose key was not shared because of keys_max, and got an equal part of the rate",
            ),
            other_policies: metric(at, "other_policies", "Nodes with other SLOs than this one"),
            blocks_alone: metric(
                at,
                "blocks_alone",
                "Blocks in force on this node only, because the store has no room for them",
            ),
            errors: metric(at, "errors", "Failures of the store, by kind"),
        }
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
    pub unauthenticated_closed: Counter,
}

impl TokenServerMetrics {
    pub(super) fn register(registry: &mut Registry) -> TokenServerMetrics {
        let at = registry.sub_registry_with_prefix("token_server");
        TokenServerMetrics {
            records: metric(at, "records", "Keys that this token server keeps for the nodes"),
            refused: metric(at, "records_refused", "Key updates for which this token server had no room"),
            commands: metric(at, "commands", "Messages of nodes to this token server"),
            unauthenticated_closed: metric(
                at,
                "strangers_gone",
                "Unauthenticated connections closed for newer ones",
            ),
        }
    }
}
