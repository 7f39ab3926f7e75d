//! The requests of a shared key that a node holds, and the slots that the store has granted for them.
//!
//! ```text
//! waiting   oldest │ · · · │ · · · · │ · · · │ youngest
//!                  │ slots │  asked  │ want  │
//! slots     granted: the oldest request passes at the earliest one
//! asked     the message in flight asks for their slots;  want: the next one will
//! back      slots that no request needs any more: the next message returns them
//! ```
//! A request without a slot passes at its estimate, and its slot is dropped when the store grants it.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use crate::base::{Timestamp, Turn};
use crate::cluster::{Grant, HOLES_MAX, Message, Plan, Wants};

/// The maximum number of requests of one key that a node holds.
const WAITING_MAX: usize = 1_024;

/// A request whose turn came this long ago, but whose proxy has not reported it, counts as passed: a proxy that gets no
/// answer in time lets the request pass.
const OVERDUE_S: f64 = 1.0;

/// The requests of a key that a node holds. Times are in seconds since `origin`. Requests that still wait when the
/// queue is dropped (as after an edit of the SLO's mode) pass when their turns come.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    origin: Timestamp,
    waiting: VecDeque<Waiting>,
    slots: VecDeque<f64>,
    /// The number of slots that the node took from its own share while the store was silent, and has not charged yet.
    /// These are always the youngest slots.
    pub(super) own: usize,
    /// The number of slots that the message in flight asks for.
    asked: usize,
    /// The number of requests that passed while the message in flight asked for their slots.
    late: usize,
    back: Vec<f64>,
    /// Requests that were recently refused: the proxy may not have asked for their turns yet.
    refused: VecDeque<Waiting>,
    /// The number of slots returned as a lower charge, because there was no room to return each slot separately.
    refund: f64,
    last: u64,
    /// When the next message is due. Infinite if no message is due before the next change.
    pub(super) due_s: f64,
    /// The part of the TAT for the requests that other nodes are expected to have made since the last reply.
    pub(super) ahead_s: f64,
    /// When a request last passed.
    pub(super) passed_s: f64,
    /// Whether the store was silent at the last request.
    pub(super) is_alone: bool,
    /// A message whose answer was lost. The message is sent again, because the store may have applied it.
    pub(super) repeat: Option<Message>,
}

#[derive(Clone, Debug)]
struct Waiting {
    number: u64,
    arrived_s: f64,
    /// The estimated moment of the request's turn.
    due_s: f64,
    turn: Arc<Turn>,
}

impl Queue {
    pub(super) fn new(origin: Timestamp) -> Queue {
        Queue { origin, due_s: f64::INFINITY, passed_s: f64::NEG_INFINITY, ..Queue::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() >= WAITING_MAX
    }

    /// The number of requests for which no message has asked for a slot yet: the youngest requests.
    fn want(&self) -> usize {
        self.waiting.len().saturating_sub(self.slots.len() + self.asked - self.late)
    }

    /// The number of requests that the store does not know of. With `is_in_flight`, the number includes the requests
    /// for which the message in flight asks.
    pub(super) fn unknown(&self, is_in_flight: bool) -> f64 {
        (self.want() + if is_in_flight { self.asked } else { 0 }) as f64
    }

    /// Whether the next message asks for slots, returns slots, or repeats a message.
    pub(super) fn has_news(&self) -> bool {
        self.want() > 0 || !self.back.is_empty() || self.repeat.is_some()
    }

    /// Holds a request, with `due_s` as the estimate of its turn. Returns the number of the request.
    pub(super) fn hold(&mut self, due_s: f64, now_s: f64) -> u64 {
        let arrived = self.at(now_s).as_nanos();
        self.last = arrived.max(self.last + 1);
        let before = self.waiting.back();
        let due_s = due_s.max(before.map_or(0.0, |before| before.due_s));
        // Only the new request gets a turn: the other requests keep their turns.
        let slot_s = self.slots.get(self.waiting.len()).copied().unwrap_or(due_s);
        let before = before.and_then(|before| before.turn.due());
        let turn = self.at(slot_s).max(before.unwrap_or(self.origin));
        let turn = Arc::new(Turn::new(turn));
        self.waiting.push_back(Waiting { number: self.last, arrived_s: now_s, due_s, turn });
        self.last
    }

    /// Holds a request until a slot of this node's own share. Returns the number of the request.
    pub(super) fn hold_own(&mut self, slot_s: f64, now_s: f64) -> u64 {
        self.take_own(slot_s);
        self.hold(slot_s, now_s)
    }

    /// Lets requests without a slot pass at their estimates, because the store has fallen silent. Returns the last slot
    /// or, if there are no slots, the time at which a request last passed.
    pub(super) fn fall_silent(&mut self) -> f64 {
        let estimates: Vec<f64> =
            self.waiting.iter().skip(self.slots.len()).map(|waiting| waiting.due_s).collect();
        estimates.into_iter().for_each(|due_s| self.take_own(due_s));
        self.slots.back().copied().unwrap_or(self.passed_s)
    }

    fn take_own(&mut self, slot_s: f64) {
        self.own += 1;
        self.slots.push_back(slot_s.max(self.slots.back().copied().unwrap_or_default()));
    }

    pub(super) fn turn(&self, number: u64) -> Option<Arc<Turn>> {
        let all = self.waiting.iter().chain(&self.refused);
        all.into_iter().find(|waiting| waiting.number == number).map(|waiting| waiting.turn.clone())
    }

    /// Notes that a request has passed. Returns the number of requests that no slot pays for, 0 or 1. None if the
    /// request is unknown.
    pub(super) fn pass(&mut self, number: u64) -> Option<f64> {
        let place = self.waiting.iter().position(|waiting| waiting.number == number)?;
        self.waiting.remove(place);
        let has_slot = self.slots.pop_front().is_some();
        self.own = self.own.min(self.slots.len());
        let is_late = !has_slot && self.asked > self.late;
        self.late += usize::from(is_late);
        if place > 0 || !has_slot {
            self.assign();
        }
        Some(if has_slot || is_late { 0.0 } else { 1.0 })
    }

    /// Removes a request whose client has disconnected; later requests move up. Returns false for an unknown request.
    pub(super) fn leave(&mut self, number: u64) -> bool {
        let Some(place) = self.waiting.iter().position(|waiting| waiting.number == number) else {
            return false;
        };
        self.waiting.remove(place);
        if self.slots.len() > self.waiting.len() {
            self.give_back_last();
        }
        self.assign();
        true
    }

    /// Drops requests whose turn was long ago. Returns how many of these requests no slot pays for.
    pub(super) fn drop_overdue(&mut self, now_s: f64) -> f64 {
        self.refused.retain(|refused| refused.due_s > now_s - OVERDUE_S);
        let mut unpaid = 0.0;
        while let Some(oldest) = self.waiting.front() {
            let due_s = oldest.turn.due().map_or(0.0, |due| self.seconds(due));
            if due_s > now_s - OVERDUE_S {
                break;
            }
            unpaid += self.pass(oldest.number).unwrap_or_default();
        }
        unpaid
    }

    /// The slots that the next message asks for, and the slots that it returns. The message then counts as in flight.
    pub(super) fn ask(&mut self, number: u64, half_trip_s: f64, now_s: f64) -> Wants {
        let want = self.want();
        let first = self.waiting.len() - want;
        let waited_s = self.waiting.get(first).map_or(0.0, |waiting| now_s - waiting.arrived_s);
        let back = mem::take(&mut self.back).into_iter().map(|slot_s| slot_s - now_s - half_trip_s);
        let wants = Wants {
            run: 0,
            number,
            want: want as u32,
            waited_s: waited_s.max(0.0),
            half_trip_s,
            back: back.collect(),
        };
        (self.asked, self.late) = (want, 0);
        self.due_s = f64::INFINITY;
        wants
    }

    /// Notes that the message sent at `sent_s` will get no answer. Returns the number of requests that have since
    /// passed without a slot.
    pub(super) fn lost(&mut self, wants: &Wants, sent_s: f64) -> f64 {
        let unpaid = mem::take(&mut self.late) as f64;
        self.asked = 0;
        self.back.extend(wants.back.iter().map(|ahead_s| ahead_s + sent_s + wants.half_trip_s));
        self.refund += self.back.len().saturating_sub(HOLES_MAX) as f64;
        self.back.truncate(HOLES_MAX);
        unpaid
    }

    /// Applies the grant that the store gave at `then_s`. A slot beyond the longest delay, which no genuine store
    /// grants, is moved to the end of that delay. A request still without a slot gets a new estimate from `estimate`,
    /// which takes the number of requests behind it. Returns how many requests passed without a slot to pay for them.
    pub(super) fn granted(
        &mut self,
        grant: &Grant,
        plan: &Plan,
        then_s: f64,
        now_s: f64,
        estimate: impl Fn(f64) -> f64,
    ) -> f64 {
        let (want, slot_s, max_delay_s) = (self.want(), plan.slot_s(), plan.max_delay.as_secs_f64());
        let latest_s = now_s + max_delay_s + slot_s;
        let run = (0..grant.count).map(|place| grant.first_s + f64::from(place) * slot_s);
        for ahead_s in grant.holes.iter().copied().chain(run) {
            if self.late > 0 {
                self.late -= 1;
                continue;
            }
            let granted_s = (then_s + ahead_s).min(latest_s);
            let place = self.slots.partition_point(|&slot_s| slot_s <= granted_s);
            self.slots.insert(place, granted_s);
        }
        let unpaid = self.refuse(grant.refused, want);
        (self.asked, self.late) = (0, 0);
        while self.slots.len() > self.waiting.len() {
            self.give_back_last();
        }
        let (first, all) = (self.slots.len(), self.waiting.len());
        for (place, waiting) in self.waiting.iter_mut().enumerate().skip(first) {
            let estimate_s = estimate((all - 1 - place) as f64).min(waiting.arrived_s + max_delay_s);
            waiting.due_s = waiting.due_s.max(estimate_s);
        }
        self.assign();
        unpaid
    }

    /// Refuses the youngest requests for which the message has asked, because there is no slot for them. No message has
    /// asked yet for the `want` requests behind them. Returns how many refused requests had already passed.
    fn refuse(&mut self, refused: u32, want: usize) -> f64 {
        let mut unpaid = 0.0;
        for _ in 0..refused {
            if self.late > 0 {
                self.late -= 1;
                unpaid += 1.0;
                continue;
            }
            let Some(place) = self.waiting.len().checked_sub(1 + want) else { break };
            if place < self.slots.len() {
                break;
            }
            if let Some(refused) = self.waiting.remove(place) {
                refused.turn.refuse();
                self.refused.truncate(WAITING_MAX - 1);
                self.refused.push_front(refused);
            }
        }
        unpaid
    }

    fn give_back_last(&mut self) {
        let Some(slot_s) = self.slots.pop_back() else { return };
        if self.own > 0 {
            self.own -= 1;
        } else if self.back.len() < HOLES_MAX {
            self.back.push(slot_s);
        } else {
            self.refund += 1.0;
        }
    }

    /// The number of slots by which the next message lowers its charge.
    pub(super) fn take_refund(&mut self) -> f64 {
        mem::take(&mut self.refund)
    }

    /// Moves each turn to its slot, or to its estimate. No request passes before an older request.
    fn assign(&mut self) {
        let (mut at_s, origin) = (0.0_f64, self.origin);
        for (place, waiting) in self.waiting.iter().enumerate() {
            at_s = at_s.max(self.slots.get(place).copied().unwrap_or(waiting.due_s));
            waiting.turn.move_to(moment(origin, at_s));
        }
    }

    fn at(&self, seconds: f64) -> Timestamp {
        moment(self.origin, seconds)
    }

    fn seconds(&self, moment: Timestamp) -> f64 {
        moment.since(self.origin).as_secs_f64()
    }
}

/// The moment this many seconds after `origin`, or `origin` itself if the number of seconds is negative or not finite.
fn moment(origin: Timestamp, seconds: f64) -> Timestamp {
    origin + Duration::try_from_secs_f64(seconds).unwrap_or_default()
}
