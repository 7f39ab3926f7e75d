//! The metrics of HAProxys that keep the pace by themselves. A slowlane without peers has none of them.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::observe::metrics::metric;

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
        let at = registry.sub_registry_with_prefix("peers");
        PeersMetrics {
            sessions: metric(at, "sessions", "Connected peers"),
            updates: metric(at, "updates", "Counts that peers have sent"),
            pushes: metric(at, "pushes", "Limits pushed to peers"),
            acks_behind: metric(at, "acks_behind", "Limits that peers have not acknowledged yet"),
            resyncs: metric(at, "resyncs", "Times that a peer has asked for all limits"),
            malformed: metric(
                at,
                "malformed",
                "Connections of peers that were refused or closed because of invalid messages",
            ),
            admitted: metric(at, "admitted", "Requests that peers have admitted locally"),
            denied: metric(at, "denied", "Requests that peers have refused locally"),
            left_out: metric(at, "left_out", "Counts of keys for which there was no room"),
        }
    }

    /// Notes a change of the limits that a peer has not acknowledged.
    pub fn behind(&self, before: u64, now: u64) {
        let number = |number| i64::try_from(number).unwrap_or(i64::MAX);
        self.acks_behind.inc_by(number(now) - number(before));
    }
}
