//! All metrics, with their names, help texts and handles.
//!
//! Clients cannot choose the value of a label: SLO ids, units and fields come from the policy, and keys of protected
//! applications are keyed hashes. All other values come from slowlane's code or from a proxy.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use std::{fmt, iter};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry, Unit};

use crate::observe::delays::Delays;
use crate::observe::groups::{
    ClusterMetrics, PeersMetrics, PlainMetrics, StateMetrics, TlsMetrics, TokenServerMetrics, registered,
};
use crate::observe::log;
use slowlane_core::base::{Details, Kind, Ruling, SloId, Verdict};

/// The handles of the metrics. For most of them, counting is an atomic operation without a lookup.
#[derive(Debug)]
pub struct Metrics {
    pub(crate) registry: Registry,
    pub verdicts: Arc<Verdicts>,
    pub plain: PlainMetrics,
    pub ends: EndMetrics,
    pub spop: ConnectionMetrics,
    pub http: ConnectionMetrics,
    pub grpc: ConnectionMetrics,
    pub admin: ConnectionMetrics,
    /// The connections of nodes, if this slowlane is their token server.
    pub nodes: ConnectionMetrics,
    pub frames: FrameMetrics,
    pub reloads_done: Counter,
    pub reloads_refused: Counter,
    pub decision_log: DecisionLogMetrics,
    /// `None` if this slowlane is not in a cluster.
    pub cluster: Option<ClusterMetrics>,
    pub token_server: Option<TokenServerMetrics>,
    /// `None` if no state is kept in a file.
    pub state: Option<StateMetrics>,
    /// `None` if no listener has TLS.
    pub tls: Option<TlsMetrics>,
    /// The connections of the listener for peers.
    pub peer_connections: ConnectionMetrics,
    /// `None` if slowlane neither listens for peers nor connects to any peer.
    pub peers: Option<PeersMetrics>,
    /// The start of the process, as the time since 1970. `None` if slowlane runs as part of another program.
    pub started: Option<Duration>,
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
    /// Dropped because the limit on lines per second was reached.
    pub dropped_rate: Counter,
    /// Dropped because the writer's queue was full.
    pub dropped_queue: Counter,
    /// Dropped because the write failed.
    pub dropped_write: Counter,
}

/// The ends of requests that proxies have reported, by the effect of the report.
#[derive(Clone, Debug)]
pub struct EndMetrics {
    /// The request is no longer counted from now on.
    pub counted: Counter,
    /// The request was no longer counted: it had ended before, or its lease had expired.
    pub late: Counter,
    /// The ticket was not issued by this slowlane.
    pub refused: Counter,
    /// A measure is not a valid amount: not a number, negative, or above 2^40.
    pub no_amount: Counter,
    /// The report lacks the measure of the SLO's unit, so the reservation of the request stays open.
    pub unmeasured: Counter,
}

/// SPOP frames by type: frames from HAProxy, and the ACKs sent to HAProxy.
#[derive(Clone, Debug)]
pub struct FrameMetrics {
    pub hello: Counter,
    pub notify: Counter,
    pub ack: Counter,
    pub disconnect: Counter,
}

type Labels = [(&'static str, &'static str); 1];

impl Metrics {
    pub fn new() -> Metrics {
        let mut registry = Registry::with_prefix(PREFIX);
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "The version of slowlane", build);
        let verdicts = Arc::new(Verdicts::default());
        registry.register_collector(Box::new(verdicts.clone()));
        registry.register_collector(Box::new(verdicts.delays.clone()));
        let help = "Log lines dropped because standard error was not read fast enough";
        registry.register("log_dropped", help, log::DROPPED.clone());
        let at = &mut registry;

        let open = metric(at, "connections", "Connections open, by listener");
        let accepted = metric(at, "connections_accepted", "Connections accepted, by listener");
        let help = "Connections that had to wait because too many were open";
        let waited = metric(at, "connections_waited", help);
        let help = "Connections closed unread because `allow` does not list their network";
        let not_allowed = metric(at, "connections_not_allowed", help);
        let accept_errors = metric(at, "accept_errors", "Connections that could not be accepted");
        let listener = |name| ConnectionMetrics {
            open: of(&open, "listener", name),
            accepted: of(&accepted, "listener", name),
            waited: of(&waited, "listener", name),
            not_allowed: of(&not_allowed, "listener", name),
            accept_errors: of(&accept_errors, "listener", name),
        };
        let frames = metric(at, "spop_frames", "SPOP frames received and ACKs sent, by type");
        let [hello, notify, ack, disconnect] =
            ["hello", "notify", "ack", "disconnect"].map(|kind| of(&frames, "type", kind));
        let help = "Reports of ended requests, by effect; late means repeated, or received after the lease";
        let ends = metric(at, "ends", help);
        let [counted, late, refused, no_amount, unmeasured] =
            ["counted", "late", "refused", "no_amount", "unmeasured"]
                .map(|effect| of(&ends, "result", effect));
        let reloads = metric(at, "policy_reloads", "Policy reloads, by result");
        let [reloads_done, reloads_refused] =
            ["done", "refused"].map(|result| of(&reloads, "result", result));
        let help = "Decisions dropped from the decision log, by reason";
        let dropped = metric(at, "decision_log_dropped", help);
        let [dropped_rate, dropped_queue, dropped_write] =
            ["rate", "queue", "write"].map(|reason| of(&dropped, "reason", reason));
        Metrics {
            verdicts,
            plain: PlainMetrics::register(at),
            ends: EndMetrics { counted, late, refused, no_amount, unmeasured },
            spop: listener("spop"),
            http: listener("http"),
            grpc: listener("grpc"),
            admin: listener("admin"),
            nodes: listener("cluster"),
            peer_connections: listener("peers"),
            frames: FrameMetrics { hello, notify, ack, disconnect },
            reloads_done,
            reloads_refused,
            decision_log: DecisionLogMetrics {
                lines: metric(at, "decision_log_lines", "Lines written to the decision log"),
                dropped_rate,
                dropped_queue,
                dropped_write,
            },
            cluster: None,
            token_server: None,
            state: None,
            tls: None,
            peers: None,
            started: None,
            registry,
        }
    }

    /// All metrics in the OpenMetrics text format, which Prometheus scrapes. `now` contains the values that are read
    /// on demand.
    pub fn text(&self, now: &[Registry]) -> String {
        let mut text = String::new();
        iter::once(&self.registry)
            .chain(now)
            .try_for_each(|registry| text::encode_registry(&mut text, registry))
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

/// The prefix of all metrics, except the metrics that every program has.
pub const PREFIX: &str = "slowlane";

/// Registers a new metric.
fn metric<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    registered(registry, name, help, None)
}

/// The metric of a family with this label.
fn of<M: Clone + Default>(family: &Family<Labels, M>, label: &'static str, value: &'static str) -> M {
    family.get_or_create_owned(&[(label, value)])
}

/// Verdicts by SLO and kind, and the shadow verdicts of dry runs.
///
/// Pages of counters are indexed by SLO id, so counting needs no policy. A pass or a denial takes one atomic operation.
/// A page of ids from 10240 on is allocated at the first verdict for any of these ids.
#[derive(Debug)]
pub struct Verdicts {
    pub delays: Arc<Delays>,
    pages: Box<[OnceLock<CountsPage>; PAGES]>,
}

/// The number of pages for all ids, and the number of ids in a page. Both are powers of two.
const PAGES: usize = 1_024;
const PAGE_SLOS: usize = 1_024;

const _: () = assert!(PAGES * PAGE_SLOS >= SloId::END as usize);

type CountsPage = Box<[SloCounts; PAGE_SLOS]>;

/// The counters of one SLO.
#[derive(Debug, Default)]
struct SloCounts {
    given: KindCounts,
    shadow: KindCounts,
    /// The sum of the SLO's delays; divided by the number of delays, it gives their mean. A histogram for each SLO
    /// would be 23 series instead of one.
    delays_us: AtomicU64,
}

type KindCounts = [AtomicU64; 3];

impl Default for Verdicts {
    fn default() -> Verdicts {
        let pages = Box::new([const { OnceLock::new() }; PAGES]);
        // The pages of the usual ids are allocated up front, so that decisions allocate no memory.
        pages.iter().take(10).for_each(|page| _ = page.set(no_counts()));
        Verdicts { delays: Arc::default(), pages }
    }
}

impl Verdicts {
    #[inline(always)]
    pub fn count(&self, ruling: &Ruling, details: Option<&Details>) {
        let counts = self.of(ruling.slo);
        counts.given[ruling.verdict.kind().index()].fetch_add(1, Relaxed);
        if let Verdict::Delay(wait) = ruling.verdict {
            self.delays.count(wait);
            counts.delays_us.fetch_add(wait.as_micros() as u64, Relaxed);
        }
        details.into_iter().for_each(|details| self.count_shadow(details));
    }

    #[inline(never)]
    fn count_shadow(&self, details: &Details) {
        for judged in details.dry_runs() {
            self.of(judged.slo).shadow[judged.verdict.kind().index()].fetch_add(1, Relaxed);
        }
    }

    #[inline]
    fn of(&self, slo: SloId) -> &SloCounts {
        let number = slo.number() as usize;
        let page = &self.pages[number / PAGE_SLOS % PAGES];
        &page.get().unwrap_or_else(|| page.get_or_init(no_counts))[number % PAGE_SLOS]
    }

    /// The counters of each SLO in the pages allocated so far, sorted by id.
    fn counted(&self) -> impl Iterator<Item = (SloId, &SloCounts)> {
        let pages = (0..).step_by(PAGE_SLOS).zip(self.pages.iter());
        let pages = pages.filter_map(|(first, page): (u32, _)| Some((first.., page.get()?)));
        pages.flat_map(|(numbers, page)| numbers.map_while(SloId::new).zip(page.iter()))
    }

    /// Counts of pass, delay and deny, for each SLO with any verdict, sorted by id.
    pub fn given(&self) -> impl Iterator<Item = (SloId, [u64; 3])> {
        self.counted().map(|(slo, counts)| (slo, read(&counts.given))).filter(has_any)
    }

    /// Counts of shadow verdicts, in the form of [`Verdicts::given`].
    pub fn shadow(&self) -> impl Iterator<Item = (SloId, [u64; 3])> {
        self.counted().map(|(slo, counts)| (slo, read(&counts.shadow))).filter(has_any)
    }

    /// The total number of verdicts given.
    pub fn total(&self) -> u64 {
        self.given().flat_map(|(_, counts)| counts).sum()
    }
}

#[cold]
fn no_counts() -> CountsPage {
    Box::new(std::array::from_fn(|_| SloCounts::default()))
}

fn read(counts: &KindCounts) -> [u64; 3] {
    counts.each_ref().map(|count| count.load(Relaxed))
}

fn has_any((_, counts): &(SloId, [u64; 3])) -> bool {
    *counts != [0; 3]
}

impl Collector for Verdicts {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let families: [(_, _, &mut dyn Iterator<Item = _>); 2] = [
            ("verdicts", "Verdicts, by SLO and verdict", &mut self.given()),
            ("shadow_verdicts", "Verdicts that SLOs with dry_run=yes would have given", &mut self.shadow()),
        ];
        for (name, help, counts) in families {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (slo, counts) in counts {
                for (kind, count) in Kind::ALL.into_iter().zip(counts).filter(|&(_, count)| count > 0) {
                    let labels = [("slo", slo.to_string()), ("verdict", kind.name().to_owned())];
                    ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
                }
            }
        }
        let help = "Total delay of requests, by SLO";
        let kind = MetricType::Counter;
        let mut family = encoder.encode_descriptor("slo_delay", help, Some(&Unit::Seconds), kind)?;
        for (slo, counts) in self.counted() {
            let sum_us = counts.delays_us.load(Relaxed);
            if sum_us > 0 {
                let seconds = ConstCounter::new(sum_us as f64 / 1e6);
                seconds.encode(family.encode_family(&[("slo", slo.to_string())])?)?;
            }
        }
        Ok(())
    }
}
