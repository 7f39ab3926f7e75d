//! The answer to `/metrics`: running counters, and values that are read on demand, outside the request path.

use std::fs;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeGaugeValue;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::{Registry, Unit};
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

use crate::observe::metrics::PREFIX;
use crate::observe::status::Fault;
use crate::server::Agent;
use slowlane_core::throttle::Protected;

/// All metrics in the OpenMetrics text format, which Prometheus scrapes.
pub(super) fn metrics(agent: &Agent) -> String {
    let process = agent.metrics.started.map(|started| process(started, ProcessUse::now()));
    let now: Vec<Registry> = [of_throttle(agent)].into_iter().chain(process).collect();
    agent.metrics.text(&now)
}

fn of_throttle(agent: &Agent) -> Registry {
    let throttle = &agent.throttle;
    let (usage, aux_store) = (throttle.usage(), throttle.aux_usage());
    let (policy, blocks) = (throttle.policy(), throttle.block_usage(agent.clock.now()));
    let mut registry = Registry::with_prefix(PREFIX);
    let at = &mut registry;
    gauge(at, "table_entries", "Entries in the table", usage.entries as i64);
    counter(at, "table_evictions", "Live entries evicted because the table was full", usage.evictions);
    let help = "Auxiliary memory used by fair, sliding-log, concurrency and work, in bytes";
    gauge(at, "annex_bytes", help, aux_store.bytes as i64);
    let help = "Requests for which fair, sliding-log, concurrency or work had no auxiliary memory left";
    counter(at, "law_fallbacks", help, aux_store.fallbacks);
    let help = "Requests with reserved work whose end has not been reported yet";
    gauge(at, "reservations_open", help, throttle.aux_store().reservations(agent.clock.now()) as i64);
    gauge(
        at,
        "sketch_bytes",
        "Memory of the sketches in the policy in force, in bytes",
        policy.sketch_bytes() as i64,
    );
    let help = "Blocks in force, set by operators or by block=";
    gauge(at, "cluster_blocks", help, (blocks.operators + blocks.keys) as i64);
    let help = "Keys that block= did not block, because too many keys were blocked";
    counter(at, "blocks_without_room", help, blocks.refused);
    if let (Some(_), Some(cluster)) = (&agent.metrics.cluster, throttle.cluster()) {
        gauge(at, "cluster_keys", "Keys that this node currently shares", cluster.keys() as i64);
        let help = "Requests admitted by this node and not yet reported to the store";
        gauge(at, "cluster_owed_requests", help, cluster.debt());
    }
    let work = Family::<[(&str, String); 2], Counter<f64, AtomicU64>>::default();
    for (slo, of) in policy.slos().filter_map(|slo| Some((slo, slo.work.as_ref()?))) {
        let labels = [("slo", slo.id.to_string()), ("unit", of.unit.name().to_owned())];
        work.get_or_create(&labels).inc_by(of.settled());
    }
    at.register("work", "Work of requests whose cost was reported, by SLO, in the SLO's unit", work);
    let [limits, inside, waiting] = std::array::from_fn(|_| Family::<[(&str, String); 2], Gauge>::default());
    let slow_downs = Family::<[(&str, String); 2], Gauge<f64, AtomicU64>>::default();
    for Protected { slo, key, view, .. } in throttle.protected() {
        let labels = [("slo", slo.to_string()), ("key", key.to_string())];
        limits.get_or_create(&labels).set(view.limit as i64);
        inside.get_or_create(&labels).set(view.inside as i64);
        waiting.get_or_create(&labels).set(view.waiting as i64);
        slow_downs.get_or_create(&labels).set(view.slow_down);
    }
    at.register("protect_limit", "Requests that a protected application can serve at once", limits);
    at.register("protect_inside", "Requests inside a protected application", inside);
    at.register("protect_waiting", "Requests waiting for their turn at a protected application", waiting);
    let help = "Time that a page takes in a protected application, as a multiple of its time without a queue";
    at.register("protect_slowdown", help, slow_downs);
    let missing = Family::<[(&str, String); 1], Gauge>::default();
    for (field, is_missing) in agent.status.missing.fields(&policy) {
        missing.get_or_create(&[("field", escaped(&field))]).set(is_missing.into());
    }
    at.register("field_missing", "1 while no request carries a field that the policy needs", missing);
    let faults = Family::<[(&str, String); 2], Counter>::default();
    for ((field, fault), count) in agent.status.missing.fault_totals(&policy) {
        let fault = if fault == Fault::Absent { "absent" } else { "unreadable" };
        faults.get_or_create(&[("field", escaped(&field)), ("fault", fault.to_owned())]).inc_by(count);
    }
    let help =
        "Requests with an unreadable field that a limit needs, or without a field that every limit needs";
    at.register("field_faults", help, faults);
    registry
}

/// Escapes the value of a label, because the library does not.
fn escaped(label: &str) -> String {
    label.replace('\\', r"\\").replace('"', r#"\""#)
}

/// The metrics of the process, under the names that all Prometheus clients use.
fn process(started: Duration, used: ProcessUse) -> Registry {
    let mut registry = Registry::default();
    let at = &mut registry;
    let cpu = ConstCounter::new(used.cpu.as_secs_f64());
    at.register_with_unit("process_cpu", "CPU time of the process", Unit::Seconds, cpu);
    let (help, started) = ("When the process started, in Unix time", ConstGauge::new(started.as_secs_f64()));
    at.register_with_unit("process_start_time", help, Unit::Seconds, started);
    let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    if let Some(bytes) = used.resident_bytes {
        let (help, bytes) = ("Resident memory of the process", ConstGauge::new(number(bytes)));
        at.register_with_unit("process_resident_memory", help, Unit::Bytes, bytes);
    }
    if let Some(open) = used.open_fds {
        gauge(at, "process_open_fds", "Open files and sockets of the process", number(open));
    }
    if let Some(most) = used.max_fds {
        gauge(at, "process_max_fds", "Limit on the open files and sockets of the process", number(most));
    }
    registry
}

/// The resources that the process uses now. A field is `None` if the system does not report it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ProcessUse {
    /// CPU time of all threads, in user and system mode.
    cpu: Duration,
    resident_bytes: Option<u64>,
    /// Open files and sockets.
    open_fds: Option<u64>,
    /// The maximum number of open files and sockets. `None` if there is no limit.
    max_fds: Option<u64>,
}

impl ProcessUse {
    fn now() -> ProcessUse {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        let status = fs::read_to_string("/proc/self/status").ok();
        ProcessUse {
            cpu: Duration::new(cpu.tv_sec.unsigned_abs(), cpu.tv_nsec.unsigned_abs() as u32),
            resident_bytes: status.and_then(|status| resident_bytes(&status)),
            open_fds: open_fds(),
            max_fds: getrlimit(Resource::Nofile).current,
        }
    }
}

/// The resident memory in the text of `/proc/self/status` (proc_pid_status(5)).
fn resident_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1_024)
}

/// The number of open files and sockets: from Linux 6.2 on, the folder's size; on older systems, its number of entries.
fn open_fds() -> Option<u64> {
    let folder = "/proc/self/fd";
    match fs::metadata(folder).ok()?.len() {
        // One entry is the folder itself, which is open while it is read.
        0 => Some(fs::read_dir(folder).ok()?.count().saturating_sub(1) as u64),
        count => Some(count),
    }
}

fn gauge<N>(registry: &mut Registry, name: &str, help: &str, value: N)
where
    N: EncodeGaugeValue + std::fmt::Debug + Send + Sync + 'static,
{
    registry.register(name, help, ConstGauge::new(value));
}

fn counter(registry: &mut Registry, name: &str, help: &str, value: u64) {
    registry.register(name, help, ConstCounter::new(value));
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text;

    use super::*;

    fn reported(used: ProcessUse) -> String {
        let mut text = String::new();
        text::encode(&mut text, &process(Duration::from_millis(1_500), used)).unwrap();
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
            reported(used),
            "process_cpu_seconds_total 0.25\nprocess_start_time_seconds 1.5\nprocess_resident_memory_bytes 4096\n\
             process_open_fds 7\nprocess_max_fds 1024\n"
        );
        let unknown = ProcessUse { cpu: Duration::ZERO, ..ProcessUse::default() };
        assert_eq!(reported(unknown), "process_cpu_seconds_total 0.0\nprocess_start_time_seconds 1.5\n");
    }

    #[test]
    fn the_resident_memory_is_in_kib() {
        let status = "Name:\tslowlane\nVmPeak:\t  9000 kB\nVmRSS:\t     4 kB\nThreads:\t5\n";
        assert_eq!(resident_bytes(status), Some(4_096));
        assert_eq!(resident_bytes("Name:\tslowlane\n"), None);
    }

    #[test]
    fn this_process_is_told_of() {
        let used = ProcessUse::now();
        assert!(used.resident_bytes.unwrap() > 100_000);
        assert!(used.open_fds.unwrap() >= 3 && used.open_fds <= used.max_fds.or(used.open_fds), "{used:?}");
        assert!(ProcessUse::now().cpu >= used.cpu);
    }
}
