//! The end of an admitted request: its client disconnects before its turn, or it ends.

use std::sync::Arc;

use crate::base::{Counted, Decision, Key, Ticket, Timestamp, Turn, Verdict};
use crate::law::Admission;
use crate::policy::Policy;
use crate::throttle::Throttle;

impl Throttle {
    /// Takes back a delayed request whose client disconnected before its turn. Its slot is free again. `adaptive` has
    /// no slots, so there the request stays counted.
    pub fn take_back(&self, policy: &Policy, decision: &Decision, now: Timestamp) {
        for (judged, serial) in decision.numbered().filter(|(judged, _)| judged.is_counted()) {
            let Some(slo) = policy.slo(judged.slo) else { continue };
            if let Some(assured) = self.assured_by(slo).filter(|_| judged.assurance.carries) {
                let key = policy.assured_key(judged.key);
                self.table.with_known(key, now, |entry, _| assured.take_back(entry, decision.cost));
            }
            if judged.counts_end && !self.closes(judged.key, serial, decision.at.ticks_ms()) {
                continue;
            }
            if let Some(sketch) = policy.sketch(judged.slo) {
                sketch.take_back(judged.key, decision.cost, decision.at);
                continue;
            }
            self.table.with_known(judged.key, now, |entry, now| {
                let gone = Admission { cost: decision.cost, due: judged.due(decision.at), now };
                self.aux_store.with_known(judged.key, &slo.law, |aux| slo.law.take_back(entry, aux, &gone));
                if let Some(cluster) = self.cluster_of(slo) {
                    cluster.take_back(judged.key, decision.cost, decision.turn, now);
                }
            });
        }
    }

    /// The turn of a held request. None: its delay is final, or its queue has ended.
    pub fn turn(&self, key: Key, number: u64) -> Option<Arc<Turn>> {
        self.cluster().filter(|_| number != 0)?.turn(key, number)
    }

    /// A held request has passed.
    pub fn pass(&self, key: Key, number: u64, now: Timestamp) {
        if let Some(cluster) = self.cluster() {
            cluster.pass(key, number, now);
        }
    }

    /// Takes back a held request that its proxy does not hold.
    pub fn leave(&self, key: Key, number: u64, now: Timestamp) {
        if let Some(cluster) = self.cluster() {
            cluster.take_back(key, 1, number, now);
        }
    }

    /// Converts a decision to a refusal before it is sent, and takes it back.
    pub fn refuse(&self, policy: &Policy, decision: &mut Decision, refusal: Verdict, now: Timestamp) {
        self.take_back(policy, decision, now);
        (decision.verdict, decision.turn) = (refusal, 0);
    }

    /// Ends an admitted request. False if nothing has ended: at a second report, or after the lease. Only a ticket
    /// for which there was no memory counts each time.
    pub fn end(&self, policy: &Policy, ticket: &Ticket, now: Timestamp) -> bool {
        let mut has_ended = false;
        for &Counted { slo: id, key, serial } in &ticket.counted {
            let Some(slo) = policy.slo(id).filter(|slo| slo.law.counts_ends()) else { continue };
            if !self.closes(key, serial, ticket.begun_ms()) {
                continue;
            }
            self.table.with_known(key, now, |entry, now| {
                let gone = Admission { cost: ticket.cost, due: ticket.begun(now), now };
                has_ended |= slo.law.end(entry, &gone) > 0;
            });
        }
        has_ended
    }

    /// Closes an open ticket. A request without a serial was not stored, and its ticket is trusted.
    fn closes(&self, key: Key, serial: u32, begun_ms: u32) -> bool {
        serial == 0 || self.aux_store.close_ticket(key, serial, begun_ms)
    }
}
