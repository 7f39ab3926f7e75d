//! The observation of decisions: metrics, throttled keys, decision log and charges.

#![allow(clippy::disallowed_types, reason = "the edge hands the dice down")]

use std::fmt;
use std::sync::Arc;

use fastrand::Rng;
use prometheus_client::metrics::counter::Counter;

use crate::observe::decision_log::DecisionLog;
use crate::observe::metrics::{Metrics, Verdicts};
use crate::observe::status::Status;
use slowlane_core::base::charge::Charge;
use slowlane_core::base::request::{Request, Value};
use slowlane_core::base::verdict::Decision;
use slowlane_core::policy::{Batch, Policy};
use slowlane_core::table::Table;

/// Observes every decision, for all proxies.
pub struct Observer {
    verdicts: Arc<Verdicts>,
    blocked: Counter,
    status: Arc<Status>,
    decision_log: Option<DecisionLog>,
    listener: Option<ChargeListener>,
}

/// A listener to charges. It runs on the deciding thread, so it must not block.
pub type ChargeListener = Box<dyn Fn(&Charge) + Send + Sync>;

impl Observer {
    pub fn new(metrics: &Metrics, status: Arc<Status>) -> Observer {
        let (verdicts, blocked) = (metrics.verdicts.clone(), metrics.blocked.clone());
        Observer { verdicts, blocked, status, decision_log: None, listener: None }
    }

    /// Adds a decision log.
    pub fn with_decision_log(self, decision_log: Option<DecisionLog>) -> Observer {
        Observer { decision_log, ..self }
    }

    /// Adds a listener to the charges.
    pub fn with_listener(self, listener: ChargeListener) -> Observer {
        Observer { listener: Some(listener), ..self }
    }

    pub fn decision_log(&self) -> Option<&DecisionLog> {
        self.decision_log.as_ref()
    }

    /// Observes the decisions on a batch: counts them, notes carried fields and throttled keys, logs, and passes charges
    /// on.
    ///
    /// `fields` gives the fields of a request for the log. Over HTTP these are all fields, over SPOP those that the
    /// policy uses. `table` has the entries of the keys.
    pub fn decided<'a, F>(
        &self,
        batch: &Batch<'_, '_>,
        decisions: &[Decision],
        table: &Table,
        dice: &mut Rng,
        fields: impl Fn(usize) -> F,
    ) where
        F: Iterator<Item = (&'a [u8], Value<'a>)>,
    {
        batch.note_fields();
        for (number, decision) in decisions.iter().enumerate() {
            self.verdicts.count(decision);
            if decision.blocked.is_some() {
                self.blocked.inc();
            }
            if decision.is_throttled() {
                self.status.throttled.note(decision, dice.u32(..), |slo, label| {
                    batch.facts(number, slo, |fact| label.push(fact));
                });
            }
            if let Some(log) = &self.decision_log
                && log.wants(decision, decision.at, || dice.u64(..))
            {
                let entry = table.get(decision.key, decision.at);
                let rate = entry.map_or(0, |(entry, _)| entry.gpc0_rate.read(decision.at.ticks_ms()));
                log.write(decision, rate, fields(number));
            }
            if let Some(listener) = &self.listener {
                decision.charges().for_each(|charge| listener(&charge));
            }
        }
    }

    /// Notes the key of a request that a proxy has delayed or denied by its own rules.
    pub fn throttled_elsewhere(
        &self,
        policy: &Policy,
        request: &Request<'_>,
        decision: &Decision,
        dice: &mut Rng,
    ) {
        self.status.throttled.note(decision, dice.u32(..), |slo, label| {
            let mut batch = Batch::of(policy);
            batch.push(request);
            batch.facts(0, slo, |fact| label.push(fact));
        });
    }

    /// Passes charges on that come without a decision: taken back, or ended.
    pub fn charged(&self, charges: &[Charge]) {
        if let Some(listener) = &self.listener {
            charges.iter().for_each(listener);
        }
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").field("has_listener", &self.listener.is_some()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use super::*;
    use slowlane_core::base::charge::ChargeKind;
    use slowlane_core::base::draw::Draw;
    use slowlane_core::base::request::Request;
    use slowlane_core::base::time::Timestamp;
    use slowlane_core::policy::Policy;
    use slowlane_core::table::Sizing;
    use slowlane_core::throttle::{Decisions, Throttle};

    /// Two requests are let through, and one is taken back: three charges.
    #[test]
    fn a_listener_gets_what_is_taken_and_what_comes_back() {
        let sizing = Sizing { entries_max: 100, expire: Duration::from_secs(30) };
        let throttle = Throttle::new(Policy::builtin(), sizing, 0);
        let charges = Arc::new(Mutex::new(Vec::new()));
        let listener = {
            let charges = charges.clone();
            Box::new(move |charge: &Charge| charges.lock().unwrap().push(*charge))
        };
        let metrics = Metrics::new();
        let observer = Observer::new(&metrics, Arc::default()).with_listener(listener);

        let (policy, mut decisions) = (throttle.policy(), Decisions::new());
        let mut batch = Batch::of(&policy);
        batch.push(&Request::new());
        batch.push(&Request::new());
        let now = Timestamp::from_millis(60_000);
        throttle.decide(&batch, now, || Draw::MIDDLE, &mut decisions);
        observer.decided(&batch, &decisions, throttle.table(), &mut Rng::with_seed(1), |n| batch.fields(n));
        let later = now + Duration::from_millis(5);
        observer.charged(&throttle.take_back(&policy, &decisions[1], later));

        let key = decisions[0].key;
        let charge = |at, kind| Charge { slo: decisions[0].slo, key, cost: 1, at, kind };
        let taken = charge(now, ChargeKind::Taken);
        assert_eq!(*charges.lock().unwrap(), [taken, taken, charge(later, ChargeKind::TakenBack)]);
        assert_eq!(metrics.verdicts.total(), 2);
    }
}
