//! Additions to a decision for Envoy's rate limit service: a limit that the request brings, the hits of a refused
//! request, and the time until a quota is full again.

use std::time::Duration;

use crate::base::{Decision, Judged, Key, Sample, SloId, Timestamp};
use crate::law::{Admission, Arrival, Judgement, Law, Used};
use crate::policy::{Batch, Case, Slo, SloPlan};
use crate::table::Entry;
use crate::throttle::Throttle;

impl Throttle {
    /// Decides the first request of a batch by an SLO that the request brings itself. Operators' blocks still apply.
    pub fn decide_by(&self, slo: &Slo, key: Key, batch: &Batch<'_, '_>, now: Timestamp) -> Decision {
        let cases = batch.cases(0, &batch.look_up(now));
        let (plan, cost) = (SloPlan::alone(slo), cases.cost);
        let case = Case { slo, plan: &plan, key, sharer: 0, assured: None, cost, is_added: false };
        let arrival = Arrival { now, sample: Sample::MIDDLE, cost, sharer: 0, may_hold: false };
        match cases.blocked.filter(|blocked| blocked.holds_at(now)) {
            Some(blocked) => self.refuse_blocked(&[case], blocked, arrival),
            None => self.decide_together(&[case], (batch, 0), arrival),
        }
    }

    /// Adapts a decision to the rules of Envoy's service. Windows count even the hits of a refused request, because the
    /// cost of a response is reported after it has been spent. A request with 0 hits is refused by a window that holds
    /// more than its limit. Other laws count only the requests that they let through, and a blocked request counts
    /// nowhere. A single hit that has several limits counts under all of them or none, as everywhere in slowlane.
    pub fn count_as_envoy<'s>(
        &self,
        decision: &mut Decision,
        slo_of: impl Fn(SloId) -> Option<&'s Slo>,
        now: Timestamp,
    ) {
        if decision.blocked().is_some() {
            return;
        }
        let mut list = decision.judged();
        let is_one_of_several = list.len() > 1 && decision.cost == 1;
        for judged in &mut list {
            let Some(slo) = slo_of(judged.slo).filter(|slo| is_window(&slo.law)) else { continue };
            match judged.is_counted() {
                true if judged.cost == 0 => self.ask_window(slo, judged, now),
                true => {}
                false if is_one_of_several => {}
                false => self.table.with(judged.key, now, slo.law.memory(), |entry| {
                    self.correct(slo, judged.key, entry, &Admission { cost: 0, due: now, now }, judged.cost);
                }),
            }
        }
        if decision.cost == 0 {
            *decision = Decision::of(&list, decision.cost, decision.at);
        }
    }

    fn ask_window(&self, slo: &Slo, judged: &mut Judged, now: Timestamp) {
        let Some(used) = self.used_by(slo, judged.key, now) else { return };
        judged.remaining = used.limit.saturating_sub(used.requests);
        if used.requests > used.limit {
            let left_ns = used.resets_at.map_or(0, |at| at.since(now).as_nanos() as u64);
            judged.verdict = Judgement::deny(left_ns, 0).verdict;
        }
    }

    /// The time until a key has its whole quota again. None if the key has it now, or its law has no quota.
    pub fn resets_in(&self, slo: &Slo, key: Key, now: Timestamp) -> Option<Duration> {
        let is_full_at = || Some(slo.law.gcra()?.owing().tat(&self.entry(key, now), now));
        let at = self.used_by(slo, key, now).map_or_else(is_full_at, |used| used.resets_at)?;
        Some(at.since(now)).filter(|left| !left.is_zero())
    }

    fn used_by(&self, slo: &Slo, key: Key, now: Timestamp) -> Option<Used> {
        let of_nodes = self.shared(slo).and_then(|(cluster, share)| cluster.used(key, &share, now));
        of_nodes.or_else(|| slo.law.used(&self.entry(key, now), None, now))
    }

    pub(super) fn entry(&self, key: Key, now: Timestamp) -> Entry {
        self.table.get(key, now).map_or(Entry::default(), |(entry, _)| entry)
    }
}

/// Whether a law counts requests in windows that do not overlap.
fn is_window(law: &Law) -> bool {
    law.window().is_some_and(|window| !window.is_sliding)
}
