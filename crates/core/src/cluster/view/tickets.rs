//! Tickets: a node asks the store for a slot for each request that it holds.
//!
//! At a low rate, replies from the store come less often than slots pass, so a node cannot know which slot is next. But
//! a request that finds debt waits anyway. Meanwhile, the node asks for a slot that no other node gets. A request that
//! may pass at once never waits for the store, and a held request without a slot passes at the node's estimate.
//!
//! ```text
//! ahead: the part of F that is drift   Q: held requests   want: held requests without a slot
//! between replies   F += o * min(1, R / (w + o)) / R * time, at most now + max_delay
//! a request         d = F + 1/R - now
//!   Q empty, d - ahead/2 <= 0, allowance >= 1: pass;  F += 1/R
//!   p = 1 if w + o <= R, else R / (w + o) * max(1, (2 * (max_delay - d + 1/2R) / max(1 s, 2/R))^2)
//!   with p: hold, at least until its slot can be known;  want += 1;  F += 1/R      else deny
//! a reply           F = TAT + (unsent + want) / R;  ahead = 0;  the slots go to the oldest in Q
//! ```
//! The figures beside the constants are the worst of seven loads in a model in virtual time, at 1 to 50/s on 3 to 300
//! nodes, with round trips of 1 and 50 ms.

use std::sync::Arc;
use std::time::Duration;

use crate::base::{Sample, Timestamp, Turn};
use crate::cluster::queue::Queue;
use crate::cluster::record::YOUNG_S;
use crate::cluster::view::{Known, NEWS_AFTER_S, RETURN_S, TINY, View, duration};
use crate::cluster::{Hint, Message, OnSilence, Plan, Reply};

/// The part of the drift that a request may ignore, because drift is only an estimate. With 1, half as many requests
/// wait for a round trip although the bucket has a token; but at 50/s, with requests at any node, the worst second is
/// above +20 %.
const DOUBTED: f64 = 0.5;

/// The band below the longest delay in which fewer requests are held the longer the queue is.
const QUEUE_BAND_S: f64 = 1.0;

/// A slot may arrive this much later than two round trips, because timers and processes add delays.
const ANSWER_MARGIN_S: f64 = 0.02;

/// A node that has only refused requests reports its demand after this time.
const DENIED_S: f64 = 2.0;

/// A node without any known demand may use this part of an equal share while the store is silent.
const UNKNOWN_SHARE: f64 = 0.1;

/// The more the demand of all nodes exceeds 90 % of the rate, the later a node admits its first request once the store
/// is silent. At 110 %, the delay is the node's phase times one slot at its own share.
const CROWDED_FROM: f64 = 0.9;
const CROWDED_BAND: f64 = 0.2;

/// The delay of a request, and its number in the queue. Without a number, the delay is final.
type Delayed = (Duration, Option<u64>);

impl View {
    /// Judges a request whose answer this node can hold, and returns its delay.
    ///
    /// # Errors
    /// The request is refused. It would pass after this time if no other request came.
    pub fn judge_held(&mut self, plan: &Plan, sample: Sample, now: Timestamp) -> Result<Delayed, Duration> {
        if !plan.has_tickets() {
            return self.judge(plan, 1.0, now).map(|delay| (delay, None));
        }
        let now_s = self.receive(plan, 1.0, now);
        let origin = self.exchange.origin;
        self.queue.get_or_insert_with(|| Box::new(Queue::new(origin)));
        self.drift(plan, now_s);
        if self.is_blind(plan, now_s) {
            return self.hold_alone(plan, now_s);
        }
        let (slot_s, max_delay_s) = (plan.slot_s(), plan.max_delay.as_secs_f64());
        let wait_s = self.tat_s + slot_s - now_s;
        let (own_per_s, all_per_s) = self.demands(plan, now_s);
        let admitted = (plan.rate_per_s / all_per_s.max(TINY)).min(1.0);
        let usual_s = if plan.is_frequent(own_per_s * admitted) { plan.period_s() } else { NEWS_AFTER_S };
        let is_first = |queue: &Queue| queue.is_empty() && wait_s - DOUBTED * queue.ahead_s <= 0.0;
        if self.allowance >= 1.0 && self.queue.as_deref().is_some_and(is_first) {
            self.allowance -= 1.0;
            self.tat_s += slot_s;
            self.unsent += 1.0;
            self.queue.iter_mut().for_each(|queue| queue.passed_s = now_s);
            self.tell_within(usual_s, now_s);
            return Ok((Duration::ZERO, None));
        }
        let has_others = self.known.is_some_and(|known| known.others_per_s > 0.0);
        let may_be_free = wait_s <= max_delay_s || has_others;
        if !may_be_free || !sample.is_below(chance(plan, wait_s, all_per_s)) {
            return Err(duration((wait_s - max_delay_s).max(0.0)));
        }
        // If the request waits for longer than a message usually takes, the message may wait for other requests.
        let way_s = plan.period_s() + self.round_trip_s(plan) + 0.01;
        let within_s = if wait_s >= way_s { plan.period_s().min(wait_s / 4.0) } else { usual_s };
        self.hold(plan, wait_s, within_s, now_s).ok_or(duration((wait_s - max_delay_s).max(0.0)))
    }

    /// Holds a request. None if the queue is full.
    fn hold(&mut self, plan: &Plan, wait_s: f64, within_s: f64, now_s: f64) -> Option<Delayed> {
        let wait_s = wait_s.min(plan.max_delay.as_secs_f64());
        let due_s = (now_s + wait_s).max(self.earliest_s(plan, now_s));
        let queue = self.queue.as_mut().filter(|queue| !queue.is_full())?;
        let number = queue.hold(due_s, now_s);
        self.tat_s += plan.slot_s();
        self.tell_within(within_s, now_s);
        Some((duration(due_s - now_s), Some(number)))
    }

    /// Judges a request while the store is silent: only this node's own share counts. A request that still waits when
    /// the store answers again keeps its turn.
    fn hold_alone(&mut self, plan: &Plan, now_s: f64) -> Result<Delayed, Duration> {
        if plan.on_silence == OnSilence::Closed {
            return Err(plan.silent_after);
        }
        let own_s = self.own_slot_s(plan);
        let (wait_s, max_delay_s) = (self.tat_s + own_s - now_s, plan.max_delay.as_secs_f64());
        if wait_s > max_delay_s {
            return Err(duration((wait_s - max_delay_s).min(max_delay_s)));
        }
        let has_room = self.queue.as_ref().is_some_and(|queue| !queue.is_full());
        self.tat_s += own_s;
        if wait_s <= 0.0 || !has_room {
            return Ok((duration(wait_s.max(0.0)), None));
        }
        let number = self.queue.as_mut().map(|queue| queue.hold_own(now_s + wait_s, now_s));
        Ok((duration(wait_s), number))
    }

    /// Continues at this node's share from the last slot on, because the store has just fallen silent. Without a recent
    /// slot, the node begins at once or, for a crowded key, after the part of a slot that is its phase, so that all
    /// nodes together begin at the rate.
    pub(super) fn fall_silent(&mut self, plan: &Plan, now_s: f64) {
        let Some(last_s) = self.queue.as_mut().map(|queue| queue.fall_silent()) else { return };
        let (_, all_per_s) = self.demands(plan, now_s);
        let demand = (all_per_s / plan.rate_per_s - CROWDED_FROM) / CROWDED_BAND;
        let crowd = demand.max(self.tat_s - now_s).clamp(0.0, 1.0);
        self.tat_s = last_s.max(now_s - (1.0 - crowd * plan.phase) * self.own_slot_s(plan));
    }

    /// Advances the TAT by the time that the other nodes are expected to have used.
    pub(super) fn expect(&mut self, used_s: f64) {
        (self.tat_s, self.at_once) = (self.tat_s + used_s, 0.0);
        if let Some(queue) = &mut self.queue {
            (queue.ahead_s, queue.is_alone) = (queue.ahead_s + used_s, false);
        }
    }

    /// The time of one request at this node's share.
    pub(super) fn own_slot_s(&self, plan: &Plan) -> f64 {
        plan.slot_s() / self.share_alone(plan).max(UNKNOWN_SHARE * plan.equal_share())
    }

    /// Whether requests are held.
    pub(in crate::cluster) fn holds(&self) -> bool {
        self.queue.as_ref().is_some_and(|queue| !queue.is_empty())
    }

    /// The turn of a held request.
    pub fn turn(&self, number: u64) -> Option<Arc<Turn>> {
        self.queue.as_ref()?.turn(number)
    }

    /// Notes that a held request passed. If no slot was granted or asked for, charges it as if it had passed at once.
    pub fn pass(&mut self, plan: &Plan, number: u64, now: Timestamp) {
        let now_s = self.exchange.seconds(now);
        let Some(queue) = &mut self.queue else { return };
        let unpaid = queue.pass(number).unwrap_or_default();
        queue.passed_s = now_s;
        self.charge_passed(plan, unpaid, now_s);
    }

    /// Drops requests that passed without a report, and an empty queue that is no longer needed.
    pub fn drop_overdue(&mut self, plan: &Plan, now: Timestamp) {
        let now_s = self.exchange.seconds(now);
        if let Some(queue) = &mut self.queue {
            let unpaid = queue.drop_overdue(now_s);
            if !plan.has_tickets() && queue.is_empty() && !queue.has_news() {
                // The queue was needed until an edit raised the rate, or nodes left.
                self.queue = None;
            }
            self.charge_passed(plan, unpaid, now_s);
        }
    }

    /// Charges requests that passed without a slot. While the store is silent, such requests are paced by this node's
    /// share, and not charged.
    fn charge_passed(&mut self, plan: &Plan, unpaid: f64, now_s: f64) {
        if unpaid > 0.0 && !self.is_blind(plan, now_s) {
            self.unsent += unpaid;
            self.tell_within(plan.period_s(), now_s);
        }
    }

    /// Takes back a held request whose client has disconnected. Returns false if the request is not in the queue.
    pub fn leave(&mut self, plan: &Plan, number: u64, now: Timestamp) -> bool {
        let now_s = self.exchange.seconds(now);
        let is_known = self.queue.as_mut().is_some_and(|queue| queue.leave(number));
        if is_known {
            self.tat_s -= if self.is_blind(plan, now_s) { self.own_slot_s(plan) } else { plan.slot_s() };
            self.tell_within(plan.period_s(), now_s);
        }
        is_known
    }

    /// Whether a message is due. It is due soon after a request that needs a slot, and later after anything else.
    pub(super) fn has_to_ask(&self, plan: &Plan, queue: &Queue, now_s: f64) -> bool {
        if now_s - self.returned_s < RETURN_S {
            // The store does not yet know what the other nodes owe.
            return false;
        }
        let since_s = now_s - self.exchange.reported_s;
        let has_news = self.unsent != 0.0 || queue.has_news() || self.is_blind(plan, now_s);
        has_news && (now_s >= queue.due_s || since_s >= plan.period_s())
            || self.asked > 0.0 && since_s >= DENIED_S
    }

    /// The message whose answer was lost, with its times brought up to date. None if there is no such message, or if
    /// the store has been silent since then.
    pub(super) fn repeated(&mut self, plan: &Plan, own: f64, now_s: f64) -> Option<Message> {
        let mut message = self.queue.as_mut()?.repeat.take()?;
        if self.is_blind(plan, now_s) {
            self.put_back(&message);
            return None;
        }
        let later_s = now_s - self.exchange.reported_s;
        if let Some(wants) = &mut message.wants {
            wants.waited_s += later_s;
            wants.back.iter_mut().for_each(|slot_s| *slot_s -= later_s);
        }
        message.own = own;
        message.restore_s = message.restore_s.map(|ahead_s| ahead_s - later_s);
        message.known_age_s += later_s;
        self.exchange.sent(message.charge, now_s);
        self.waiting_s.get_or_insert(now_s);
        Some(message)
    }

    /// Applies the state of the key that came with the answer to a heartbeat, without a message about the key.
    pub fn hint(&mut self, plan: &Plan, hint: &Hint, now: Timestamp) {
        let now_s = self.exchange.seconds(now);
        let is_news = self.known.is_none() || self.queue.is_some() && hint.age_s >= YOUNG_S;
        if !plan.has_tickets() || !is_news || self.is_blind(plan, now_s) {
            return;
        }
        let half_trip_s = hint.half_trip.as_secs_f64();
        let reply = hint.reply(plan, now);
        let own = self.demand.sum(now_s, plan.memory_s());
        let (known, _) = self.learn(plan, own, &reply, half_trip_s, now_s);
        self.drift(plan, now_s);
        self.known = Some(known);
        if !self.take_grant(plan, &reply, &known, now_s) {
            self.tat_s = self.tat_s.max(known.tat_s + self.unsent * plan.slot_s());
        }
    }

    /// Applies the store's view of the key, and the store's grant, if any. Returns false if this view has no queue.
    pub(super) fn take_grant(&mut self, plan: &Plan, reply: &Reply, known: &Known, now_s: f64) -> bool {
        let Some(mut queue) = self.queue.take() else { return false };
        let slot_s = plan.slot_s();
        let unknown = self.unsent + queue.unknown(self.exchange.is_waiting(now_s));
        self.tat_s = known.tat_s.max(now_s - plan.burst_s()) + unknown * slot_s;
        (self.drifted_s, queue.ahead_s) = (now_s, 0.0);
        let tokens = (now_s - self.tat_s).max(0.0) * plan.rate_per_s;
        self.allowance = self.allowance.max(tokens.min(1.0) + tokens * known.share);
        if let Some(grant) = &reply.grant {
            let (earliest_s, last_s) = (self.earliest_s(plan, now_s), self.tat_s);
            let estimate = |behind: f64| earliest_s.max(last_s - behind * slot_s);
            self.unsent += queue.granted(grant, plan, now_s - known.half_trip_s, now_s, estimate);
        }
        let is_asking = queue.has_news() || self.unsent > 0.0;
        self.queue = Some(queue);
        if is_asking {
            self.tell_within(0.0, now_s);
        }
        true
    }

    /// The latest moment at which the slot of a request becomes known: an exchange about other keys may be in flight,
    /// so that only the next exchange brings the slot.
    fn earliest_s(&self, plan: &Plan, now_s: f64) -> f64 {
        now_s + NEWS_AFTER_S + 2.0 * self.round_trip_s(plan) + ANSWER_MARGIN_S
    }

    fn round_trip_s(&self, plan: &Plan) -> f64 {
        let known_s = self.known.map_or(0.0, |known| 2.0 * known.half_trip_s);
        known_s.max(plan.round_trip.as_secs_f64())
    }

    /// Makes a message due within this time, but not right after the last message.
    fn tell_within(&mut self, within_s: f64, now_s: f64) {
        let due_s = (now_s + within_s).max(self.exchange.reported_s + NEWS_AFTER_S);
        if let Some(queue) = &mut self.queue {
            queue.due_s = queue.due_s.min(due_s);
        }
    }
}

/// The probability that a request is held: 1 while the demand of all nodes is within the rate, else the rate divided by
/// that demand. The probability is higher while the queue is short.
fn chance(plan: &Plan, wait_s: f64, all_per_s: f64) -> f64 {
    if all_per_s <= plan.rate_per_s {
        return 1.0;
    }
    let slot_s = plan.slot_s();
    let room_s = plan.max_delay.as_secs_f64() - wait_s + slot_s / 2.0;
    let room = (2.0 * room_s / QUEUE_BAND_S.max(2.0 * slot_s)).max(0.0);
    plan.rate_per_s / all_per_s * (room * room).max(1.0)
}
