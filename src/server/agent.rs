//! The state shared by all connections: the throttle, the clock, the observer and the holds.

use std::sync::mpsc::Sender;
use std::sync::{Arc, Once};
use std::time::Duration;

use fastrand::Rng;
use parking_lot::Mutex;

use crate::observe::{Clock, Metrics, Observer, OncePerSecond, Status};
use crate::server::dedup::DedupCache;
use crate::server::peers::registry::Peers;
use crate::server::{HoldPlace, Holds};
use slowlane_core::base::{
    AmountError, Decision, Decisions, Ending, Field, HoldLimits, Key, KeySecret, Sample, Ticket, Timestamp,
    Turn, Verdict,
};
use slowlane_core::policy::{Batch, Policy, Slo};
use slowlane_core::throttle::{Ended, Throttle};

/// The state shared by all connections.
#[derive(Debug)]
pub struct Agent {
    pub throttle: Arc<Throttle>,
    pub clock: Clock,
    pub metrics: Arc<Metrics>,
    pub status: Arc<Status>,
    /// The secret that seals tickets.
    pub(super) secret: KeySecret,
    pub(crate) observer: Observer,
    pub(super) holds: Arc<Holds>,
    /// Boxed, so that its locks share no cache line with data that every request reads.
    pub(crate) dedup: Box<DedupCache>,
    /// Where to send requests that must be taken back while another process has the table.
    elsewhere: Mutex<Option<Sender<Decision>>>,
    holds_line: OncePerSecond,
    abandoned_line: OncePerSecond,
    /// Ensures that the warning about tickets that clients may have written is logged only once.
    pub(super) unsafe_ticket: Once,
    pub(super) spop_error_line: OncePerSecond,
    /// `None` if no proxy enforces limits locally.
    pub(crate) peers: Option<Arc<Peers>>,
}

impl Agent {
    pub fn new(
        throttle: Arc<Throttle>,
        clock: Clock,
        hold: HoldLimits,
        metrics: Arc<Metrics>,
        status: Arc<Status>,
    ) -> Agent {
        let holds = Holds::new(hold, metrics.plain.holds.clone(), metrics.plain.holds_refused.clone());
        let observer = Observer::new(&metrics, status.clone());
        let [holds_line, abandoned_line, spop_error_line] = Default::default();
        let secret = throttle.policy().key_secret();
        let elsewhere = Mutex::default();
        Agent {
            throttle,
            clock,
            metrics,
            status,
            secret,
            observer,
            holds,
            dedup: Box::new(DedupCache::new(secret)),
            elsewhere,
            holds_line,
            abandoned_line,
            unsafe_ticket: Once::new(),
            spop_error_line,
            peers: None,
        }
    }

    /// From now on, requests that must be taken back are sent to another process.
    pub(crate) fn take_back_elsewhere(&self, to: Sender<Decision>) {
        *self.elsewhere.lock() = Some(to);
    }

    /// Takes requests back in this process again.
    pub(crate) fn take_back_here(&self) {
        *self.elsewhere.lock() = None;
    }

    /// Decides one request, and reports the decision. `may_hold` says whether the request may be held; its delay may
    /// then change during the hold. `refusal` may replace the verdict.
    pub(super) fn decide<'f, F>(
        &self,
        policy: &Policy,
        fields: impl Fn() -> F,
        may_hold: bool,
        refusal: impl FnOnce(Verdict) -> Option<Verdict>,
        rng: &mut Rng,
        now: Timestamp,
    ) -> Decision
    where
        F: Iterator<Item = Field<'f>>,
    {
        let (mut batch, mut decisions) = (Batch::of(policy), Decisions::new());
        let mut draft = batch.draft();
        fields().for_each(|field| draft.field(field.name, field.value));
        batch.keep_draft();
        if may_hold {
            batch.may_hold_last();
        }
        self.throttle.decide(&batch, now, &mut || Sample::from_bits(rng.u64(..)), &mut decisions);
        let mut decision = decisions.only();
        if let Some(refusal) = refusal(decision.verdict) {
            self.throttle.refuse(policy, &mut decision, refusal, now);
            decisions.clear();
            decisions.push(decision);
        }
        self.observe(&batch, &decisions, &fields, rng);
        decision
    }

    /// Reports the decision on the only request of a batch, with its fields. A field that the request carries under the
    /// name of a derived field is ignored.
    fn observe<'f, F>(
        &self,
        batch: &Batch<'_, '_>,
        decisions: &Decisions,
        fields: &impl Fn() -> F,
        rng: &mut Rng,
    ) where
        F: Iterator<Item = Field<'f>>,
    {
        let named = |_: usize| {
            let made = batch.fields(0).filter(|(name, _)| batch.is_derived(name));
            let sent = fields().filter(|field| !batch.is_derived(field.name));
            made.chain(sent.map(|field| (field.name, field.value)))
        };
        self.observer.decided(batch, decisions, &self.throttle, rng, named);
    }

    /// Decides one descriptor of Envoy's rate limit service, by the descriptor's own SLO if it brings one, else by the
    /// policy, and reports the decision.
    pub(super) fn decide_descriptor<'f, F>(
        &self,
        policy: &Policy,
        fields: impl Fn() -> F,
        own: Option<(Key, &Slo)>,
        now: Timestamp,
    ) -> Decision
    where
        F: Iterator<Item = Field<'f>>,
    {
        let (mut batch, mut decisions, mut rng) = (Batch::of(policy), Decisions::new(), Rng::new());
        let mut draft = batch.draft();
        fields().for_each(|field| draft.field(field.name, field.value));
        batch.keep_draft();
        match own {
            Some((key, slo)) => decisions.push(self.throttle.decide_by(slo, key, &batch, now)),
            None => {
                self.throttle.decide(&batch, now, &mut || Sample::from_bits(rng.u64(..)), &mut decisions);
            }
        }
        let mut decision = decisions.only();
        let slo_of = |id| own.map(|(_, slo)| slo).or_else(|| policy.slo(id));
        self.throttle.count_as_envoy(&mut decision, slo_of, now);
        decisions.clear();
        decisions.push(decision);
        self.observe(&batch, &decisions, &fields, &mut rng);
        decision
    }

    /// Takes back the delay and the ticket of a descriptor if another descriptor refuses the request. Windows still
    /// count the request, as in Envoy's service.
    pub(super) fn leave(&self, policy: &Policy, decision: &Decision, now: Timestamp) {
        if decision.has_ticket() || matches!(decision.verdict, Verdict::Delay(_)) {
            self.throttle.take_back(policy, decision, now);
        }
    }

    /// The turn of a delayed request, if that turn may still change.
    pub(super) fn turn(&self, decision: &Decision) -> Option<Arc<Turn>> {
        self.throttle.turn(decision.key, decision.turn())
    }

    /// Reports that a delayed request passes now.
    pub(super) fn passes(&self, decision: &Decision, now: Timestamp) {
        self.throttle.pass(decision.key, decision.turn(), now);
    }

    /// The verdict on a held request for which the store of the cluster has no slot.
    pub(super) fn has_no_slot(&self) -> Verdict {
        self.metrics.plain.holds_denied.inc();
        Verdict::Deny { retry_after_s: 1 }
    }

    /// Takes back a delayed request whose client disconnected, or whose delay cannot be held.
    pub(crate) fn take_back(&self, decision: &Decision) {
        // A queued request is always taken back here, because its queue is in this process.
        let is_queued = self.turn(decision).is_some();
        if let Some(elsewhere) = self.elsewhere.lock().as_ref().filter(|_| !is_queued) {
            // Without a receiver, both processes are ending.
            let _ = elsewhere.send(*decision);
            return;
        }
        self.throttle.take_back(&self.throttle.policy(), decision, self.clock.now());
    }

    /// Ends a request that an SLO counts until its end. Returns false, and ends nothing, if the text is not one of
    /// slowlane's tickets or a measure is not an amount.
    pub(super) fn end(&self, ticket: &str, ending: Result<Ending, AmountError>, now: Timestamp) -> bool {
        let ends = &self.metrics.ends;
        let (ticket, ending) = match (Ticket::open(ticket, self.secret), ending) {
            (Ok(ticket), Ok(ending)) => (ticket, ending),
            (Err(_), _) => {
                ends.refused.inc();
                return false;
            }
            (_, Err(_)) => {
                ends.no_amount.inc();
                return false;
            }
        };
        match self.throttle.end(&self.throttle.policy(), &ticket, &ending, now) {
            Ended::Counted => {
                self.status.groups.ended(&ticket, now);
                ends.counted.inc()
            }
            Ended::Late => ends.late.inc(),
            Ended::Unmeasured => ends.unmeasured.inc(),
        };
        true
    }

    /// Counts a hold that HAProxy has abandoned before its end.
    pub(super) fn abandoned(&self, delay: Duration, now: Timestamp) {
        self.metrics.plain.holds_abandoned.inc();
        let text = || {
            format!(
                "HAProxy abandoned a hold of {} ms before it ended, so the SLO was exceeded: raise `timeout \
                 processing` of slowlane-hold in spoe-slowlane.conf above [hold] longest, or regenerate the \
                 file with `slowlane config haproxy`",
                delay.as_millis()
            )
        };
        self.abandoned_line.warn(now, text);
    }

    /// A place for one held answer. If none is free, the error is the verdict that `[hold] when_full` sets.
    pub(super) fn place(&self, now: Timestamp) -> Result<HoldPlace, Verdict> {
        self.holds.place().ok_or_else(|| {
            let verdict = self.holds.limits.when_full.verdict();
            let text =
                || format!("[hold] max was reached: requests get the verdict {} at once", verdict.name());
            self.holds_line.warn(now, text);
            verdict
        })
    }
}
