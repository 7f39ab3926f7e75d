//! Windows whose requests all nodes count together: the count in the store's last reply, and this node's own since.
//!
//! ```text
//! count     all nodes' requests of this window, as of the last reply       unsent: those of this node since then
//! over      of the window before: count + its own over - limit, at least 0, at most the limit
//! estimate  fixed-window: over + count + unsent
//!           sliding-window: count + unsent + the part of the window before that is left
//! estimate + cost > limit: refused             else unsent += cost
//! ```
//! Windows begin at multiples of their length, on the store's clock. The method is Adobe's ("Distributed Rate
//! Limiting"): messages are sent once per period, and more often near the limit. Under `fixed-window`, requests that
//! all nodes together have admitted beyond the limit are deducted from the next window.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::Timestamp;
use crate::cluster::{Exchange, Plan, QuotaPlan, UNREPORTED};
use crate::law::Used;

/// Above this part of the limit, messages are sent as soon as possible. The value was measured with 35 nodes, 6000/s,
/// and a window of 1 s with a limit of 2000. With 0.5, with 0.8 and without such a threshold, the runs took 390, 200
/// and 170 messages a second; with four fifths of the load on one node, the worst window was +2.8, +1.8 and +7.9 %.
const NEAR: f64 = 0.8;

/// The shortest time between two messages. In the same runs with 5, 10, 20 and 50 ms, the worst window was +2.2, +1.8,
/// +3.3 and +3.1 %.
const PAUSE_S: f64 = 0.01;

/// A node's view of the counts of one key. Times are in seconds since the node's first request for the key.
#[derive(Clone, Debug, Default)]
pub struct CountView {
    exchange: Exchange,
    /// The store's counts as of the last reply, plus the charge of the message in flight. `age_s` is not used.
    counts: CountReply,
    /// When this window began. None before the first reply.
    began_s: Option<f64>,
    unsent: f64,
}

/// A node's report about a window, with the numbers of its SLO.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CountMessage {
    /// The number of requests admitted since the last message.
    pub charge: f64,
    /// The window as the node knows it, in case the store has lost it. None before the first reply, or if the SLO's
    /// counts may be taken back.
    pub restore: Option<CountReply>,
    pub limit: f64,
    pub window_s: f64,
    /// The lifetime of the record.
    pub kept_s: f64,
}

/// The store's answer: the counts of a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CountReply {
    /// The counts of this window and the previous one.
    pub current: f64,
    pub before: f64,
    /// The number of requests deducted from this window, because the previous window exceeded its limit.
    pub over: f64,
    /// The age of this window.
    pub age_s: f64,
}

impl CountView {
    pub fn new(now: Timestamp) -> CountView {
        CountView { exchange: Exchange::new(now), ..CountView::default() }
    }

    /// A node's view of a key after the node has admitted this many requests without reporting them.
    pub fn owing(unreported: f64, now: Timestamp) -> CountView {
        CountView { unsent: unreported, ..CountView::new(now) }
    }

    /// Counts a request of this cost.
    ///
    /// # Errors
    /// The window has no room for this request. There is room after this time if no other request comes.
    pub fn judge(&mut self, plan: &QuotaPlan, cost: f64, now: Timestamp) -> Result<(), Duration> {
        let now_s = self.exchange.seconds(now);
        self.turn(plan, now_s);
        // Before the first reply, a node takes an equal part of the limit.
        let limit =
            if self.began_s.is_some() { plan.limit } else { plan.limit / f64::from(plan.nodes.max(1)) };
        if self.estimate(plan, now_s) + cost > limit {
            return Err(Duration::from_secs_f64(self.wait_s(plan, cost, now_s)));
        }
        self.unsent += cost;
        Ok(())
    }

    pub fn take_back(&mut self, cost: f64) {
        self.unsent -= cost;
    }

    /// Adds `more` to the charge of an admitted request. A negative amount applies only if the charge belongs to this
    /// window.
    pub fn settle(&mut self, more: f64, due: Timestamp) {
        let is_earlier = self.began_s.is_some_and(|began_s| self.exchange.seconds(due) < began_s);
        self.unsent += if is_earlier { more.max(0.0) } else { more };
    }

    /// How many more requests fit into the window.
    pub fn remaining(&self, plan: &QuotaPlan, now: Timestamp) -> u32 {
        let mut view = self.clone();
        let now_s = self.exchange.seconds(now);
        view.turn(plan, now_s);
        (plan.limit - view.estimate(plan, now_s)).max(0.0) as u32
    }

    /// How many requests of all nodes count against the limit, as far as this node knows, and the moment at which the
    /// last of these requests stops counting.
    pub fn used(&self, plan: &QuotaPlan, now: Timestamp) -> Used {
        let (mut view, now_s) = (self.clone(), self.exchange.seconds(now));
        view.turn(plan, now_s);
        let windows = if plan.is_sliding { 2.0 } else { 1.0 };
        let left_s = view.began_s.map(|began_s| (began_s + windows * plan.window_s - now_s).max(0.0));
        let requests = view.estimate(plan, now_s).max(0.0).ceil() as u32;
        let resets_at = left_s.filter(|_| requests > 0).map(|left_s| now + Duration::from_secs_f64(left_s));
        Used { requests, limit: plan.limit as u32, resets_at }
    }

    /// The number of requests admitted but not yet reported to the store, as far as this node knows.
    pub fn debt(&self) -> f64 {
        (self.unsent + self.exchange.on_its_way.unwrap_or(0.0)).max(0.0)
    }

    pub fn has_to_tell(&self, plan: &QuotaPlan, now: Timestamp) -> bool {
        let now_s = self.exchange.seconds(now);
        let is_near = self.began_s.is_none() || self.estimate(plan, now_s) > NEAR * plan.limit;
        let pause_s = if is_near { PAUSE_S } else { plan.period_s };
        self.unsent != 0.0 && !self.exchange.is_waiting(now_s) && now_s - self.exchange.reported_s >= pause_s
    }

    pub fn message(&mut self, plan: &QuotaPlan, now: Timestamp) -> CountMessage {
        let now_s = self.exchange.seconds(now);
        self.turn(plan, now_s);
        // Other nodes may have taken back charges since the last reply: restoring these counts would undo that.
        let began_s = self.began_s.filter(|_| !plan.is_work);
        let restore = began_s.map(|began_s| CountReply { age_s: now_s - began_s, ..self.counts });
        let &QuotaPlan { limit, window_s, .. } = plan;
        let kept_s = 2.0 * window_s + Plan::KEPT_S;
        let message = CountMessage { charge: self.unsent, restore, limit, window_s, kept_s };
        // Until the reply comes, the charge counts here.
        self.counts.current += self.unsent;
        self.exchange.sent(self.unsent, now_s);
        self.unsent = 0.0;
        message
    }

    /// Notes that a message did not reach the store. The message's requests stay unreported.
    pub fn lost(&mut self, message: &CountMessage) {
        self.unsent += message.charge;
        self.counts.current = (self.counts.current - message.charge).max(0.0);
        self.exchange.on_its_way = None;
    }

    /// Applies the answer to the last message.
    pub fn reply(&mut self, reply: &CountReply, now: Timestamp) {
        let now_s = self.exchange.seconds(now);
        let trip_s = now_s - self.exchange.reported_s;
        self.counts = *reply;
        self.began_s = Some(now_s - trip_s / 2.0 - reply.age_s);
        self.exchange.on_its_way = None;
    }

    pub fn is_settled(&self) -> bool {
        self.unsent == 0.0 && self.exchange.on_its_way.is_none()
    }

    /// The number of requests that count against the limit.
    fn estimate(&self, plan: &QuotaPlan, now_s: f64) -> f64 {
        let age_s = self.began_s.map_or(0.0, |began_s| (now_s - began_s).clamp(0.0, plan.window_s));
        let of_before = match plan.is_sliding {
            true => self.counts.before * (1.0 - age_s / plan.window_s),
            false => self.counts.over,
        };
        of_before + self.counts.current + self.unsent
    }

    /// The time until there is room for a request that would fit into an empty window: as `sliding-window` calculates
    /// it on one node, or the rest of a fixed window.
    fn wait_s(&self, plan: &QuotaPlan, cost: f64, now_s: f64) -> f64 {
        let window_s = plan.window_s;
        let Some(began_s) = self.began_s.filter(|_| plan.is_sliding) else {
            let rest_s = self.began_s.map_or(window_s, |began_s| began_s + window_s - now_s);
            return rest_s.clamp(0.0, window_s);
        };
        // The age of a window at which only `room` of the `past` requests of the previous window still count.
        let faded_at = |past: f64, room: f64| window_s * (1.0 - room / past.max(1.0)).clamp(0.0, 1.0);
        let (age_s, counted) = ((now_s - began_s).clamp(0.0, window_s), self.counts.current + self.unsent);
        match plan.limit - counted - cost {
            room if room >= 0.0 => (faded_at(self.counts.before, room) - age_s).max(0.0),
            _ => window_s - age_s + faded_at(counted, plan.limit - cost),
        }
    }

    /// Advances to the window of this moment.
    fn turn(&mut self, plan: &QuotaPlan, now_s: f64) {
        let Some(began_s) = self.began_s else { return };
        let windows = ((now_s - began_s) / plan.window_s).floor();
        if windows >= 1.0 {
            self.counts.turn(plan.limit, windows);
            self.began_s = Some(began_s + windows * plan.window_s);
        }
    }
}

impl CountReply {
    /// Whether the counts leave no room for requests that nodes admit unreported.
    pub(super) fn is_crowded(&self, plan: &QuotaPlan) -> bool {
        self.current.max(self.before) > (1.0 - UNREPORTED) * plan.limit
    }

    /// Advances by this many windows.
    fn turn(&mut self, limit: f64, windows: f64) {
        let CountReply { current, over: deducted, .. } = *self;
        let (before, over) =
            if windows == 1.0 { (current, over(limit, current, deducted)) } else { (0.0, 0.0) };
        *self = CountReply { before, over, ..CountReply::default() };
    }
}

/// The amount that this count and this deduction of a window leave to deduct from the next window.
fn over(limit: f64, count: f64, over: f64) -> f64 {
    (count + over - limit).clamp(0.0, limit)
}

/// The record of a window in the store. Times are in seconds, on the store's own clock.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CountRecord {
    number: f64,
    counts: CountReply,
}

impl CountRecord {
    /// Applies a message. The higher of two counts wins, so the nodes restore counts that the store has lost.
    pub fn merge(&mut self, message: &CountMessage, now_s: f64) -> CountReply {
        let &CountMessage { charge, restore, limit, window_s, .. } = message;
        let number = (now_s / window_s).floor();
        let age_s = now_s - number * window_s;
        if number != self.number {
            self.counts.turn(limit, number - self.number);
            self.number = number;
        }
        let counts = &mut self.counts;
        if let Some(restore) = restore {
            // A node that is one window behind reports the previous window.
            if restore.age_s <= age_s + window_s / 2.0 {
                counts.current = counts.current.max(restore.current);
                counts.before = counts.before.max(restore.before);
                counts.over = counts.over.max(restore.over);
            } else {
                counts.before = counts.before.max(restore.current);
                counts.over = counts.over.max(over(limit, restore.current, restore.over));
            }
        }
        counts.current = (counts.current + charge).max(0.0);
        CountReply { age_s, ..*counts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);

    /// Two nodes share ten requests in a second.
    fn plan() -> QuotaPlan {
        let (period_s, round_trip_s) = (0.1, 0.0);
        QuotaPlan {
            limit: 10.0,
            window_s: 1.0,
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

    /// A window of the age of half a second, with fourteen requests of all nodes: four over the limit.
    #[test]
    fn the_next_window_pays_for_what_was_over_and_the_one_after_it_does_not() {
        let mut view = CountView::new(START);
        view.message(&plan(), START);
        view.reply(&CountReply { current: 14.0, age_s: 0.5, ..CountReply::default() }, START);
        let used = |ms| view.used(&plan(), at(ms));
        let left = |ms| view.remaining(&plan(), at(ms));
        assert_eq!(used(0), Used { requests: 14, limit: 10, resets_at: Some(at(500)) });
        assert_eq!([left(499), left(500), left(1_499), left(1_500)], [0, 6, 6, 10]);
        assert_eq!(used(500), Used { requests: 4, limit: 10, resets_at: Some(at(1_500)) });
        assert_eq!(used(1_500), Used { requests: 0, limit: 10, resets_at: None }, "nothing is to be reset");
    }

    /// If clients waited for the end of the window, all would come at once, and the rest of the time would be lost.
    #[test]
    fn a_refused_request_of_a_sliding_window_has_room_after_its_wait() {
        let plan = QuotaPlan { is_sliding: true, ..plan() };
        for (before, current, age_s) in
            [(10.0, 0.0, 0.1), (10.0, 5.0, 0.2), (4.0, 10.0, 0.5), (0.0, 14.0, 0.9)]
        {
            for cost in [1.0, 5.0, 10.0] {
                let mut view = CountView::new(START);
                view.message(&plan, START);
                let reply = CountReply { current, before, age_s, ..CountReply::default() };
                view.reply(&reply, START);
                let ask = |wait: Duration| view.clone().judge(&plan, cost, START + wait);
                let Err(wait) = ask(Duration::ZERO) else { continue };
                let (early, late) = (Duration::from_millis(2), Duration::from_micros(1));
                assert!(ask(wait.saturating_sub(early)).is_err(), "{reply:?}, {cost}: {wait:?} is too long");
                assert_eq!(ask(wait + late), Ok(()), "{reply:?}, {cost}: {wait:?} is too short");
            }
        }
    }

    #[test]
    fn requests_count_once_while_they_are_under_way_and_once_after_they_were_lost() {
        let mut view = CountView::new(START);
        assert!(view.is_settled());
        view.judge(&plan(), 3.0, START).unwrap();
        assert!(!view.is_settled(), "they are to be reported");
        for _ in 0..2 {
            let message = view.message(&plan(), START);
            assert_eq!((message.charge, view.debt(), view.remaining(&plan(), START)), (3.0, 3.0, 7));
            assert!(!view.is_settled(), "they may be lost");
            view.lost(&message);
            assert_eq!((view.debt(), view.remaining(&plan(), START)), (3.0, 7));
        }
        view.message(&plan(), START);
        view.reply(&CountReply { current: 3.0, ..CountReply::default() }, START);
        assert!(view.is_settled());
        assert_eq!((view.debt(), view.remaining(&plan(), START)), (0.0, 7));
    }
}
