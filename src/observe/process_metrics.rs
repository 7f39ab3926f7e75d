//! The metrics of the process, under the names that all Prometheus clients use.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::TypedMetric;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

/// What the process uses at a moment. None: the system does not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessUse {
    /// CPU time of all threads, in user and system mode.
    pub cpu: Duration,
    pub resident_bytes: Option<u64>,
    /// Open files and sockets.
    pub open_fds: Option<u64>,
    /// The most of them. None: any number.
    pub max_fds: Option<u64>,
}

/// The metrics of the process. They are set before each scrape.
#[derive(Debug)]
pub struct ProcessMetrics {
    /// Since 1970.
    started: Duration,
    used: Mutex<ProcessUse>,
}

impl ProcessMetrics {
    /// Those of a process that started at this time of the wall clock.
    pub(super) fn new(started: Duration) -> ProcessMetrics {
        ProcessMetrics { started, used: Mutex::default() }
    }

    pub fn set(&self, used: ProcessUse) {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = used;
    }
}

impl Collector for ProcessMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let ProcessUse { cpu, resident_bytes, open_fds, max_fds } =
            *self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let help = "CPU time of the process";
        let kind = ConstCounter::<f64>::TYPE;
        let metric = encoder.encode_descriptor("process_cpu", help, Some(&Unit::Seconds), kind)?;
        ConstCounter::new(cpu.as_secs_f64()).encode(metric)?;
        let help = "When the process started, in Unix time";
        let kind = ConstGauge::<f64>::TYPE;
        let metric = encoder.encode_descriptor("process_start_time", help, Some(&Unit::Seconds), kind)?;
        ConstGauge::new(self.started.as_secs_f64()).encode(metric)?;
        let gauges = [
            ("process_resident_memory", "Resident memory of the process", Some(&Unit::Bytes), resident_bytes),
            ("process_open_fds", "Open files and sockets of the process", None, open_fds),
            ("process_max_fds", "The most open files and sockets of the process", None, max_fds),
        ];
        for (name, help, unit, value) in gauges {
            let Some(value) = value.and_then(|value| i64::try_from(value).ok()) else { continue };
            let metric = encoder.encode_descriptor(name, help, unit, ConstGauge::<i64>::TYPE)?;
            ConstGauge::new(value).encode(metric)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use prometheus_client::encoding::text;
    use prometheus_client::registry::Registry;

    use super::*;

    fn told(used: ProcessUse) -> String {
        let metrics = Arc::new(ProcessMetrics::new(Duration::from_millis(1_500)));
        metrics.set(used);
        let (mut registry, mut text) = (Registry::default(), String::new());
        registry.register_collector(Box::new(metrics));
        text::encode(&mut text, &registry).unwrap();
        text.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect()
    }

    #[test]
    fn each_metric_has_the_name_that_all_clients_use() {
        let used = ProcessUse {
            cpu: Duration::from_millis(250),
            resident_bytes: Some(4_096),
            open_fds: Some(7),
            max_fds: Some(1_024),
        };
        assert_eq!(
            told(used),
            "process_cpu_seconds_total 0.25\nprocess_start_time_seconds 1.5\nprocess_resident_memory_bytes 4096\n\
             process_open_fds 7\nprocess_max_fds 1024\n"
        );
        let unknown = ProcessUse { cpu: Duration::ZERO, ..ProcessUse::default() };
        assert_eq!(told(unknown), "process_cpu_seconds_total 0.0\nprocess_start_time_seconds 1.5\n");
    }
}
