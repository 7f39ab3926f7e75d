//! Leases: quotas that are never exceeded, because parts of them are granted in advance.
//!
//! ```text
//! a request     passes if the hand holds its cost; else it is refused
//! the hand      the quota that this node has been granted in the window and has not yet used
//! a message     asks for as much as the demand of a period and a round trip, once half of that is left;
//!               a node without requests gives its hand back
//! the store     grants up to all of the quota that is left; when little is left, only a part of it
//! ```
//! Source: J. Fu, "Throttling Solutions in Standalone and Distributed Scenarios", which grants tokens in advance. The
//! first request of a node in a window is admitted on credit if all such credits together are at most a fiftieth of the
//! quota. The store reserves these credits.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::Timestamp;
use crate::cluster::{Decayed, Exchange, Plan, QuotaPlan};
use crate::law::Used;

/// The memory of a key's demand: several times the usual period, so that a node's demand fades soon after its last
/// requests.
const MEMORY_S: f64 = 1.0;

/// The maximum total of all credits, as a part of the quota. The store reserves it, so it may stay unused.
const CREDIT: f64 = 0.02;

/// When less than this part of the quota is left, the store grants only a part of the rest, so that no node holds the
/// last requests while other nodes refuse. The value was measured with 35 nodes, a quota of 2000 in 1 s, and a demand
/// of three times the quota. With 0, 0.1 and 0.3, the whole quota is used up, with 280, 410 and 450 messages a second.
const SCARCE: f64 = 0.1;

/// Below [`SCARCE`], the store grants at most this part of a node's share of the rest, or one request if that is more.
/// A round of messages from all nodes thus takes at most about half of the rest.
const SCARCE_PART: f64 = 0.5;

/// A node that has no requests for this long returns its lease: by then, the node's demand has faded to a third.
const IDLE_S: f64 = 1.0;

/// The shortest time between two messages: the interval at which the task that talks to the store checks for messages.
const PAUSE_S: f64 = 0.005;

/// The shortest time before a node asks for a used-up quota again, even if the configured period is shorter.
const SPENT_PAUSE_S: f64 = 0.1;

/// A node asks for more once it holds less than this part of the demand of a period and a round trip. The answer then
/// comes before the rest of the lease is used, unless the round trip is longer than the period. The same runs with
/// 0.25, 0.5 and 0.75 take 350, 410 and 540 messages a second.
const LOW: f64 = 0.5;

/// A node that asks for more fills its lease to this multiple of the demand of a period and a round trip: a little
/// above 1, because demand varies. The same runs with 1, 1.25 and 2 take 410, 330 and 250 messages a second; the more a
/// node holds, the more is lost with that node.
const FULL: f64 = 1.25;

/// A node's lease on the quota of one key. Times are in seconds since the node's first request for the key.
#[derive(Clone, Debug, Default)]
pub struct LeaseView {
    exchange: Exchange,
    hand: f64,
    /// The earliest and the latest time at which the window may end, if the store has reported the window's end.
    ends_s: Option<f64>,
    credit_ends_s: f64,
    /// The number of requests admitted on credit in this window.
    credit: f64,
    /// Whether the store has reported that the quota is used up.
    is_spent: bool,
    /// The quota that the store had granted to all nodes as of the last reply.
    given: f64,
    demand: Decayed,
    asked: f64,
    asked_s: f64,
}

/// A node's report about a quota, with the numbers of its SLO.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LeaseMessage {
    /// The amount requested, or, if negative, the amount returned.
    pub want: f64,
    /// The number of requests received since the last message.
    pub asked: f64,
    /// The quota granted to all nodes in this window, as of the last reply, and the time until the window ends. None if
    /// the node knows of no current window.
    pub restore: Option<(f64, f64)>,
    pub limit: f64,
    /// The amount that the store reserves for the credits of all nodes.
    pub kept_back: f64,
    pub window_s: f64,
    /// The age of the window, if it is a calendar period. None if the window begins with the first message.
    pub age_s: Option<f64>,
    /// The lifetime of the record.
    pub kept_s: f64,
}

/// The answer of the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LeaseReply {
    pub granted: f64,
    /// The quota granted to all nodes in this window.
    pub given: f64,
    /// The time until this window ends.
    pub rest_s: f64,
}

impl LeaseView {
    pub fn new(now: Timestamp) -> LeaseView {
        LeaseView { exchange: Exchange::new(now), credit_ends_s: f64::INFINITY, ..LeaseView::default() }
    }

    /// Deducts a request of this cost from the lease.
    ///
    /// # Errors
    /// The lease is used up. The store may have more quota after this time.
    pub fn judge(&mut self, plan: &QuotaPlan, cost: f64, now: Timestamp) -> Result<(), Duration> {
        let now_s = self.exchange.seconds(now);
        self.turn(now_s);
        self.demand.add(cost, now_s, MEMORY_S);
        (self.asked, self.asked_s) = (self.asked + cost, now_s);
        if self.hand >= cost {
            self.hand -= cost;
            return Ok(());
        }
        if self.credit + cost <= plan.credit() {
            self.credit += cost;
            return Ok(());
        }
        let rest_s = self.ends_s.filter(|_| self.is_spent).map_or(PAUSE_S, |ends_s| ends_s - now_s);
        Err(Duration::from_secs_f64(rest_s.max(PAUSE_S)))
    }

    /// Returns the cost of a request to the lease.
    pub fn take_back(&mut self, cost: f64) {
        self.hand += cost;
    }

    /// How many more requests the lease allows.
    pub fn remaining(&self, plan: &QuotaPlan, now: Timestamp) -> u32 {
        let has_ended = self.ends_s.is_some_and(|ends_s| ends_s <= self.exchange.seconds(now));
        if has_ended {
            plan.credit() as u32
        } else {
            (self.hand + (plan.credit() - self.credit).max(0.0)) as u32
        }
    }

    /// The quota granted in the window, as of the last reply, minus what this node still holds, and the window's end.
    pub fn used(&self, plan: &QuotaPlan, now: Timestamp) -> Used {
        let now_s = self.exchange.seconds(now);
        let ends_s = self.ends_s.filter(|&ends_s| ends_s > now_s);
        let own = self.given.min(self.hand.floor());
        let requests = if ends_s.is_some() { self.given - own } else { 0.0 };
        let resets_at = ends_s.map(|ends_s| now + Duration::from_secs_f64(ends_s - now_s));
        Used { requests: requests as u32, limit: plan.limit as u32, resets_at }
    }

    pub fn hand(&self) -> f64 {
        self.hand
    }

    /// Whether a message is due.
    pub fn has_to_tell(&self, plan: &QuotaPlan, now: Timestamp) -> bool {
        let now_s = self.exchange.seconds(now);
        if self.exchange.is_waiting(now_s) || now_s - self.exchange.reported_s < PAUSE_S {
            return false;
        }
        let is_idle = self.hand > 0.0 && now_s - self.asked_s > IDLE_S;
        // A used-up quota stays used up until the window ends, or until another node returns a part of the quota.
        let is_patient = self.is_spent && now_s - self.exchange.reported_s < plan.period_s.max(SPENT_PAUSE_S);
        is_idle || self.asked > 0.0 && !is_patient && self.want(plan, now_s) > 0.0
    }

    pub fn message(&mut self, plan: &QuotaPlan, now: Timestamp) -> LeaseMessage {
        let now_s = self.exchange.seconds(now);
        self.turn(now_s);
        let is_idle = now_s - self.asked_s > IDLE_S;
        let want = if is_idle { -self.hand } else { self.want(plan, now_s) };
        self.hand += want.min(0.0);
        let (age_s, window_s) = match plan.calendar.map(|calendar| calendar.around(now).0) {
            Some(span) => {
                (Some(now.since(span.start).as_secs_f64()), span.end.since(span.start).as_secs_f64())
            }
            None => (None, plan.window_s),
        };
        let message = LeaseMessage {
            want,
            asked: self.asked,
            restore: self.ends_s.map(|ends_s| (self.given, ends_s - now_s)),
            limit: plan.limit,
            kept_back: plan.kept_back(),
            window_s,
            age_s,
            kept_s: window_s + Plan::KEPT_S,
        };
        self.asked = 0.0;
        self.exchange.sent(0.0, now_s);
        message
    }

    /// Notes that a message may not have reached the store. Any quota that it returned stays returned, because the
    /// message may have arrived.
    pub fn lost(&mut self, message: &LeaseMessage) {
        self.asked += message.asked;
        self.exchange.on_its_way = None;
    }

    /// Applies the answer to the last message.
    pub fn reply(&mut self, message: &LeaseMessage, reply: &LeaseReply, now: Timestamp) {
        self.turn(self.exchange.seconds(now));
        self.exchange.on_its_way = None;
        // The earliest possible end of the window: no part of the window's quota is used after that.
        let ends_s = self.exchange.reported_s + reply.rest_s;
        if ends_s <= self.exchange.seconds(now) {
            return;
        }
        self.ends_s = Some(ends_s);
        self.credit_ends_s = self.exchange.seconds(now) + reply.rest_s;
        self.hand += reply.granted.max(0.0);
        self.given = reply.given;
        self.is_spent = message.want > 0.0 && reply.granted < 1.0;
    }

    /// Whether there is nothing to report and nothing leased.
    pub fn is_settled(&self, now: Timestamp) -> bool {
        let has_ended = self.ends_s.is_none_or(|ends_s| ends_s <= self.exchange.seconds(now));
        self.asked == 0.0 && self.exchange.on_its_way.is_none() && (self.hand == 0.0 || has_ended)
    }

    /// Ends the lease and the credit of a window that has ended.
    fn turn(&mut self, now_s: f64) {
        if self.ends_s.is_some_and(|ends_s| ends_s <= now_s) {
            (self.hand, self.ends_s, self.is_spent, self.given) = (0.0, None, false, 0.0);
        }
        // A credit applies to one window of the store.
        if self.credit_ends_s <= now_s {
            (self.credit, self.credit_ends_s) = (0.0, f64::INFINITY);
        }
    }

    /// What fills a lease below [`LOW`] times the demand of a period and a round trip up to [`FULL`] times, or 0.
    fn want(&self, plan: &QuotaPlan, now_s: f64) -> f64 {
        let per_s = self.demand.sum(now_s, MEMORY_S) / MEMORY_S;
        let ahead = per_s * (plan.period_s + plan.round_trip_s);
        // A node with hardly any requests leases one or two at a time.
        if self.hand < LOW * ahead + 1.0 { (FULL * ahead + 2.0 - self.hand).ceil().max(0.0) } else { 0.0 }
    }
}

impl QuotaPlan {
    /// The number of requests that a node may admit on credit in each window.
    fn credit(&self) -> f64 {
        if f64::from(self.nodes) <= CREDIT * self.limit { 1.0 } else { 0.0 }
    }

    /// The amount that the store reserves for the credits of all nodes.
    pub fn kept_back(&self) -> f64 {
        self.credit() * f64::from(self.nodes)
    }
}

/// The record of a quota in the store. Times are in seconds on the store's own clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LeaseRecord {
    begun_s: f64,
    given: f64,
    demand: Decayed,
}

impl LeaseRecord {
    pub fn new(now_s: f64) -> LeaseRecord {
        LeaseRecord { begun_s: now_s, given: 0.0, demand: Decayed::default() }
    }

    /// Applies a message. If the record shows no grants in this window, the grants that the node knows of are restored,
    /// because the store may have lost its record.
    pub fn merge(&mut self, message: &LeaseMessage, now_s: f64) -> LeaseReply {
        let &LeaseMessage { want, asked, restore, limit, kept_back, window_s, age_s, .. } = message;
        // An edit may have lowered the limit.
        self.given = self.given.min(limit);
        match age_s.map(|age_s| now_s - age_s) {
            // The clocks of nodes differ slightly, but the next period always begins at least half a period later.
            Some(start_s) if self.given == 0.0 || start_s > self.begun_s + window_s / 2.0 => {
                (self.begun_s, self.given) = (start_s, 0.0);
            }
            None if now_s >= self.begun_s + window_s => (self.begun_s, self.given) = (now_s, 0.0),
            _ => {}
        }
        if let Some((given, rest_s)) = restore
            && self.given == 0.0
            && given > 0.0
            && (0.0..=window_s).contains(&rest_s)
        {
            (self.begun_s, self.given) = (now_s + rest_s - window_s, given.min(limit));
        }
        self.demand.add(asked, now_s, MEMORY_S);
        let left = (limit - kept_back - self.given).max(0.0);
        let mut granted = want.clamp(-self.given, left).floor();
        if granted > 0.0 && left < SCARCE * limit {
            let share = (asked / self.demand.sum(now_s, MEMORY_S).max(1e-9)).min(1.0);
            granted = granted.min((SCARCE_PART * left * share).max(1.0)).min(left).floor();
        }
        self.given += granted;
        let rest_s = age_s.map_or(self.begun_s + window_s - now_s, |age_s| window_s - age_s);
        LeaseReply { granted, given: self.given, rest_s }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);

    /// Two nodes share a thousand requests in a minute: each has one on credit.
    fn plan() -> QuotaPlan {
        let (period_s, round_trip_s) = (0.1, 0.1);
        QuotaPlan {
            limit: 1e3,
            window_s: 60.0,
            period_s,
            round_trip_s,
            nodes: 2,
            is_sliding: false,
            calendar: None,
            is_work: false,
        }
    }

    fn at(ms: u64) -> Timestamp {
        START + Duration::from_millis(ms)
    }

    fn granted(granted: f64) -> LeaseReply {
        LeaseReply { granted, given: 500.0, rest_s: 30.0 }
    }

    #[test]
    fn the_hand_and_the_credit_are_left_and_the_hand_is_used_first() {
        let mut view = LeaseView::new(START);
        assert_eq!(view.remaining(&plan(), START), 1, "the credit");
        let message = view.message(&plan(), START);
        view.reply(&message, &granted(2.0), START);
        for left in [2, 1, 0] {
            assert_eq!(view.remaining(&plan(), START), left + 1);
            view.judge(&plan(), 1.0, START).unwrap();
        }
        assert_eq!(view.remaining(&plan(), START), 0);
        assert!(view.judge(&plan(), 1.0, START).is_err());
    }

    /// A message after one second has the answer that the window ends thirty seconds later.
    #[test]
    fn a_window_ends_when_the_store_says_and_its_rest_is_restored() {
        let mut view = LeaseView::new(START);
        assert_eq!(view.used(&plan(), START), Used { requests: 0, limit: 1_000, resets_at: None });
        let message = view.message(&plan(), at(1_000));
        assert_eq!(message.restore, None);
        view.reply(&message, &granted(5.0), at(1_000));
        let used = Used { requests: 495, limit: 1_000, resets_at: Some(at(31_000)) };
        assert_eq!(view.used(&plan(), at(11_000)), used, "five are in the hand");
        assert_eq!(view.message(&plan(), at(11_000)).restore, Some((500.0, 20.0)));
        assert_eq!(view.used(&plan(), at(31_000)), Used { requests: 0, resets_at: None, ..used });
    }

    /// Ten requests in the last second are two in a period and a round trip of 0.1 s each. With a quarter more and two
    /// for chance, the hand is to hold 4.5.
    #[test]
    fn the_hand_is_filled_up_once_it_holds_less_than_half() {
        let mut view = LeaseView::new(START);
        assert!(view.judge(&plan(), 10.0, START).is_err());
        for (hand, wanted) in [(0.0, 5.0), (1.0, 4.0), (2.0, 0.0)] {
            let message = view.message(&plan(), START);
            assert_eq!((view.hand(), message.want), (hand, wanted));
            view.reply(&message, &granted(1.0), START);
        }
    }

    #[test]
    fn a_node_asks_again_for_what_is_spent_after_a_tenth_of_a_second() {
        let mut view = LeaseView::new(START);
        view.judge(&plan(), 1.0, START).unwrap();
        assert!(view.has_to_tell(&plan(), START));
        let message = view.message(&plan(), START);
        view.reply(&message, &granted(0.0), START);
        assert!(!view.has_to_tell(&plan(), at(100)), "nobody has asked for it");
        view.judge(&plan(), 1.0, at(50)).unwrap_err();
        assert!(!view.has_to_tell(&plan(), at(99)) && view.has_to_tell(&plan(), at(100)));
    }

    #[test]
    fn a_view_is_settled_once_all_is_reported_and_the_hand_is_empty_or_its_window_over() {
        let mut view = LeaseView::new(START);
        assert!(view.is_settled(START));
        view.judge(&plan(), 1.0, START).unwrap();
        assert!(!view.is_settled(START), "it has not been reported");
        let message = view.message(&plan(), START);
        assert!(!view.is_settled(START), "the answer may bring something");
        view.reply(&message, &granted(1.0), START);
        assert!(!view.is_settled(at(29_999)) && view.is_settled(at(30_000)));
        view.judge(&plan(), 1.0, at(1)).unwrap();
        let message = view.message(&plan(), at(1));
        view.reply(&message, &granted(0.0), at(1));
        assert!(view.is_settled(at(1)));
    }

    /// Of a thousand requests, the last hundred are scarce: one node that asks alone gets half of what is left.
    #[test]
    fn the_store_gives_half_of_what_is_scarce() {
        let mut record = LeaseRecord::new(100.0);
        let mut merge = |want, asked| {
            let (limit, window_s) = (1e3, 60.0);
            record.merge(&LeaseMessage { want, asked, limit, window_s, ..LeaseMessage::default() }, 100.0)
        };
        assert_eq!(merge(900.0, 0.0).granted, 900.0);
        assert_eq!(merge(40.0, 0.0).granted, 40.0, "a hundred are not yet scarce");
        assert_eq!(merge(40.0, 10.0), LeaseReply { granted: 30.0, given: 970.0, rest_s: 60.0 });
    }
}
