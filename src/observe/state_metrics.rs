//! The metrics of the state file. A slowlane that keeps none has none of them.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use crate::observe::metrics::{measure, metric};

/// The handles of the metrics of the state file.
#[derive(Clone, Debug, Default)]
pub struct StateMetrics {
    written: Gauge<f64, AtomicU64>,
    took: Gauge<f64, AtomicU64>,
    bytes: Gauge,
    entries: Gauge,
    pub failures: Counter,
}

impl StateMetrics {
    pub(super) fn register(registry: &mut Registry) -> StateMetrics {
        let at = registry.sub_registry_with_prefix("state");
        let help = "When the state file was last written, in Unix time; 0 before the first time";
        StateMetrics {
            written: measure(at, "written_timestamp", help, Unit::Seconds),
            took: measure(at, "write", "How long the last write of the state file took", Unit::Seconds),
            entries: metric(at, "entries", "Entries in the state file"),
            bytes: measure(at, "file", "Size of the state file", Unit::Bytes),
            failures: metric(at, "failures", "Writes of the state file that failed"),
        }
    }

    /// Notes that the file was written at a time of the wall clock.
    pub fn saved(&self, entries: u64, bytes: u64, wall: Duration, took: Duration) {
        self.written.set(wall.as_secs_f64());
        self.took.set(took.as_secs_f64());
        self.entries.set(i64::try_from(entries).unwrap_or(i64::MAX));
        self.bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }
}
