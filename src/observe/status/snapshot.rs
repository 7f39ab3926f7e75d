//! A snapshot of the status as plain data.

use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::observe::status::heavy_hitters::Hitter;
use crate::observe::status::origins::Origins;
use crate::observe::status::seconds::{Minutes, Seconds};
use crate::observe::status::{
    Busy, Crowd, FaultLine, GroupRow, KeyCount, MissingLine, PeersUse, ProtectedLine, ReloadLine, Status,
    Throttled,
};
use crate::observe::{ConnectionMetrics, Metrics};
use slowlane_core::base::{Blocked, BlockedBy, Quota, Timestamp};
use slowlane_core::policy::{Policy, Slo};
use slowlane_core::table::PERIOD_MS;
use slowlane_core::throttle::{BlockUsage, Throttle};

/// The maximum number of throttled keys, of keys of dry runs, and of protected applications to list.
const KEYS_MAX: usize = 100;

/// The maximum number of SLOs listed. If there are more, the busiest are listed.
const SLOS_MAX: usize = 200;

/// The sources of a snapshot, apart from the status itself.
#[derive(Clone, Copy)]
#[allow(missing_debug_implementations, reason = "a closure has nothing to show")]
pub struct Sources<'s> {
    pub throttle: &'s Throttle,
    pub metrics: &'s Metrics,
    pub holds_max: usize,
    pub uptime: Duration,
    pub now: Timestamp,
    /// Called once for each snapshot.
    pub peers: &'s dyn Fn() -> Option<PeersUse>,
}

/// The answer from `/api/status`.
///
/// Strings contain no control characters, so they are safe for terminals. A browser must insert them as text, not HTML.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    pub version: String,
    /// Milliseconds since 1970.
    pub at_ms: u64,
    pub uptime_s: u64,
    /// Requests per second over the last ten seconds: pass, delay, deny.
    pub rates: [f64; 3],
    /// Delays over the same ten seconds.
    pub delay: Delay,
    pub minutes: Minutes,
    pub table: TableUse,
    pub blocks: BlockUsage,
    /// `None` if this slowlane is not in a cluster.
    pub cluster: Option<ClusterUse>,
    /// `None` if no proxy enforces limits locally.
    pub peers: Option<PeersUse>,
    /// The applications with `law=protect` that have received requests lately.
    #[serde(default)]
    pub protect: Vec<ProtectedLine>,
    pub holds: Holds,
    pub connections: Connections,
    pub slos: Vec<SloLine>,
    pub slos_total: usize,
    /// Throttled keys, then keys that a dry run would throttle. Each group is in descending order.
    pub keys: Vec<KeyLine>,
    /// The number of throttled keys, of which `keys` has the first 100.
    pub keys_total: KeyCount,
    /// The number of keys that a dry run would throttle, of which `keys` has the first 100.
    pub dry_run_keys_total: KeyCount,
    /// One in `one_in` throttled requests is noted.
    pub one_in: u32,
    /// Newest first.
    pub reloads: Vec<ReloadLine>,
    /// The fields that the policy needs, but that no request carries.
    pub fields_missing: Vec<MissingLine>,
    /// The fields that a limit needs, but that recent requests lacked or sent with unusable values.
    #[serde(default)]
    pub field_faults: Vec<FaultLine>,
    /// The network that nearly all recent requests come from, if they come from few addresses.
    #[serde(default)]
    pub crowd: Option<Crowd>,
    /// The busiest groups of each field, over the last minute.
    #[serde(default)]
    pub groups: Vec<GroupRow>,
}

/// Quantiles in milliseconds; `None` if no request was delayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Delay {
    pub p50_ms: Option<u64>,
    pub p99_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TableUse {
    pub entries: u64,
    pub entries_max: u64,
    pub evictions: u64,
    #[serde(rename = "annex_bytes")]
    pub aux_bytes: u64,
    pub law_fallbacks: u64,
}

/// The cluster, as this node sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClusterUse {
    /// Why the store does not answer; `None` while it answers.
    pub silent: Option<String>,
    /// How long the store has been silent, or has been answering, in seconds.
    pub since_s: u64,
    pub round_trip_ms: f64,
    pub nodes: usize,
    /// The number of nodes whose SLOs differ from those of this node.
    pub other_slos: usize,
    /// The number of keys shared now.
    pub keys: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Holds {
    pub now: u64,
    pub max: u64,
    pub refused: u64,
    pub abandoned: u64,
}

/// Open connections by listener.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Connections {
    pub spop: u64,
    pub http: u64,
    #[serde(default)]
    pub grpc: u64,
    pub admin: u64,
}

/// An SLO with its objective and its current rates.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SloLine {
    pub id: u32,
    /// The fields of the SLO's key. Without fields, all requests share one key.
    pub per: Vec<String>,
    pub law: String,
    /// The objective, as its law describes it.
    pub objective: String,
    pub burst: u32,
    /// The rate in the notation of `slo.map`.
    pub rate: String,
    /// `None` without a limit.
    pub rate_per_s: Option<f64>,
    pub dry_run: bool,
    /// Decisions per second over the last ten seconds: pass, delay, deny.
    pub rates: [f64; 3],
    /// The verdicts that the SLO would have given, if it is a dry run.
    pub shadow: [f64; 3],
    /// Admitted requests per second of the SLO's busiest known key, averaged over the last seconds.
    ///
    /// If an SLO has a single key, these are all of the SLO's requests.
    pub busiest_per_s: Option<f64>,
    /// The largest number of requests in flight for one key, if the SLO's law counts requests in flight.
    pub in_flight: Option<f64>,
    pub in_flight_max: Option<u64>,
    /// The unit of the SLO's numbers, and the work settled so far. `None` if the SLO counts requests.
    pub unit: Option<String>,
    pub settled: Option<f64>,
    /// The number of the SLO's keys among the listed keys.
    pub keys: usize,
    /// Whether the list of keys is incomplete, so that the SLO may have more keys.
    pub keys_are_more: bool,
}

/// A throttled key. For a dry run, the numbers are those that the SLO would cause, except for the admitted requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KeyLine {
    pub key: String,
    pub slo: u32,
    /// The objective of the SLO, as its law describes it.
    pub objective: String,
    /// The file and the line that gave the key its SLO, like `source.map:8`; `None` until the line is looked up.
    pub line: Option<String>,
    /// Whether the key passes, although a dry run would throttle it.
    pub dry_run: bool,
    /// Whether this is the key shared by all requests that cannot be looked up, because their website is not a host or
    /// a value is too long.
    pub refused: bool,
    /// The block that refuses the key.
    pub blocked: Option<BlockedKey>,
    /// The fields of the key.
    pub fields: Vec<FieldLine>,
    /// The query for `/api/why`; `None` if its fields were too long to keep.
    pub why: Option<String>,
    pub throttled_per_s: f64,
    /// The number of delayed requests since the key was noted.
    pub delayed: u64,
    pub denied: u64,
    /// The last delay, in milliseconds.
    pub delay_ms: u64,
    pub seen_ms_ago: u64,
    /// The time since the key was noted.
    pub since_ms_ago: u64,
    /// The rate of requests; `None` after the entry has expired.
    ///
    /// The rate is a mean over the last ten seconds, or over the last minute for an SLO below 1/s.
    pub asked_per_s: Option<f64>,
    /// The rate of admitted requests. A dry run admits all requests, although another SLO may throttle them.
    pub let_through_per_s: Option<f64>,
    /// The rate that a dry run would admit.
    pub would_let_through_per_s: Option<f64>,
    pub clients: Option<f64>,
}

/// The block of a throttled key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockedKey {
    /// The fields that an operator blocked, like `source=192.0.2.66`, or the SLO, like `SLO 2001`.
    pub by: String,
    /// The remaining time of the block, in seconds.
    pub left_s: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FieldLine {
    pub name: String,
    pub value: String,
}

impl Status {
    /// The snapshot as JSON. All readers within one second share it.
    pub fn json(&self, sources: &Sources<'_>) -> Bytes {
        let mut json = self.json.lock();
        let make = || serde_json::to_vec(&self.snapshot(sources)).expect("a snapshot is plain data").into();
        json.get_or_insert_with(make).clone()
    }

    /// The snapshot of this moment.
    pub fn snapshot(&self, sources: &Sources<'_>) -> Snapshot {
        let (throttled, history, busy) = (&self.throttled, self.seconds.lock(), self.busy.lock());
        let &Sources { throttle, metrics, holds_max, uptime, now, peers } = sources;
        let policy = throttle.policy();
        let (top, dry_runs) = (throttled.keys.top(KEYS_MAX), throttled.dry_runs.top(KEYS_MAX));
        let mut origins = self.origins.lock();
        let listed = top.iter().chain(&dry_runs).map(|hitter| ((hitter.key, hitter.slo), &hitter.label));
        origins.update(&policy, listed);
        let hitters =
            top.iter().map(|hitter| (hitter, false)).chain(dry_runs.iter().map(|hitter| (hitter, true)));
        let line = |hitter| line_of_key(hitter, throttled, &busy, &origins, sources, &policy);
        let keys: Vec<KeyLine> = hitters.map(line).collect();
        let (keys_total, dry_run_keys_total) = (throttled.keys.counted(), throttled.dry_runs.counted());
        let keys_are_more = keys_total.number + dry_run_keys_total.number > keys.len() as u64;
        let (delays, usage, aux_store) = (history.delays(), throttle.usage(), throttle.aux_usage());
        let open = |listener: &ConnectionMetrics| listener.open.get().max(0) as u64;
        Snapshot {
            version: env!("CARGO_PKG_VERSION").into(),
            at_ms: now.since_epoch().as_millis() as u64,
            uptime_s: uptime.as_secs(),
            rates: rounded(history.rates(|totals| totals.verdicts.all())),
            delay: Delay { p50_ms: delays.quantile_ms(0.5), p99_ms: delays.quantile_ms(0.99) },
            minutes: history.minutes.clone(),
            table: TableUse {
                entries: usage.entries,
                entries_max: throttle.table().entries_max().into(),
                evictions: usage.evictions,
                aux_bytes: aux_store.bytes,
                law_fallbacks: aux_store.fallbacks,
            },
            blocks: throttle.block_usage(now),
            cluster: self.cluster.lock().as_ref().map(|line| ClusterUse {
                silent: line.silent.clone(),
                since_s: line.since_s,
                round_trip_ms: line.round_trip_ms,
                nodes: line.nodes.len(),
                other_slos: line.others().count(),
                keys: line.keys,
            }),
            peers: peers(),
            protect: ProtectedLine::all(throttle).into_iter().take(KEYS_MAX).collect(),
            holds: Holds {
                now: metrics.plain.holds.get().max(0) as u64,
                max: holds_max as u64,
                refused: metrics.plain.holds_refused.get(),
                abandoned: metrics.plain.holds_abandoned.get(),
            },
            connections: Connections {
                spop: open(&metrics.spop),
                http: open(&metrics.http),
                grpc: open(&metrics.grpc),
                admin: open(&metrics.admin),
            },
            slos: slos(&policy, &history, &keys, keys_are_more),
            slos_total: policy.slos().count(),
            keys,
            keys_total,
            dry_run_keys_total,
            one_in: throttled.one_in(),
            reloads: self.reloads.list(),
            fields_missing: self.missing.lines(&policy),
            field_faults: self.missing.faults(&policy),
            crowd: self.groups.crowd(),
            groups: self.groups.busiest(),
        }
    }
}

impl BlockedKey {
    /// The block that refused a request, if the block is still in force.
    pub(super) fn of(blocked: Blocked, throttle: &Throttle, now: Timestamp) -> Option<BlockedKey> {
        let by = match blocked.by {
            BlockedBy::Operator(number) => throttle.operator_block(number, now)?.to_string(),
            BlockedBy::Slo(key) => throttle.key_block(key, now)?.origin.to_string(),
        };
        Some(BlockedKey { by, left_s: blocked.rest_s(now) })
    }
}

fn slos(policy: &Policy, history: &Seconds, keys: &[KeyLine], keys_are_more: bool) -> Vec<SloLine> {
    // Lines are made only for the listed SLOs, because a policy may have thousands of SLOs.
    let requests = |slo: &Slo| history.rates(|totals| totals.verdicts.of(slo.id)).iter().sum();
    let mut listed: Vec<(f64, &Slo)> = policy.slos().map(|slo| (requests(slo), slo)).collect();
    if listed.len() > SLOS_MAX {
        listed.sort_by(|(one, _), (other, _)| other.total_cmp(one));
        listed.truncate(SLOS_MAX);
        listed.sort_by_key(|(_, slo)| slo.id);
    }
    listed.iter().map(|(_, slo)| line(slo, policy, history, keys, keys_are_more)).collect()
}

fn line(slo: &Slo, policy: &Policy, history: &Seconds, keys: &[KeyLine], keys_are_more: bool) -> SloLine {
    let keys = || keys.iter().filter(|key| key.slo == slo.id.number());
    let busiest = keys().filter_map(|key| key.let_through_per_s).reduce(f64::max);
    let clients = keys().filter_map(|key| key.clients).reduce(f64::max);
    let rates = rounded(history.rates(|totals| totals.verdicts.of(slo.id)));
    let per: Vec<String> = policy.key_fields(slo.id).map(str::to_owned).collect();
    let [pass, delay, _] = rates;
    // The rate of an SLO with a single key. The rate of a meter takes precedence, because it may cover a longer time.
    let all = (per.is_empty() && slo.work.is_none()).then_some(pass + delay);
    let in_flight_max = match slo.law.quota(slo.objective) {
        Some(Quota::Concurrent { requests }) => Some(requests),
        Some(Quota::Window { .. } | Quota::Work { .. }) | None => None,
    };
    SloLine {
        id: slo.id.number(),
        law: slo.law.name().into(),
        objective: slo.describe(),
        burst: slo.units(slo.objective.burst.into()).round() as u32,
        rate: slo.rate(),
        rate_per_s: Some(slo.units(slo.objective.rate.per_second())).filter(|rate| rate.is_finite()),
        dry_run: slo.dry_run,
        rates,
        shadow: rounded(history.rates(|totals| totals.shadow.of(slo.id))),
        busiest_per_s: busiest.or(all),
        in_flight: clients.filter(|_| in_flight_max.is_some()),
        in_flight_max,
        unit: slo.unit().map(|unit| unit.name().to_owned()),
        settled: slo.work.as_ref().map(|work| work.settled()),
        keys: keys().count(),
        keys_are_more,
        per,
    }
}

/// The time span of the rates of a key.
const NOW: Duration = Duration::from_secs(10);

/// The time span for an SLO below 1/s. Over a shorter time, a single request changes the rate too much.
const NOW_IF_RARE: Duration = Duration::from_secs(60);

fn line_of_key(
    (hitter, dry_run): (&Hitter, bool),
    throttled: &Throttled,
    busy: &Busy,
    origins: &Origins,
    sources: &Sources<'_>,
    policy: &Policy,
) -> KeyLine {
    let &Sources { throttle, now, .. } = sources;
    let (key, slo) = (hitter.key, hitter.slo);
    let entry = throttle.table().get(key, now).map(|(entry, _)| entry);
    let of = policy.slo(slo);
    let is_rare = of.is_some_and(|slo| slo.objective.rate.per_second() < 1.0);
    let units = |grains: f64| of.map_or(grains, |slo| slo.units(grains));
    let rates = entry.map(|entry| {
        busy.per_second(key, if is_rare { NOW_IF_RARE } else { NOW }).unwrap_or_else(|| {
            // The key is too new for its meter, so the rates of its entry are used.
            [entry.gpc0_rate, entry.gpc1_rate].map(|rate| f64::from(rate.read(now.ticks_ms())))
        })
    });
    let [asked, row_admits] = [0, 1].map(|place| rates.map(|rates| fine(units(rates[place]))));
    KeyLine {
        key: key.to_string(),
        slo: slo.number(),
        objective: of.map(|slo| slo.describe()).unwrap_or_default(),
        line: origins.of((key, slo)),
        dry_run,
        refused: policy.is_refusal(key),
        blocked: hitter.blocked.and_then(|blocked| BlockedKey::of(blocked, throttle, now)),
        fields: hitter.label.in_key(),
        why: hitter.label.query(),
        throttled_per_s: round(throttled.per_second(hitter, now)),
        delayed: hitter.delayed,
        denied: hitter.denied,
        delay_ms: hitter.delay_ms,
        seen_ms_ago: now.since(hitter.seen).as_millis() as u64,
        since_ms_ago: now.since(hitter.since).as_millis() as u64,
        asked_per_s: asked,
        // A dry run admits everything, but its row counts the requests that it would admit.
        let_through_per_s: if dry_run { asked } else { row_admits },
        would_let_through_per_s: row_admits.filter(|_| dry_run),
        clients: entry.map(|entry| f64::from(entry.gpt0) / 1e3),
    }
}

// The rates of an entry cover one second, so they are requests per second.
const _: () = assert!(PERIOD_MS == 1_000);

fn rounded(rates: [f64; 3]) -> [f64; 3] {
    rates.map(round)
}

/// Rounds to a millionth, which is enough for a few requests per day.
fn fine(rate: f64) -> f64 {
    (rate * 1e6).round() / 1e6
}

/// Rounds to a hundredth, the displayed precision.
pub(super) fn round(rate: f64) -> f64 {
    (rate * 100.0).round() / 100.0
}
