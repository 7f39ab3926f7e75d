//! What becomes of a request that was let through: its client leaves before its turn, or it ends.

use arrayvec::ArrayVec;

use crate::base::charge::{Charge, ChargeKind};
use crate::base::ticket::Ticket;
use crate::base::time::Timestamp;
use crate::base::verdict::{Decision, JUDGED_MAX, Judged, Verdict};
use crate::policy::Policy;
use crate::throttle::memory::Throttle;

/// The charges of one request: at most one for each of its SLOs.
pub type Charges = ArrayVec<Charge, JUDGED_MAX>;

impl Throttle {
    /// Takes back a delayed request whose client left before its turn: its slot is free again. It hands out what
    /// was taken back. `adaptive` has no slots, and counts the request all the same.
    pub fn take_back(&self, policy: &Policy, decision: &Decision, now: Timestamp) -> Charges {
        let mut charges = Charges::new();
        for judged in decision.judged().iter().filter(|judged| judged.is_counted()) {
            let Some(slo) = policy.slo(judged.slo) else { continue };
            self.table.with_known(judged.key, now, |entry| {
                self.annexes.with_known(judged.key, &slo.law, |annex| {
                    slo.law.take_back(entry, annex, decision.cost, now, judged.due(decision.at));
                });
                let Judged { slo, key, .. } = *judged;
                charges.push(Charge { slo, key, cost: decision.cost, at: now, kind: ChargeKind::TakenBack });
            });
        }
        charges
    }

    /// Makes a refusal of a decision that nobody has been told yet: what it took, it gives back.
    pub fn refuse(&self, policy: &Policy, decision: &mut Decision, refusal: Verdict, now: Timestamp) {
        self.take_back(policy, decision, now);
        decision.verdict = refusal;
    }

    /// Ends a request that was let through, and hands out what has ended.
    pub fn end(&self, policy: &Policy, ticket: &Ticket, now: Timestamp) -> Charges {
        let mut charges = Charges::new();
        for &(id, key) in &ticket.counted {
            let Some(slo) = policy.slo(id).filter(|slo| slo.law.counts_ends()) else { continue };
            self.table.with_known(key, now, |entry| {
                slo.law.end(entry, ticket.cost, ticket.begun(now), now);
                charges.push(Charge { slo: id, key, cost: ticket.cost, at: now, kind: ChargeKind::Ended });
            });
        }
        charges
    }
}
