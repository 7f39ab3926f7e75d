//! The metrics of HAProxys that keep the pace by themselves. A slowlane without peers has none of them.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// The handles of the metrics of peers.
#[derive(Clone, Debug, Default)]
pub struct PeersMetrics {
    pub sessions: Gauge,
    pub updates: Counter,
    pub pushes: Counter,
    pub resyncs: Counter,
    pub malformed: Counter,
    pub admitted: Counter,
    pub denied: Counter,
    pub left_out: Counter,
    acks_behind: Gauge,
}

impl PeersMetrics {
    pub(super) fn register(registry: &mut Registry) -> PeersMetrics {
        let metrics = PeersMetrics::default();
        let registry = registry.sub_registry_with_prefix("peers");
        registry.register("sessions", "Connected peers", metrics.sessions.clone());
        registry.register("updates", "Counts that peers have sent", metrics.updates.clone());
        registry.register("pushes", "Limits that were sent to peers", metrics.pushes.clone());
        let help = "Limits that peers have not acknowledged yet";
        registry.register("acks_behind", help, metrics.acks_behind.clone());
        let help = "Times that a peer has asked for all limits";
        registry.register("resyncs", help, metrics.resyncs.clone());
        let help = "Connections of peers that were refused or ended because of what they sent";
        registry.register("malformed", help, metrics.malformed.clone());
        let help = "Requests that peers have let through by their own rules";
        registry.register("admitted", help, metrics.admitted.clone());
        let help = "Requests that peers have refused by their own rules";
        registry.register("denied", help, metrics.denied.clone());
        let help = "Counts of keys for which there was no room";
        registry.register("left_out", help, metrics.left_out.clone());
        metrics
    }

    /// Notes a change of the limits that a peer has not acknowledged.
    pub fn behind(&self, before: u64, now: u64) {
        let number = |number| i64::try_from(number).unwrap_or(i64::MAX);
        self.acks_behind.inc_by(number(now) - number(before));
    }
}
