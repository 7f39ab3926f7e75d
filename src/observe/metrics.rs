//! All metrics, with their names, help texts and handles.
//!
//! Clients cannot choose the value of a label: SLO ids and fields come from the policy, and all other values from this
//! file.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, text};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::info::Info;
use prometheus_client::metrics::{MetricType, TypedMetric};
use prometheus_client::registry::{Registry, Unit};

use crate::observe::cluster_metrics::{ClusterMetrics, TokenServerMetrics};
use crate::observe::delays::Delays;
use crate::observe::log;
use crate::observe::peers_metrics::PeersMetrics;
use crate::observe::process_metrics::ProcessMetrics;
use crate::observe::state_metrics::StateMetrics;
use crate::observe::tls_metrics::TlsMetrics;
use slowlane_core::base::kind::Kind;
use slowlane_core::base::slo_id::SloId;
use slowlane_core::base::verdict::{Decision, Verdict};

/// The handles of the metrics. Counting is an atomic operation without a lookup.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// Metrics whose names do not begin with that of slowlane.
    of_any_program: Registry,
    pub verdicts: Arc<Verdicts>,
    pub table_entries: Gauge,
    pub table_evictions: Arc<Total>,
    pub annex_bytes: Gauge,
    pub law_fallbacks: Arc<Total>,
    pub sketch_bytes: Gauge,
    pub holds: Gauge,
    pub holds_refused: Counter,
    pub holds_abandoned: Counter,
    pub request_ids_forgotten: Counter,
    pub ends: EndMetrics,
    pub blocks: BlockMetrics,
    pub spop: ConnectionMetrics,
    pub http: ConnectionMetrics,
    pub admin: ConnectionMetrics,
    /// The nodes, if this slowlane is their token server.
    pub nodes: ConnectionMetrics,
    pub frames: FrameMetrics,
    pub spop_errors: Family<SpopError, Counter>,
    pub reloads_done: Counter,
    pub reloads_refused: Counter,
    pub policy_refused: Gauge,
    pub fields_missing: Arc<FieldGauges>,
    pub decision_log: DecisionLogMetrics,
    /// None: this slowlane is alone.
    pub cluster: Option<ClusterMetrics>,
    pub token_server: Option<TokenServerMetrics>,
    /// None: no state is kept in a file.
    pub state: Option<StateMetrics>,
    /// None: no listener has TLS.
    pub tls: Option<TlsMetrics>,
    /// The connections of the listener for peers.
    pub peer_connections: ConnectionMetrics,
    /// None: there is no listener for peers, and none to connect to.
    pub peers: Option<PeersMetrics>,
    /// None: this is a part of another program.
    pub process: Option<Arc<ProcessMetrics>>,
}

/// The connections of one listener.
#[derive(Clone, Debug)]
pub struct ConnectionMetrics {
    pub open: Gauge,
    pub accepted: Counter,
    pub waited: Counter,
    pub not_allowed: Counter,
    pub accept_errors: Counter,
}

/// Lines of the decision log, written or dropped.
#[derive(Clone, Debug)]
pub struct DecisionLogMetrics {
    pub lines: Counter,
    /// The limit of lines per second was reached.
    pub dropped_rate: Counter,
    /// The queue of the writer was full.
    pub dropped_queue: Counter,
    /// The write failed.
    pub dropped_write: Counter,
}

/// Ends of requests that proxies have reported, by their effect.
#[derive(Clone, Debug)]
pub struct EndMetrics {
    /// The request is no longer counted.
    pub counted: Counter,
    /// It was no longer counted: it had ended before, or its lease was over.
    pub late: Counter,
    /// The ticket is not one of this slowlane.
    pub refused: Counter,
}

/// Blocks, and requests that they refused.
#[derive(Clone, Debug)]
pub struct BlockMetrics {
    /// Blocks in force.
    pub in_force: Gauge,
    /// Requests refused by a block.
    pub blocked: Counter,
    /// Keys that were not blocked, because too many already were.
    pub without_room: Arc<Total>,
}

impl BlockMetrics {
    fn new(registry: &mut Registry) -> BlockMetrics {
        let without_room = Arc::new(Total {
            name: "blocks_without_room",
            help: "Keys that block= did not block, because too many keys already were",
            value: AtomicU64::new(0),
        });
        registry.register_collector(Box::new(without_room.clone()));
        let help = "Blocks in force, of operators and of block=";
        BlockMetrics {
            in_force: gauge(registry, "cluster_blocks", help),
            blocked: counter(registry, "blocked", "Requests refused by a block"),
            without_room,
        }
    }
}

/// SPOP frames by type: frames from HAProxy, and the ACKs sent to it.
#[derive(Clone, Debug)]
pub struct FrameMetrics {
    pub hello: Counter,
    pub notify: Counter,
    pub ack: Counter,
    pub disconnect: Counter,
}

/// The SPOP status code that ended a connection (SPOE.txt 3.5), and its sender: `slowlane` or `haproxy`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct SpopError {
    pub status: u32,
    pub by: &'static str,
}

type Labels = [(&'static str, &'static str); 1];

impl Metrics {
    pub fn new() -> Metrics {
        let mut registry = Registry::with_prefix("slowlane");
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "The version of slowlane", build);
        let verdicts = Arc::new(Verdicts::default());
        registry.register_collector(Box::new(verdicts.clone()));
        registry.register_collector(Box::new(verdicts.delays.clone()));
        let table_evictions = Arc::new(Total {
            name: "table_evictions",
            help: "Live entries evicted because the table was full",
            value: AtomicU64::new(0),
        });
        registry.register_collector(Box::new(table_evictions.clone()));
        let law_fallbacks = Arc::new(Total {
            name: "law_fallbacks",
            help: "Requests for which fair, sliding-log or concurrency had no memory beside the table",
            value: AtomicU64::new(0),
        });
        registry.register_collector(Box::new(law_fallbacks.clone()));
        let help = "Log lines dropped because standard error did not take them in time";
        registry.register("log_dropped", help, log::DROPPED.clone());
        let fields_missing = Arc::new(FieldGauges::default());
        registry.register_collector(Box::new(fields_missing.clone()));

        let connections = Family::<Labels, Gauge>::default();
        registry.register("connections", "Connections open, by listener", connections.clone());
        let accepted = Family::<Labels, Counter>::default();
        registry.register("connections_accepted", "Connections accepted, by listener", accepted.clone());
        let waited = Family::<Labels, Counter>::default();
        let help = "Connections that had to wait because there were too many";
        registry.register("connections_waited", help, waited.clone());
        let not_allowed = Family::<Labels, Counter>::default();
        let help = "Connections closed unread because `allow` does not list their network";
        registry.register("connections_not_allowed", help, not_allowed.clone());
        let accept_errors = Family::<Labels, Counter>::default();
        registry.register("accept_errors", "Connections that could not be accepted", accept_errors.clone());
        let listener = |name| {
            let label = [("listener", name)];
            ConnectionMetrics {
                open: connections.get_or_create_owned(&label),
                accepted: accepted.get_or_create_owned(&label),
                waited: waited.get_or_create_owned(&label),
                not_allowed: not_allowed.get_or_create_owned(&label),
                accept_errors: accept_errors.get_or_create_owned(&label),
            }
        };
        let (spop, http, admin) = (listener("spop"), listener("http"), listener("admin"));
        let nodes = listener("cluster");
        let peer_connections = listener("peers");

        let frames = Family::<Labels, Counter>::default();
        registry.register("spop_frames", "SPOP frames received and ACKs sent, by type", frames.clone());
        let frame = |name| frames.get_or_create_owned(&[("type", name)]);
        let frames = FrameMetrics {
            hello: frame("hello"),
            notify: frame("notify"),
            ack: frame("ack"),
            disconnect: frame("disconnect"),
        };
        let spop_errors = Family::<SpopError, Counter>::default();
        let help = "SPOP connections ended with a status code, by code and by the side that sent it";
        registry.register("spop_errors", help, spop_errors.clone());

        let ends = Family::<Labels, Counter>::default();
        let help =
            "Ends of requests that proxies have reported, by effect; late: a second time, or after the lease";
        registry.register("ends", help, ends.clone());
        let end = |result| ends.get_or_create_owned(&[("result", result)]);
        let ends = EndMetrics { counted: end("counted"), late: end("late"), refused: end("refused") };

        let reloads = Family::<Labels, Counter>::default();
        registry.register("policy_reloads", "Policy reloads, by result", reloads.clone());
        let reload = |result| reloads.get_or_create_owned(&[("result", result)]);

        let help = "1 while the policy files have an error and the previous policy stays in force";
        let policy_refused = gauge(&mut registry, "policy_refused", help);
        let lines = counter(&mut registry, "decision_log_lines", "Lines written to the decision log");
        let dropped = Family::<Labels, Counter>::default();
        let help = "Decisions dropped from the decision log, by reason";
        registry.register("decision_log_dropped", help, dropped.clone());
        let dropped = |reason| dropped.get_or_create_owned(&[("reason", reason)]);
        let decision_log = DecisionLogMetrics {
            lines,
            dropped_rate: dropped("rate"),
            dropped_queue: dropped("queue"),
            dropped_write: dropped("write"),
        };

        let blocks = BlockMetrics::new(&mut registry);
        let table_entries = gauge(&mut registry, "table_entries", "Entries in the table");
        let help = "Bytes that fair, sliding-log and concurrency use beside the table";
        let annex_bytes = gauge(&mut registry, "annex_bytes", help);
        let sketch_bytes =
            gauge(&mut registry, "sketch_bytes", "Bytes of the sketches of the policy in force");
        let holds = gauge(&mut registry, "holds", "Answers being held now");
        Metrics {
            verdicts,
            table_entries,
            table_evictions,
            annex_bytes,
            law_fallbacks,
            sketch_bytes,
            holds,
            holds_refused: counter(
                &mut registry,
                "holds_refused",
                "Answers not held because too many already were",
            ),
            holds_abandoned: counter(
                &mut registry,
                "holds_abandoned",
                "Holds that ended early: the client left, the connection ended, or HAProxy gave up",
            ),
            request_ids_forgotten: counter(
                &mut registry,
                "request_ids_forgotten",
                "Request ids forgotten because too many came within a second",
            ),
            ends,
            blocks,
            spop,
            http,
            admin,
            nodes,
            frames,
            spop_errors,
            reloads_done: reload("done"),
            reloads_refused: reload("refused"),
            policy_refused,
            fields_missing,
            decision_log,
            cluster: None,
            token_server: None,
            state: None,
            tls: None,
            peer_connections,
            peers: None,
            process: None,
            registry,
            of_any_program: Registry::default(),
        }
    }

    /// Adds the metrics of a node of a cluster.
    pub fn with_cluster(mut self) -> Metrics {
        self.cluster = Some(ClusterMetrics::register(&mut self.registry));
        self
    }

    /// Adds the metrics of a token server.
    pub fn with_token_server(mut self) -> Metrics {
        self.token_server = Some(TokenServerMetrics::register(&mut self.registry));
        self
    }

    /// Adds the metrics of the state file.
    pub fn with_state(mut self) -> Metrics {
        self.state = Some(StateMetrics::register(&mut self.registry));
        self
    }

    /// Adds the metrics of TLS.
    pub fn with_tls(mut self) -> Metrics {
        self.tls = Some(TlsMetrics::register(&mut self.registry));
        self
    }

    /// Adds the metrics of peers.
    pub fn with_peers(mut self) -> Metrics {
        self.peers = Some(PeersMetrics::register(&mut self.registry));
        self
    }

    /// Adds the metrics of the process, which started at this time of the wall clock.
    pub fn with_process(mut self, started: Duration) -> Metrics {
        let process = Arc::new(ProcessMetrics::new(started));
        self.of_any_program.register_collector(Box::new(process.clone()));
        self.process = Some(process);
        self
    }

    /// All metrics in the OpenMetrics text format, which Prometheus scrapes.
    pub fn text(&self) -> String {
        let mut text = String::new();
        text::encode_registry(&mut text, &self.registry)
            .and_then(|()| text::encode_registry(&mut text, &self.of_any_program))
            .and_then(|()| text::encode_eof(&mut text))
            .expect("a string can always be written to");
        text
    }
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::new()
    }
}

fn gauge(registry: &mut Registry, name: &str, help: &str) -> Gauge {
    let gauge = Gauge::default();
    registry.register(name, help, gauge.clone());
    gauge
}

fn counter(registry: &mut Registry, name: &str, help: &str) -> Counter {
    let counter = Counter::default();
    registry.register(name, help, counter.clone());
    counter
}

/// Verdicts by SLO and kind, and the shadow verdicts of dry runs.
///
/// The arrays are indexed by SLO id, so counting takes one atomic operation and needs no policy.
#[derive(Debug)]
pub struct Verdicts {
    given: Counts,
    shadow: Counts,
    pub delays: Arc<Delays>,
    /// The sum of the delays of each SLO. With the number of its delays it gives their mean. A histogram for each SLO would
    /// be 23 series instead of one.
    delays_us: Box<[AtomicU64]>,
}

type Counts = Box<[[AtomicU64; 3]]>;

impl Default for Verdicts {
    fn default() -> Verdicts {
        let none = || [const { AtomicU64::new(0) }; 3];
        let counts = || (0..SloId::END).map(|_| none()).collect();
        let delays_us = (0..SloId::END).map(|_| AtomicU64::new(0)).collect();
        Verdicts { given: counts(), shadow: counts(), delays: Arc::default(), delays_us }
    }
}

impl Verdicts {
    pub fn count(&self, decision: &Decision) {
        Verdicts::add(&self.given, decision.slo, decision.verdict);
        if let Verdict::Delay(wait) = decision.verdict {
            self.delays.count(wait);
            self.delays_us[decision.slo.index()].fetch_add(wait.as_micros() as u64, Relaxed);
        }
        for judged in decision.judged().iter().filter(|judged| judged.is_dry_run) {
            Verdicts::add(&self.shadow, judged.slo, judged.verdict);
        }
    }

    /// Counts of pass, delay and deny, for each SLO with any verdict, sorted by id.
    pub fn given(&self) -> impl Iterator<Item = (SloId, [u64; 3])> {
        some(&self.given)
    }

    /// Counts of shadow verdicts, in the same form.
    pub fn shadow(&self) -> impl Iterator<Item = (SloId, [u64; 3])> {
        some(&self.shadow)
    }

    /// The number of all verdicts given.
    pub fn total(&self) -> u64 {
        self.given.iter().flatten().map(|count| count.load(Relaxed)).sum()
    }

    fn add(counts: &Counts, slo: SloId, verdict: Verdict) {
        counts[slo.index()][verdict.kind().index()].fetch_add(1, Relaxed);
    }
}

fn some(counts: &Counts) -> impl Iterator<Item = (SloId, [u64; 3])> {
    let counts = counts.iter().map(|counts| counts.each_ref().map(|count| count.load(Relaxed)));
    let numbered = (0..).zip(counts).filter(|(_, counts)| *counts != [0; 3]);
    numbered.map(|(number, counts)| (SloId::new(number).expect("there is a place for each id"), counts))
}

impl Collector for Verdicts {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let families = [
            ("verdicts", "Verdicts, by SLO and verdict", &self.given),
            ("shadow_verdicts", "Verdicts that SLOs with dry_run=yes would have given", &self.shadow),
        ];
        for (name, help, counts) in families {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (slo, counts) in counts.iter().enumerate() {
                for (kind, count) in Kind::ALL.into_iter().zip(counts) {
                    let count = count.load(Relaxed);
                    if count > 0 {
                        let labels = [("slo", slo.to_string()), ("verdict", kind.name().to_owned())];
                        ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
                    }
                }
            }
        }
        let help = "Sum of the delays of requests, by SLO";
        let kind = MetricType::Counter;
        let mut family = encoder.encode_descriptor("slo_delay", help, Some(&Unit::Seconds), kind)?;
        for (slo, sum_us) in self.delays_us.iter().enumerate() {
            let sum_us = sum_us.load(Relaxed);
            if sum_us > 0 {
                let seconds = ConstCounter::new(sum_us as f64 / 1e6);
                seconds.encode(family.encode_family(&[("slo", slo.to_string())])?)?;
            }
        }
        Ok(())
    }
}

/// A gauge for each field that the policy needs: 1 while no request carries it. They are set before each scrape.
#[derive(Debug, Default)]
pub struct FieldGauges(Mutex<Vec<(String, bool)>>);

impl FieldGauges {
    pub fn set(&self, fields: Vec<(String, bool)>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = fields;
    }
}

impl Collector for FieldGauges {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let help = "1 while no request carries a field that the policy needs";
        let mut family = encoder.encode_descriptor("field_missing", help, None, MetricType::Gauge)?;
        for (field, is_missing) in self.0.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            // The library writes the value of a label as it is.
            let field = field.replace('\\', r"\\").replace('"', r#"\""#);
            let gauge = ConstGauge::new(i64::from(*is_missing));
            gauge.encode(family.encode_family(&[("field", field)])?)?;
        }
        Ok(())
    }
}

/// A counter whose total is kept elsewhere, and copied before each scrape.
#[derive(Debug)]
pub struct Total {
    name: &'static str,
    help: &'static str,
    value: AtomicU64,
}

impl Total {
    pub fn set(&self, value: u64) {
        self.value.store(value, Relaxed);
    }
}

impl Collector for Total {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let counter = ConstCounter::new(self.value.load(Relaxed));
        let metric = encoder.encode_descriptor(self.name, self.help, None, ConstCounter::<u64>::TYPE)?;
        counter.encode(metric)
    }
}
