//! Groups of metrics: one for every slowlane, and one each for clusters, token servers, state files, peers and TLS.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Metric, Registry, Unit};

type OfListener = [(&'static str, &'static str); 1];
type OfFailure = [(&'static str, &'static str); 2];
type Moment = Gauge<f64, AtomicU64>;

/// Declares a group of metrics. Each line has the field, its type, the name after the prefix, an optional unit, and
/// the help. The prefix is optional.
macro_rules! group {
    (
        $(#[$doc:meta])* $group:ident $($prefix:literal)?
        $($field:ident: $metric:ty = $name:literal $(in $unit:expr)?, $help:literal;)*
    ) => {
        $(#[$doc])*
        #[allow(rustdoc::broken_intra_doc_links, reason = "a help text may name a config section, like [hold]")]
        #[derive(Clone, Debug, Default)]
        pub struct $group { $(#[doc = $help] pub $field: $metric,)* }

        impl $group {
            pub fn register(registry: &mut Registry) -> $group {
                let at = registry$(.sub_registry_with_prefix($prefix))?;
                $group { $($field: registered(at, $name, $help, None$(.or(Some($unit)))?),)* }
            }
        }
    };
}

group! {
    /// The metrics that every slowlane has, except those in the other fields of `Metrics`.
    PlainMetrics
    holds: Gauge = "holds", "Answers being held now";
    holds_refused: Counter = "holds_refused", "Answers not held because [hold] max was reached";
    holds_denied: Counter = "holds_denied",
        "Held requests that got 429 because the cluster's store had no slot for them";
    holds_abandoned: Counter = "holds_abandoned",
        "Holds that ended early: the client disconnected, the connection ended, or HAProxy abandoned the hold";
    request_ids_forgotten: Counter = "request_ids_forgotten",
        "Request ids forgotten because too many arrived within a second";
    end_lines: Counter = "end_lines",
        "Log lines read by [ends], and request ends reported by Envoy's access logs";
    end_lines_dropped: Family<OfListener, Counter> = "end_lines_dropped",
        "Log lines not read by [ends], by reason; lost means that the socket's buffer was full";
    grpc_failures: Family<OfListener, Counter> = "grpc_failures",
        "Failed calls to [grpc], by status; after a failure, most proxies let the request pass";
    blocked: Counter = "blocked", "Requests refused by a block";
    spop_errors: Family<SpopError, Counter> = "spop_errors",
        "SPOP connections ended with a status code, by code and by the side that sent it";
    policy_refused: Gauge = "policy_refused",
        "1 while the policy files have an error and the previous policy stays in force";
}

impl PlainMetrics {
    /// Counts a gRPC call that failed with this status.
    pub fn grpc_failed(&self, status: &'static str) {
        self.grpc_failures.get_or_create(&[("status", status)]).inc();
    }
}

group! {
    /// The metrics of a node of a cluster.
    ClusterMetrics "cluster"
    up: Gauge = "up", "1 while the cluster's store answers";
    nodes: Gauge = "nodes", "Nodes of the cluster, including this one";
    round_trip_s: Moment = "round_trip_seconds", "Round-trip time of the last message to the store";
    messages: Counter = "messages", "Key updates that the store has answered";
    restored: Counter = "taught", "Key updates that restored a key lost by the store";
    silent_s: Counter<f64, AtomicU64> = "silent_seconds", "Time without an answer from the store";
    keys_refused: Counter = "keys_refused",
        "Requests whose key was not shared because of keys_max, so each node admitted an equal part of the rate";
    other_policies: Gauge = "other_policies", "Nodes whose SLOs differ from this node's";
    blocks_alone: Gauge = "blocks_alone",
        "Blocks in force on this node only, because the store has no room for them";
    errors: Family<OfListener, Counter> = "errors", "Failures of the store, by kind";
}

impl ClusterMetrics {
    /// Counts a failure of the store.
    pub fn failed(&self, kind: &'static str) {
        self.errors.get_or_create(&[("kind", kind)]).inc();
    }
}

group! {
    /// The metrics of a token server.
    TokenServerMetrics "token_server"
    records: Gauge = "records", "Keys that this token server keeps for the nodes";
    refused: Counter = "records_refused", "Key updates for which this token server had no room";
    commands: Counter = "commands", "Messages from nodes to this token server";
    unauthenticated_closed: Counter = "strangers_gone",
        "Unauthenticated connections closed to make room for newer ones";
}

group! {
    /// The metrics of the state file.
    StateMetrics "state"
    written: Moment = "written_timestamp" in Unit::Seconds,
        "When the state file was last written, in Unix time; 0 before the first write";
    took: Moment = "write" in Unit::Seconds, "How long the last write of the state file took";
    entries: Gauge = "entries", "Entries in the state file";
    bytes: Gauge = "file" in Unit::Bytes, "Size of the state file";
    failures: Counter = "failures", "Failed writes of the state file";
}

impl StateMetrics {
    /// Records a write of the file at a wall-clock time.
    pub fn saved(&self, entries: u64, bytes: u64, wall: Duration, took: Duration) {
        self.written.set(wall.as_secs_f64());
        self.took.set(took.as_secs_f64());
        self.entries.set(i64::try_from(entries).unwrap_or(i64::MAX));
        self.bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }
}

group! {
    /// The metrics of HAProxys that enforce limits locally.
    PeersMetrics "peers"
    sessions: Gauge = "sessions", "Connected peers";
    updates: Counter = "updates", "Counts that peers have sent";
    pushes: Counter = "pushes", "Limits pushed to peers";
    acks_behind: Gauge = "acks_behind", "Limits that peers have not yet acknowledged";
    resyncs: Counter = "resyncs", "Number of times a peer has asked for all limits";
    malformed: Counter = "malformed",
        "Peer connections refused or closed because of invalid messages";
    admitted: Counter = "admitted", "Requests that peers have admitted locally";
    denied: Counter = "denied", "Requests that peers have refused locally";
    left_out: Counter = "left_out", "Counts that were ignored because there was no room for their keys";
}

impl PeersMetrics {
    /// Records a change in the number of limits that a peer has not acknowledged.
    pub fn behind(&self, before: u64, now: u64) {
        let number = |number| i64::try_from(number).unwrap_or(i64::MAX);
        self.acks_behind.inc_by(number(now) - number(before));
    }
}

group! {
    /// The metrics of all listeners with TLS.
    TlsMetrics "tls"
    handshakes: Family<OfListener, Counter> = "handshakes", "TLS handshakes that succeeded, by listener";
    failures: Family<OfFailure, Counter> = "handshake_failures",
        "TLS handshakes that failed, by listener and reason";
    loaded: Family<OfListener, Moment> = "loaded_timestamp" in Unit::Seconds,
        "When the certificate in force was loaded, in Unix time";
    expires: Family<OfListener, Moment> = "expiry_timestamp" in Unit::Seconds,
        "When the certificate in force expires, in Unix time";
    refused: Family<OfListener, Gauge> = "refused",
        "1 while the certificate files cannot be used and the previous certificate stays in force";
}

impl TlsMetrics {
    /// Counts a handshake with a client of this listener.
    pub fn succeeded(&self, listener: &'static str) {
        self.handshakes.get_or_create(&[("listener", listener)]).inc();
    }

    /// Counts a handshake that failed.
    pub fn failed(&self, listener: &'static str, reason: &'static str) {
        self.failures.get_or_create(&[("listener", listener), ("reason", reason)]).inc();
    }

    /// Records that TLS files were read at a wall-clock time, with a certificate that is valid until `expires`.
    pub fn loaded(&self, listener: &'static str, wall: Duration, expires: Option<Duration>) {
        let label = [("listener", listener)];
        drop(self.handshakes.get_or_create(&label));
        self.loaded.get_or_create(&label).set(wall.as_secs_f64());
        self.expires.get_or_create(&label).set(expires.unwrap_or_default().as_secs_f64());
        self.refused.get_or_create(&label).set(0);
    }

    /// Records that the TLS files of a listener cannot be used.
    pub fn refused(&self, listener: &'static str) {
        self.refused.get_or_create(&[("listener", listener)]).set(1);
    }
}

/// The SPOP status code that ended a connection (SPOE.txt 3.5), and its sender: `slowlane` or `haproxy`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct SpopError {
    pub status: u32,
    pub by: &'static str,
}

/// Registers a new metric. If it has a unit, its name ends with the unit.
pub(super) fn registered<M: Metric + Clone + Default>(
    registry: &mut Registry,
    name: &str,
    help: &str,
    unit: Option<Unit>,
) -> M {
    let metric = M::default();
    match unit {
        Some(unit) => registry.register_with_unit(name, help, unit, metric.clone()),
        None => registry.register(name, help, metric.clone()),
    }
    metric
}
