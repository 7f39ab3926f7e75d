//! The fate of a request that was let through: its client leaves before its turn, or it ends.

use arrayvec::ArrayVec;

use crate::base::charge::{Charge, ChargeKind};
use crate::base::ticket::Ticket;
use crate::base::time::Timestamp;
use crate::base::verdict::{Decision, JUDGED_MAX, Judged, Verdict};
use crate::policy::Policy;
use crate::throttle::state::Throttle;

/// The charges of one request: at most one per SLO.
pub type Charges = ArrayVec<Charge, JUDGED_MAX>;

impl Throttle {
    /// Takes back a delayed request whose client left before its turn. Its slot is free again. Returns the
    /// charges taken back. `adaptive` has no slots, so there the request stays counted.
    pub fn take_back(&self, policy: &Policy, decision: &Decision, now: Timestamp) -> Charges {
        let mut charges = Charges::new();
        for judged in decision.judged().iter().filter(|judged| judged.is_counted()) {
            let Some(slo) = policy.slo(judged.slo) else { continue };
            self.table.with_known(judged.key, now, |entry, now| {
                self.annexes.with_known(judged.key, &slo.law, |annex| {
                    slo.law.take_back(entry, annex, decision.cost, now, judged.due(decision.at));
                });
                if decision.cost > 0 && slo.law.gives_back() {
                    let Judged { slo, key, .. } = *judged;
                    charges.push(Charge {
                        slo,
                        key,
                        cost: decision.cost,
                        at: now,
                        kind: ChargeKind::TakenBack,
                    });
                }
            });
        }
        charges
    }

    /// Turns a decision into a refusal before it is sent, and takes back its charges.
    pub fn refuse(&self, policy: &Policy, decision: &mut Decision, refusal: Verdict, now: Timestamp) {
        self.take_back(policy, decision, now);
        decision.verdict = refusal;
    }

    /// Ends a request that was let through. Returns the charges that have ended: none at a second end, or after
    /// the lease.
    pub fn end(&self, policy: &Policy, ticket: &Ticket, now: Timestamp) -> Charges {
        let mut charges = Charges::new();
        for &(id, key) in &ticket.counted {
            let Some(slo) = policy.slo(id).filter(|slo| slo.law.counts_ends()) else { continue };
            self.table.with_known(key, now, |entry, now| {
                let cost = slo.law.end(entry, ticket.cost, ticket.begun(now), now);
                if cost > 0 {
                    charges.push(Charge { slo: id, key, cost, at: now, kind: ChargeKind::Ended });
                }
            });
        }
        charges
    }
}
