//! What may happen to an admitted request later: its client disconnects before the request's turn, or the request ends.

use std::sync::Arc;

use crate::base::{Counted, Decision, Ending, Ends, Key, Ticket, Timestamp, Turn, Verdict};
use crate::law::Admission;
use crate::policy::{Policy, Slo, Work};
use crate::table::Entry;
use crate::throttle::Throttle;

/// The effects of a reported end, weakest first. If the request has several SLOs, the strongest effect is returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ended {
    /// Nothing is given back: the end was reported before, or the lease has expired.
    Late,
    /// No effect yet: the report lacks the measure of the SLO's unit. The ticket stays open.
    Unmeasured,
    /// The request no longer counts, or its work is settled.
    Counted,
}

impl Throttle {
    /// Takes back an admitted request that will not proceed, such as one whose client disconnected before its turn. The
    /// request's slot becomes free again. The `adaptive` law has no slots, so the request stays counted under that law.
    pub fn take_back(&self, policy: &Policy, decision: &Decision, now: Timestamp) {
        for (judged, serial) in decision.numbered().filter(|(judged, _)| judged.is_counted()) {
            let Some(slo) = policy.slo(judged.slo) else { continue };
            if let Some(assured) = self.assured_by(slo).filter(|_| judged.assurance.carries) {
                let key = policy.assured_key(judged.key);
                self.table.with_known(key, now, |entry, _| assured.take_back(entry, judged.cost));
            }
            if slo.law.protection().is_some() {
                self.gates.leave(judged.key, serial.into(), now);
                continue;
            }
            if judged.ends != Ends::Never
                && !self.closes(judged.key, serial, decision.at.ticks_ms(), judged.ends.is_work())
            {
                continue;
            }
            if let Some(sketch) = self.sketch(slo) {
                sketch.take_back(judged.key, judged.cost, decision.at);
                continue;
            }
            self.table.with_known(judged.key, now, |entry, now| {
                let gone = Admission { cost: judged.cost, due: judged.due(decision.at), now };
                self.aux_store.with_known(judged.key, &slo.law, |aux| slo.law.take_back(entry, aux, &gone));
                if let Some(cluster) = self.cluster_of(slo) {
                    cluster.take_back(judged.key, judged.cost, decision.turn(), now);
                }
            });
        }
    }

    /// The turn of a held request. None if its delay is final, or if the request is no longer in a queue.
    pub fn turn(&self, key: Key, number: u64) -> Option<Arc<Turn>> {
        let of_gate = self.gates.turn(key, number);
        of_gate.or_else(|| self.cluster().filter(|_| number != 0)?.turn(key, number))
    }

    /// Records that a held request has passed.
    pub fn pass(&self, key: Key, number: u64, now: Timestamp) {
        self.gates.pass(key, number, now);
        if let Some(cluster) = self.cluster() {
            cluster.pass(key, number, now);
        }
    }

    /// Takes back a request whose answer was to be held, but whose proxy does not hold it.
    pub fn leave(&self, key: Key, number: u64, now: Timestamp) {
        self.gates.leave(key, number, now);
        if let Some(cluster) = self.cluster() {
            cluster.take_back(key, 1, number, now);
        }
    }

    /// Converts a decision to a refusal before the decision is sent, and takes the request back.
    pub fn refuse(&self, policy: &Policy, decision: &mut Decision, refusal: Verdict, now: Timestamp) {
        self.take_back(policy, decision, now);
        decision.verdict = refusal;
        decision.set_turn(0);
    }

    /// Ends an admitted request under each SLO that counts it until it ends. The request is no longer in
    /// flight, and a reservation of work is corrected to the true cost.
    pub fn end(&self, policy: &Policy, ticket: &Ticket, ending: &Ending, now: Timestamp) -> Ended {
        let of = |counted: &Counted| match policy.slo(counted.slo) {
            Some(slo @ Slo { work: Some(work), .. }) => {
                self.settle_work(slo, work, counted, ticket, ending, now)
            }
            Some(slo) if slo.law.protection().is_some() => {
                let is_known = self.gates.end(counted.key, counted.serial, now);
                if is_known { Ended::Counted } else { Ended::Late }
            }
            Some(slo) if slo.law.counts_ends() => self.end_one(slo, counted, ticket, now),
            _ => Ended::Late,
        };
        ticket.counted.iter().map(of).max().unwrap_or(Ended::Late)
    }

    /// Ends a request under one SLO. The ticket counts only once, unless there was no memory to store it.
    fn end_one(&self, slo: &Slo, counted: &Counted, ticket: &Ticket, now: Timestamp) -> Ended {
        if !self.closes(counted.key, counted.serial, ticket.begun_ms(), false) {
            return Ended::Late;
        }
        let mut ended = 0;
        self.table.with_known(counted.key, now, |entry, now| {
            let gone = Admission { cost: counted.cost, due: ticket.begun(now), now };
            ended = slo.law.end(entry, &gone);
        });
        if ended > 0 { Ended::Counted } else { Ended::Late }
    }

    /// Charges the difference between a reservation and the true cost, or gives it back. If there was no memory for the
    /// ticket, the reservation stays, because a second report would look like the first.
    fn settle_work(
        &self,
        slo: &Slo,
        work: &Work,
        counted: &Counted,
        ticket: &Ticket,
        ending: &Ending,
        now: Timestamp,
    ) -> Ended {
        let &Counted { key, serial, cost: reserved, .. } = counted;
        let Some(cost) = work.cost(ending, serial) else { return Ended::Unmeasured };
        let (begun, learned) = (ticket.begun(now), Some((cost, work.quantile())));
        if serial == 0 || !self.aux_store.close_ticket(key, serial, ticket.begun_ms(), true, learned) {
            return Ended::Late;
        }
        // After the lease, nothing is given back.
        let is_late = now.since(begun) >= work.lease;
        let cost = if is_late { cost.max(reserved) } else { cost };
        work.learn(cost);
        self.table.with_known(key, now, |entry, now| {
            entry.let_through(cost, now);
            let gone = Admission { cost: reserved, due: begun, now };
            self.correct(slo, key, entry, &gone, cost);
        });
        if is_late { Ended::Late } else { Ended::Counted }
    }

    pub(super) fn correct(&self, slo: &Slo, key: Key, entry: &mut Entry, gone: &Admission, cost: u32) {
        let more = f64::from(cost) - f64::from(gone.cost);
        let shared = self.shared(slo);
        if shared.is_some_and(|(cluster, share)| cluster.settle(key, &share, entry, more, gone)) {
            return;
        }
        let law = self.law_alone(slo);
        match cost.checked_sub(gone.cost) {
            Some(more) => law.charge_more(entry, more, gone.now),
            None => law.take_back(entry, None, &Admission { cost: gone.cost - cost, ..*gone }),
        }
    }

    /// Closes an open ticket. The ticket of a request without a serial was not stored, and is trusted.
    fn closes(&self, key: Key, serial: u32, begun_ms: u32, is_work: bool) -> bool {
        serial == 0 || self.aux_store.close_ticket(key, serial, begun_ms, is_work, None)
    }
}
