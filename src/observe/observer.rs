//! The observation of decisions: metrics, throttled keys and decision log.

use std::sync::Arc;

use fastrand::Rng;
use prometheus_client::metrics::counter::Counter;

use crate::observe::Status;
use crate::observe::decision_log::DecisionLog;
use crate::observe::metrics::{Metrics, Verdicts};
use slowlane_core::base::{Decision, Decisions, Request, SloId, Value, Verdict};
use slowlane_core::policy::{Batch, Policy};
use slowlane_core::throttle::Throttle;

/// Observes every decision, for all proxies.
#[derive(Debug)]
pub struct Observer {
    verdicts: Arc<Verdicts>,
    blocked: Counter,
    status: Arc<Status>,
    pub(crate) decision_log: Option<DecisionLog>,
}

impl Observer {
    pub fn new(metrics: &Metrics, status: Arc<Status>) -> Observer {
        let (verdicts, blocked) = (metrics.verdicts.clone(), metrics.plain.blocked.clone());
        Observer { verdicts, blocked, status, decision_log: None }
    }

    /// Counts and logs the decisions on a batch. Notes the requests' fields, the groups of a sample and throttled keys.
    ///
    /// `fields` gives the fields of a request for the log: over HTTP all fields, and over SPOP the fields that the
    /// policy uses. `throttle` has the entries of the keys.
    #[inline]
    pub fn decided<'a, F>(
        &self,
        batch: &Batch<'_, '_>,
        decisions: &Decisions,
        throttle: &Throttle,
        rng: &mut Rng,
        fields: impl Fn(usize) -> F,
    ) where
        F: Iterator<Item = (&'a [u8], Value<'a>)>,
    {
        batch.note_fields();
        let one_in = self.status.groups.one_in();
        let first = rng.u32(..one_in) as usize;
        if first < decisions.count() {
            self.note_groups(batch, decisions, throttle, first, one_in as usize);
        }
        for (number, (ruling, details)) in decisions.iter().enumerate() {
            self.verdicts.count(ruling, details);
            if details.is_some() || ruling.verdict != Verdict::Pass || self.decision_log.is_some() {
                self.report(batch, number, &Decision::with(ruling, details), throttle, rng, || {
                    fields(number)
                });
            }
        }
    }

    /// Notes the groups of some requests of a batch: the request at index `first`, and every `step`-th after it.
    #[inline(never)]
    fn note_groups(
        &self,
        batch: &Batch<'_, '_>,
        decisions: &Decisions,
        throttle: &Throttle,
        first: usize,
        step: usize,
    ) {
        for (number, (ruling, details)) in decisions.iter().enumerate().skip(first).step_by(step) {
            let decision = Decision::with(ruling, details);
            let turn = throttle.turn(decision.key, decision.turn());
            self.status.groups.note(&decision, turn, |each| batch.facts(number, SloId::DEFAULT, each));
        }
    }

    /// Notes a decision, and writes it to the decision log if the log includes such decisions.
    #[inline(never)]
    fn report<'a, F>(
        &self,
        batch: &Batch<'_, '_>,
        number: usize,
        decision: &Decision,
        throttle: &Throttle,
        rng: &mut Rng,
        fields: impl Fn() -> F,
    ) where
        F: Iterator<Item = (&'a [u8], Value<'a>)>,
    {
        self.note(batch, number, decision, rng);
        if let Some(log) = &self.decision_log
            && log.wants(decision, decision.at, || rng.f64())
        {
            let entry = throttle.table().get(decision.key, decision.at);
            let rate = entry.map_or(0, |(entry, _)| entry.gpc0_rate.read(decision.at.ticks_ms()));
            log.write(decision, rate, fields());
        }
    }

    /// Notes a request that a block refuses, or that an SLO delays or denies.
    fn note(&self, batch: &Batch<'_, '_>, number: usize, decision: &Decision, rng: &mut Rng) {
        if decision.blocked().is_some() {
            self.blocked.inc();
        }
        if decision.is_throttled() {
            self.status.throttled.note(decision, rng.u32(..), |slo, label| {
                batch.facts(number, slo, |fact| label.push(fact));
            });
        }
    }

    /// Notes the key of a request that a proxy has delayed or denied by its own rules.
    pub fn throttled_elsewhere(
        &self,
        policy: &Policy,
        request: &Request<'_>,
        decision: &Decision,
        rng: &mut Rng,
    ) {
        self.status.throttled.note_elsewhere(decision, rng.u32(..), |slo, label| {
            let mut batch = Batch::of(policy);
            batch.push(request);
            batch.facts(0, slo, |fact| label.push(fact));
        });
    }
}
