//! The run sends the requests of all logs, in order, through the throttle of each policy.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;

use crate::access_log::{Choice, LogOutcome, LogPlan, LogRecord, Mapping, Measure, PlanError};
use crate::events::EventQueue;
use crate::replay::keys::{KeyRow, Keys, name};
use crate::replay::protected::{ProtectedLog, ProtectedLogs};
use crate::replay::{Input, ReplayTally, Requests, Series};
use slowlane_core::base::{
    Decision, Ending, Ends, Request, Sample, SloId, Ticket, Timestamp, Unit, Verdict, date, plural,
};
use slowlane_core::policy::{Batch, Policy, Slo};
use slowlane_core::throttle::Throttle;

/// The maximum number of requests in flight. The ends of any further requests count as unknown.
const ENDS_MAX: usize = 1 << 20;

/// How to read and replay the logs.
#[derive(Clone, Debug)]
pub struct ReplaySettings {
    pub format: Choice,
    pub mappings: Vec<Mapping>,
    pub measures: Vec<Measure>,
    /// A line may come after the lines of requests that arrived up to this much later.
    pub reorder: Duration,
    /// The seed of the random numbers: the n-th request in time order gets the n-th draw.
    pub seed: u64,
    /// The number of keys that the outcome lists.
    pub top: usize,
}

/// A policy under test, in a fresh throttle.
pub struct Subject {
    pub name: String,
    pub throttle: Throttle,
}

/// The outcome over all logs.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub logs: Vec<LogOutcome>,
    pub begun_ns: u64,
    pub ended_ns: u64,
    /// The outcome under the policy and, if a second policy is given for comparison, under that policy.
    pub sides: Vec<Side>,
    /// For each verdict of the first policy (pass, delay, deny), how often the second policy gave each verdict.
    pub changes: Option<[[u64; 3]; 3]>,
    /// Notes on the reliability of the figures.
    pub notes: Vec<String>,
}

/// The outcome under one policy.
#[derive(Clone, Debug)]
pub struct Side {
    pub name: String,
    /// The verdicts that the proxies would have got.
    pub total: ReplayTally,
    /// The verdicts of each SLO that was applied, including SLOs with `dry_run=yes`.
    pub slos: Vec<(Slo, ReplayTally)>,
    /// The number of keys with requests delayed or denied, and the first such keys or, if two policies differ, the
    /// first keys on which they differ.
    pub throttled_keys: usize,
    pub keys: Vec<KeyRow>,
    pub series: Series,
    pub protected: Vec<ProtectedLog>,
}

impl Outcome {
    pub fn requests(&self) -> u64 {
        self.sides.first().map_or(0, |side| side.total.counts.requests)
    }

    /// The times of the first and the last request, to the second.
    pub(super) fn span(&self) -> [String; 2] {
        [self.begun_ns, self.ended_ns].map(|at_ns| date::written(Timestamp::from_nanos(at_ns)))
    }
}

/// Reads the logs and lets each throttle (one or two) judge each request. `progress` gets the number of lines read so
/// far.
///
/// # Errors
/// The format lacks items that requests need, or no policy uses one of the options. A line of a log is never an error.
pub fn replay(
    inputs: Vec<Input>,
    subjects: &[Subject],
    settings: &ReplaySettings,
    mut progress: impl FnMut(u64),
) -> Result<Outcome, PlanError> {
    let policies: Vec<_> = subjects.iter().map(|subject| subject.throttle.policy()).collect();
    let used: BTreeSet<&str> = policies.iter().flat_map(|policy| policy.used_fields()).collect();
    let wanted = |field: &str| used.contains(field) || field == "cost";
    if let Some(useless) =
        settings.mappings.iter().find(|mapping| !wanted(&mapping.field) && !mapping.is_structural())
    {
        return Err(PlanError::UselessField(useless.field.clone()));
    }
    let counts_work = policies.iter().any(|policy| policy.slos().any(|slo| slo.work.is_some()));
    if !counts_work && !settings.measures.is_empty() {
        return Err(PlanError::UselessMeasure);
    }
    let measures = counts_work.then_some(&settings.measures[..]);
    let mut requests = Requests::open(inputs, settings, &wanted, measures)?;
    let mut run = Run {
        sides: subjects.iter().map(Running::new).collect(),
        rng: Rng::with_seed(settings.seed),
        changes: [[0; 3]; 3],
    };
    requests.each(&mut progress, |request, now_ns, logged| run.ask(request, now_ns, logged));
    let (begun_ns, ended_ns) = requests.span_ns();
    Ok(Outcome {
        notes: run.notes(&requests, &used),
        logs: requests.outcomes(),
        begun_ns,
        ended_ns,
        changes: (run.sides.len() > 1).then_some(run.changes),
        sides: run.sides.into_iter().map(|side| side.outcome(settings.top)).collect(),
    })
}

struct Run<'t> {
    sides: Vec<Running<'t>>,
    rng: Rng,
    /// For each verdict of the first policy, how often the second policy gave each verdict.
    changes: [[u64; 3]; 3],
}

/// A policy, its throttle and its counts.
struct Running<'t> {
    subject: &'t Subject,
    policy: Arc<Policy>,
    total: ReplayTally,
    slos: BTreeMap<SloId, ReplayTally>,
    keys: Keys,
    series: Series,
    protected: ProtectedLogs,
    /// The requests in flight that a law counts until they end, or whose work is settled at their end.
    ends: EventQueue<(Ticket, Ending)>,
    unknown_ends: u64,
}

impl Run<'_> {
    fn ask(&mut self, request: &Request<'_>, now_ns: u64, logged: &LogRecord) {
        let sample = Sample::from_bits(self.rng.u64(..));
        match self.sides.as_mut_slice() {
            [only] => {
                let decision = only.decide(request, now_ns, sample);
                only.record(request, &decision, None, now_ns, logged);
            }
            [first, second] => {
                let decisions =
                    [first.decide(request, now_ns, sample), second.decide(request, now_ns, sample)];
                let [one, other] = decisions.map(|decision| decision.verdict);
                self.changes[one.kind().index()][other.kind().index()] += 1;
                first.record(request, &decisions[0], Some(other), now_ns, logged);
                second.record(request, &decisions[1], Some(one), now_ns, logged);
            }
            _ => {}
        }
    }

    /// Notes on the reliability of the figures.
    fn notes(&self, requests: &Requests, used: &BTreeSet<&str>) -> Vec<String> {
        let plans: Vec<&LogPlan> = requests.plans().collect();
        let mut notes = Vec::new();
        for field in used.iter().filter(|&&field| field != "cost") {
            let without = plans.iter().filter(|plan| !plan.has(field)).count();
            if without > 0 {
                let whose = if without == plans.len() { "the logs" } else { "some of the logs" };
                let remedy = match *field {
                    "website" => "log the Host header (HAProxy: `capture request header Host len 64`, \
                                  read with --field website=%[capture.req.hdr(0)]; nginx: $host), or give --field \
                                  website=NAME"
                        .to_owned(),
                    _ => {
                        let [haproxy, nginx] = likely_items(field);
                        format!(
                            "name the item that contains the field, like --field {field}={haproxy} or \
                             --field {field}={nginx}"
                        )
                    }
                };
                notes.push(format!(
                    "{whose} do not contain the {field} field, which the policy uses, so requests were \
                     judged without it: {remedy}"
                ));
            }
        }
        if used.contains("website") && plans.iter().any(|plan| plan.has_website_by_chance()) {
            let note = "the log has websites only for requests with an absolute URI, such as HTTP/2: log \
                        the Host header, or give --field website=NAME";
            notes.push(note.to_owned());
        }
        notes.extend(requests.notes());
        let unknown = self.sides.iter().map(|side| side.unknown_ends).max().unwrap_or(0);
        let open = plural(unknown, "request");
        if unknown > 0 && plans.iter().all(|plan| plan.times.has_duration()) {
            notes.push(format!(
                "it is unknown when {open} under law=concurrency ended, so each counts for its whole lease"
            ));
        } else if unknown > 0 {
            notes.push(format!(
                "the log has no durations (%Ta, $request_time), so each of {open} under law=concurrency counts for its \
                 whole lease"
            ));
        }
        for (side, of) in self.sides.iter().zip(["--policy", "--against"]) {
            let throttle = &side.subject.throttle;
            let (evictions, fallbacks) = (throttle.usage().evictions, throttle.aux_usage().fallbacks);
            if evictions > 0 {
                let evictions = plural(evictions, "eviction");
                notes.push(format!(
                    "{of}: the table ran out of room ({evictions}), as it would in production: raise [table] size"
                ));
            }
            if fallbacks > 0 {
                let requests = plural(fallbacks, "request");
                notes.push(format!(
                    "{of}: auxiliary memory ran out, so a simpler law judged {requests}: raise [table] \
                     annex_bytes_max"
                ));
            }
            let unmeasured = side.unmeasured();
            notes
                .extend(unmeasured.map(|(unit, count)| format!("{of}: {}", note_of_unmeasured(unit, count))));
            let (forgotten, requests_max) = (side.keys.forgotten, side.keys.forgotten_requests_max);
            if forgotten > 0 {
                notes.push(format!(
                    "{of}: the {forgotten} least important keys were dropped; a listed key may have had up \
                     to {}",
                    plural(requests_max, "more request")
                ));
            }
        }
        notes
    }
}

fn protects(policy: &Policy, slo: SloId) -> bool {
    policy.slo(slo).is_some_and(|slo| slo.law.protection().is_some())
}

fn note_of_unmeasured(unit: &Unit, count: u64) -> String {
    let remedy = match unit {
        Unit::Seconds => "log $upstream_response_time or %Ta, or give --measure seconds=ITEM",
        Unit::Bytes => "log $bytes_sent or %B, or give --measure bytes=ITEM",
        Unit::Named(_) => "name the item that contains the cost, like --measure cost=$http_x_cost",
    };
    let requests = plural(count, "request");
    format!("the log lacks the {unit} of {requests}, so the reservations count instead: {remedy}")
}

/// The items that probably contain a field in an HAProxy log, and in an nginx log.
fn likely_items(field: &str) -> [String; 2] {
    let is_header = ["user_agent", "referer", "origin"].contains(&field) || field.starts_with("x_");
    match field {
        // Parts of the request line, which every log has.
        "method" => ["%HM".into(), "$request_method".into()],
        "path" | "page" => ["%HP".into(), "$uri".into()],
        "url" => ["%HU".into(), "$request_uri".into()],
        _ if is_header => ["%[capture.req.hdr(0)]".into(), format!("$http_{field}")],
        _ => [format!("%[var(txn.{field})]"), format!("$http_x_{field}")],
    }
}

impl<'t> Running<'t> {
    fn new(subject: &'t Subject) -> Running<'t> {
        Running {
            subject,
            policy: Arc::clone(&subject.throttle.policy()),
            total: ReplayTally::default(),
            slos: BTreeMap::new(),
            keys: Keys::default(),
            series: Series::default(),
            protected: ProtectedLogs::default(),
            ends: EventQueue::default(),
            unknown_ends: 0,
        }
    }

    /// The number of requests without a measure for each unit.
    fn unmeasured(&self) -> impl Iterator<Item = (&Unit, u64)> {
        let mut counts = BTreeMap::new();
        for (slo, tally) in self.policy.slos().filter_map(|slo| Some((slo, self.slos.get(&slo.id)?))) {
            if let Some(unit) = slo.unit().filter(|_| tally.work.unmeasured > 0) {
                counts.entry(unit.name()).or_insert((unit, 0)).1 += tally.work.unmeasured;
            }
        }
        counts.into_values()
    }

    fn decide(&mut self, request: &Request<'_>, now_ns: u64, sample: Sample) -> Decision {
        while let Some((at_ns, (ticket, ending))) = self.ends.next_before(now_ns.saturating_add(1)) {
            self.subject.throttle.end(&self.policy, &ticket, &ending, Timestamp::from_nanos(at_ns));
        }
        let now = Timestamp::from_nanos(now_ns);
        self.subject.throttle.sweep(now);
        self.subject.throttle.decide_one(request, now, sample)
    }

    fn record(
        &mut self,
        request: &Request<'_>,
        decision: &Decision,
        other: Option<Verdict>,
        now_ns: u64,
        logged: &LogRecord,
    ) {
        let verdict = decision.verdict;
        self.total.count(verdict);
        for judged in decision.judged() {
            let tally = self.slos.entry(judged.slo).or_default();
            tally.count(judged.in_force());
            if let Some(work) = self.policy.slo(judged.slo).and_then(|slo| slo.work.as_ref()) {
                let measured = work.unit.of(&logged.ending);
                tally.work.unmeasured += u64::from(measured.is_none());
                tally.work.count(judged.in_force(), measured.unwrap_or_else(|| work.amount(judged.cost)));
            }
        }
        let policy = &self.policy;
        self.keys.count(decision.slo, decision.key, verdict, other, || name(policy, decision.slo, request));
        let leaves_ns = now_ns.saturating_add(verdict.delay_ms().saturating_mul(1_000_000));
        let bin = self.series.at(now_ns);
        bin.offered += 1;
        match verdict {
            Verdict::Pass => bin.let_through += 1,
            Verdict::Deny { .. } => bin.denied += 1,
            Verdict::Delay(_) => {
                bin.delay_ms = bin.delay_ms.saturating_add(verdict.delay_ms());
                self.series.at(leaves_ns).let_through += 1;
            }
        }
        if let Some(mut ticket) = decision.ticket() {
            self.count_protected(request, decision, leaves_ns, logged);
            // As long as no end is reported to `protect`, it holds no request: the log's times are those without it.
            ticket.counted.retain(|counted| !protects(&self.policy, counted.slo));
            if ticket.counted.is_empty() {
                return;
            }
            // Without a duration, work is settled at once.
            let is_work = decision.judged().iter().all(|judged| judged.ends != Ends::InFlight);
            let seconds_ns = logged.ending.seconds.map(|seconds| seconds.micros().saturating_mul(1_000));
            let took_ns = logged.took_ns.or(seconds_ns).or(is_work.then_some(0));
            match took_ns.filter(|_| self.ends.len() < ENDS_MAX) {
                Some(took_ns) => self.ends.enter(leaves_ns.saturating_add(took_ns), (ticket, logged.ending)),
                None => self.unknown_ends += 1,
            }
        }
    }

    /// Counts an admitted request for the application that an SLO protects.
    fn count_protected(
        &mut self,
        request: &Request<'_>,
        decision: &Decision,
        leaves_ns: u64,
        logged: &LogRecord,
    ) {
        let judged = decision.judged();
        let judged = judged.iter().find(|judged| protects(&self.policy, judged.slo));
        if let Some((judged, took_ns)) = judged.zip(logged.took_ns) {
            let mut batch = Batch::of(&self.policy);
            batch.push(request);
            let page = batch.asker(0, judged.slo).page;
            let ended_ns = leaves_ns.saturating_add(took_ns);
            self.protected.count((judged.slo, judged.key), page, ended_ns, took_ns);
        }
    }

    fn outcome(self, top: usize) -> Side {
        let aim = |id| {
            let protection = self.policy.slo(id).and_then(|slo| slo.law.protection());
            protection.map_or(1.0, |protection| protection.settings.slow_down)
        };
        let slo = |(id, tally)| Some((self.policy.slo(id)?.clone(), tally));
        let is_changed = self.keys.has_changed();
        let is_shown = |row: &KeyRow| if is_changed { row.changed > 0 } else { row.is_throttled() };
        Side {
            name: self.subject.name.clone(),
            total: self.total,
            slos: self.slos.into_iter().filter_map(slo).collect(),
            throttled_keys: self.keys.throttled(),
            keys: self.keys.top(top, is_shown),
            series: self.series,
            protected: self.protected.estimates(aim),
        }
    }
}
