//! A node's view of one shared key.
//!
//! ```text
//! F: the TAT as this node sees it   R: rate   w: own demand   o: the others' demand, as of the last reply
//! between replies   F += (1 - b) * o * min(1, R / (w + o)) / R * time      b: 1/2 in debt or near the rate, else 0
//! a request         delay = F + 1/R - now
//!   foreseen        F += 1/R * (1 + b * (1 / share - 1))                    allowance accrues at this node's part of R
//!   unforeseen      F += 1/R / share                                        the others are assumed to be surprised too
//! a reply           F = TAT + half a round trip and half a period of the others' arrears + own unsent
//! ```
//! The allowance is the number of requests that the node expects to admit. Near the longest delay, it stops growing, so
//! that the nodes divide the rate in proportion to their demand. While the store is silent, each node takes a part of
//! the rate: its share of the demand in the last few seconds.
//!
//! The figures beside the constants are from a model of this law in virtual time, with three seeds: 35 nodes share
//! 2000/s, with a burst of 200, a period of 100 ms, and round trips of 1 and 50 ms. A *steady* load has 400 clients
//! that wait for each answer, spread evenly over all nodes or with four fifths of them on one node; or the load is
//! three times the rate, whatever the answers are. In a *move*, half of the clients change nodes at once. A *cold* key
//! is a key that no node knows, and requests for it arrive at ten times the rate. The error is that of the mean rate,
//! in percent; the *worst* second is the second with the most requests. `slowlane simulate --nodes` runs such loads.

mod tickets;

use std::mem;
use std::time::Duration;

use crate::base::Timestamp;
use crate::cluster::plan::{BAND_S, SLOW_MEMORY_S};
use crate::cluster::queue::Queue;
use crate::cluster::{Decayed, Exchange, Message, OnSilence, Plan, Reply};

/// The part of a request's effect on other nodes that is charged at once while there is no spare capacity. With 0, 1/2
/// and 1, the steady error is 0.44, 0.12 and 0.24 %; the worst second after a move is +7, +10 and +12 %; the fairness
/// (Jain) at 50 ms is 0.98, 0.97 and 0.95.
const CHARGED_AT_ONCE: f64 = 0.5;

/// If the demand is above this part of the rate, there is no spare capacity. This part is a little below 1, because the
/// estimate of the demand errs by 3 % ([`ROOM_BELOW`]). Values from 0.85 to 1.05 differ by less than the seeds do.
const BUSY: f64 = 0.95;

/// If a reply shows less debt than expected, this part of the difference is believed at once. With 0.3, 0.5, 0.7 and 1,
/// the worst second after a move is +20, +15, +10 and +6 %; the worst second of steady loads at 50 ms is +1.4, +1.4,
/// +1.9 and +4.0 %.
const BELIEVED: f64 = 0.7;

/// When the store answers again, the other nodes need this long to report what they owe: 250 ms for the longest pause
/// between attempts to connect, a period of 100 ms, and a round trip of 50 ms. Until then, a node accepts no lower
/// debt, and no larger share for the next outage. The value was measured with two seeds, outages of 60 and 20 s, and a
/// load of three times the rate. With 0, 0.4 and 0.8 s, the worst error in the first three seconds is +34, +9 and +1 %,
/// but the error over the following ten seconds is 5.6, 7.7 and 8.8 %.
const RETURN_S: f64 = 0.4;

/// The store's sums fade during a silence. For this many memories afterwards, a node accepts no lower demand of the
/// other nodes: after one memory, a sum that restarted at 0 holds 63 % of the demand.
const FADED: f64 = 1.0;

/// On average, the other nodes reported what they owe half a period ago: each node sends once per period, at its own
/// moment. With 0, 1/2 and 1, the worst second of a cold key at 50 ms is +80, +76 and +71 %; a law that refuses rejects
/// 0.03, 0.3 and 1.1 % of a load of 0.9 of the rate; the fairness at 50 ms is 0.94, 0.97 and 0.99.
const ARREARS: f64 = 0.5;

/// A node without demand keeps this part of an equal share, so that nothing is divided by zero. Values from 0.002 to
/// 0.1 make no difference.
const SHARE_MIN: f64 = 0.02;

/// An unforeseen request is also charged for the other nodes, as at most this many requests for each node. With 1, 4, 8
/// and no limit, the worst second after a move is +6, +10, +13 and +14 %; when 100 clients become 400 at 50 ms, the
/// worst second is +35, +23, +24 and +25 %.
const NODES_MAX: f64 = 4.0;

/// News may be sent this soon after the last message. With 2, 5, 20 and 50 ms, the worst second of a load that moves
/// each second is +7, +8, +11 and +16 %; the worst second of a cold key is +16, +17, +18 and +36 %.
const NEWS_AFTER_S: f64 = 0.005;

/// A node has news if it receives more than [`NEWS_FACTOR`] times as many requests as expected, plus this number, which
/// a node with few requests may receive by chance. With 0, 1, 3 and 6, a steady load takes 870, 450, 360 and 360
/// messages a second; the worst second after a move is +5, +6, +10 and +14 %.
const NEWS_REQUESTS: f64 = 3.0;

/// See [`NEWS_REQUESTS`]. With 1, 1.5, 2 and 3, a load that moves each second takes 230, 150, 130 and 120 messages a
/// second; the worst second of a cold key is +12, +17, +25 and +35 %.
const NEWS_FACTOR: f64 = 1.5;

/// While a key is in debt, a node sends at least one message about the key within this time. With 0.3, 1 and 3 s, 50
/// clients at 50/s take 124, 64 and 50 messages a second; the steady error is 0.6, 0.1 and 0.1 %. At 50 ms, the worst
/// second of a load that moves each second is +22, +22 and +26 %.
const STALE_S: f64 = 1.0;

/// A sum below this part of its final value is young: this node's demand is then scaled as the demand of all nodes is.
/// A sum reaches this part after 2.3 memories. Values of 0.8, 0.9 and 1 differ by less than the seeds do; 0.5 errs by
/// 0.3 % in steady load.
const WHOLE: f64 = 0.9;

/// While the demand is below this part of the rate, a law that refuses lets a node admit some requests beyond its
/// share, because arrivals vary by chance. Above this part, the nodes divide the rate in proportion to their demand.
/// The value is one standard deviation below 1: a decaying sum of 500 requests, as at 2000/s over a quarter of a
/// second, errs by √250. With 0.9, 0.97 and 1, 0.34, 0.30 and 0.26 % of a load of 0.9 of the rate are refused.
const ROOM_BELOW: f64 = 0.97;

/// The number of requests that [`ROOM_BELOW`] allows beyond the share: this many even for a node with hardly any
/// requests, plus three standard deviations of the chance arrivals between two replies, a sum exceeded once in 700
/// times. Values of 0, 2 and 4 requests, or of 1 to 6 deviations, make no difference. Without any room, 0.31 instead of
/// 0.30 % of a load of 0.9 of the rate are refused.
const ROOM_REQUESTS: f64 = 2.0;
const ROOM_DEVIATIONS: f64 = 3.0;

/// The maximum gain of the allowance within the band below the cap. In the middle of the band, the gain is 1, so every
/// node gets its part of the rate there. With 1, 2 and 3, at three times the rate and 50 ms, a law that refuses errs by
/// 2.8, 0.1 and 0.1 %; the worst second of a load that moves each second is +7.8, +7.5 and +8.5 %.
const GAIN_MAX: f64 = 2.0;

/// The smallest share while the store is silent, so that nothing is divided by zero: one ten-thousandth.
const SLOW_SHARE_MIN: f64 = 1e-4;

/// Less than any demand or share that matters. This number keeps divisions finite.
const TINY: f64 = 1e-9;

/// The lowest age to assume for a record, so that nothing is divided by zero: about the time of one answer.
const AGE_MIN_S: f64 = 1e-3;

/// A node's view of one key. Times are in seconds since the node's first request for the key.
#[derive(Clone, Debug, Default)]
pub struct View {
    exchange: Exchange,
    /// The TAT as this node sees it, and the moment up to which it has drifted.
    tat_s: f64,
    drifted_s: f64,
    demand: Decayed,
    slow_demand: Decayed,
    /// The numbers of requests admitted and received since the last message.
    unsent: f64,
    asked: f64,
    /// The number of requests received since the last attempt to send a message, and, as of that attempt, the slow
    /// demand that lost messages would have reported.
    asked_since_try: f64,
    lost_lately: f64,
    /// The number of requests that this node expects to admit.
    allowance: f64,
    /// The part of a request's effect on other nodes that is charged at once.
    at_once: f64,
    known: Option<Known>,
    /// This node's demand per second at the last message.
    reported_per_s: f64,
    /// When the first of the unanswered messages was sent.
    waiting_s: Option<f64>,
    /// When the store answered again after its last silence.
    returned_s: f64,
    /// The requests that this node holds. None while this node needs no queue.
    queue: Option<Box<Queue>>,
}

/// The content of the last reply.
#[derive(Clone, Copy, Debug)]
struct Known {
    others_per_s: f64,
    share: f64,
    /// This node's share of the demand in the last few seconds.
    slow_share: f64,
    tat_s: f64,
    half_trip_s: f64,
    /// The moment of the reply, and the moment of the record's birth.
    at_s: f64,
    born_s: f64,
}

/// The state of a key, for operators.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stats {
    /// The TAT minus now.
    pub ahead_s: f64,
    /// The demand of this node, and the demand of the other nodes as of the last reply.
    pub own_per_s: f64,
    pub others_per_s: f64,
    /// The part of the rate that this node takes. None before the first reply.
    pub share: Option<f64>,
    /// The time since the last reply.
    pub replied: Option<Duration>,
    /// How long the store has been silent. None if the store is not silent.
    pub silent: Option<Duration>,
}

impl View {
    /// A view of a key that this node has not seen before.
    pub fn new(plan: &Plan, now: Timestamp) -> View {
        View {
            exchange: Exchange::new(now),
            tat_s: -plan.burst_s(),
            // The first request does not count: the steady error is 0.1 % without that request, and 0.3 % with it.
            allowance: ((plan.burst * plan.equal_share()).floor() - 1.0).max(0.0),
            returned_s: f64::NEG_INFINITY,
            ..View::default()
        }
    }

    /// A view of a key after this node has admitted this many requests without reporting them.
    pub fn owing(plan: &Plan, unreported: f64, now: Timestamp) -> View {
        let view = View::new(plan, now);
        let allowance = (view.allowance - unreported).max(0.0);
        View { tat_s: view.tat_s + unreported * plan.slot_s(), unsent: unreported, allowance, ..view }
    }

    /// Judges a request of this cost, and returns its delay.
    ///
    /// # Errors
    /// The request is refused. It would pass after this time if no other request came.
    pub fn judge(&mut self, plan: &Plan, cost: f64, now: Timestamp) -> Result<Duration, Duration> {
        let now_s = self.receive(plan, cost, now);
        self.drift(plan, now_s);
        let slots_s = cost * plan.slot_s();
        if self.is_blind(plan, now_s) {
            return self.judge_alone(plan, slots_s, now_s);
        }
        let delay_s = self.tat_s + slots_s - now_s;
        let is_foreseen = self.allowance >= cost && self.known.is_some();
        let cap_s = if is_foreseen { plan.cap_s() } else { plan.cap_s() - BAND_S };
        if delay_s > cap_s {
            return Err(duration(delay_s - cap_s));
        }
        self.charge(plan, cost);
        Ok(if plan.refuses() { Duration::ZERO } else { duration(delay_s) })
    }

    /// Counts a received request. Returns its moment.
    fn receive(&mut self, plan: &Plan, cost: f64, now: Timestamp) -> f64 {
        let now_s = self.exchange.seconds(now);
        self.demand.add(cost, now_s, plan.memory_s());
        self.slow_demand.add(cost, now_s, SLOW_MEMORY_S);
        self.asked += cost;
        self.asked_since_try += cost;
        now_s
    }

    /// The demand per second of this node, and the demand per second of all nodes.
    fn demands(&self, plan: &Plan, now_s: f64) -> (f64, f64) {
        let own_per_s = self.demand.sum(now_s, plan.memory_s()) / plan.memory_s();
        (own_per_s, own_per_s + self.known.map_or(0.0, |known| known.others_per_s))
    }

    /// Charges an admitted request.
    fn charge(&mut self, plan: &Plan, cost: f64) {
        let slots_s = cost * plan.slot_s();
        let share = self.known.map_or(plan.equal_share(), |known| known.share);
        let others = (1.0 / share).min(NODES_MAX * f64::from(plan.nodes));
        if self.allowance >= cost {
            self.allowance -= cost;
            self.tat_s += slots_s * (1.0 + self.at_once * (others - 1.0));
        } else {
            self.tat_s += slots_s * others;
        }
        self.unsent += cost;
    }

    /// Judges a request while the store is silent: only this node's own share counts.
    fn judge_alone(&mut self, plan: &Plan, slots_s: f64, now_s: f64) -> Result<Duration, Duration> {
        if plan.on_silence == OnSilence::Closed {
            return Err(plan.silent_after);
        }
        let own_s = slots_s / self.share_alone(plan);
        let (delay_s, longest_s) = (self.tat_s + own_s - now_s, plan.max_delay.as_secs_f64());
        if delay_s > longest_s {
            return Err(duration(delay_s - longest_s));
        }
        self.tat_s += own_s;
        self.add_debt(plan, now_s);
        Ok(duration(delay_s))
    }

    /// Charges a request that was refused but passes anyway. The debt is bounded.
    pub fn go_into_debt(&mut self, plan: &Plan, cost: f64, now: Timestamp) {
        let now_s = self.exchange.seconds(now);
        let deepest_s = now_s + plan.cap_s() + Plan::AHEAD_MAX_S;
        if self.is_blind(plan, now_s) {
            let own_s = cost * plan.slot_s() / self.share_alone(plan);
            self.tat_s = (self.tat_s + own_s).min(deepest_s);
            return self.add_debt(plan, now_s);
        }
        self.charge(plan, cost);
        self.tat_s = self.tat_s.min(deepest_s);
    }

    /// Adds `more`, which may be negative, to the charge of an admitted request. While the store is silent, requests
    /// are charged against this node's own share.
    pub fn settle(&mut self, plan: &Plan, more: f64, now: Timestamp) {
        let now_s = self.exchange.seconds(now);
        if self.is_blind(plan, now_s) {
            self.tat_s += more * plan.slot_s() / self.share_alone(plan);
            return self.add_debt(plan, now_s);
        }
        self.take_back(plan, -more);
    }

    /// Takes back the charge for a request whose client disconnected before its turn.
    pub fn take_back(&mut self, plan: &Plan, cost: f64) {
        self.tat_s -= cost * plan.slot_s();
        self.unsent -= cost;
    }

    /// How many more requests would pass at once.
    pub fn remaining(&self, plan: &Plan, now: Timestamp) -> u32 {
        let tokens = (self.exchange.seconds(now) - self.tat_s) * plan.rate_per_s;
        let share = self.known.map_or(plan.equal_share(), |known| known.share);
        // As if `at_once` were 0: an expected request is charged once, and any other request also for the other nodes.
        let foreseen = tokens.min(self.allowance);
        (foreseen + (tokens - foreseen) * share).max(0.0) as u32
    }

    /// The state of the key, for operators.
    pub fn stats(mut self, plan: &Plan, now: Timestamp) -> Stats {
        let now_s = self.exchange.seconds(now);
        self.drift(plan, now_s);
        let is_blind = self.is_blind(plan, now_s);
        let share = self.known.map(|known| if is_blind { known.slow_share } else { known.share });
        Stats {
            ahead_s: self.tat_s.max(now_s - plan.burst_s()) - now_s,
            own_per_s: self.demand.sum(now_s, plan.memory_s()) / plan.memory_s(),
            others_per_s: self.known.map_or(0.0, |known| known.others_per_s),
            share,
            replied: self.known.map(|known| duration(now_s - known.at_s)),
            silent: self.waiting_s.filter(|_| is_blind).map(|since_s| duration(now_s - since_s)),
        }
    }

    /// The number of requests admitted but not yet reported to the store, as far as this node knows.
    pub fn debt(&self) -> f64 {
        let repeat = self.queue.as_ref().and_then(|queue| queue.repeat.as_ref());
        let repeat = repeat.map_or(0.0, |message| message.charge);
        (self.unsent + repeat + self.exchange.on_its_way.unwrap_or(0.0)).max(0.0)
    }

    /// Whether nothing is left to report, now or later.
    pub fn is_settled(&self, now: Timestamp) -> bool {
        self.unsent == 0.0
            && self.asked == 0.0
            && self.exchange.on_its_way.is_none()
            && self.queue.as_ref().is_none_or(|queue| queue.is_empty() && !queue.has_news())
            && self.tat_s <= self.exchange.seconds(now)
    }

    /// Whether a message about this key is due: once per period, or sooner with news; never while one is in flight.
    pub fn has_to_tell(&self, plan: &Plan, now: Timestamp) -> bool {
        let now_s = self.exchange.seconds(now);
        if self.exchange.is_waiting(now_s) {
            return false;
        }
        if let Some(queue) = &self.queue {
            return self.has_to_ask(plan, queue, now_s);
        }
        let since_s = now_s - self.exchange.reported_s;
        let is_changed = self.unsent != 0.0 || self.asked > 0.0;
        let is_stale = self.tat_s > now_s && since_s > STALE_S;
        // Whether this node has had no reply yet, or has received more requests than usual since the last message.
        let has_news =
            self.known.is_none() || self.asked > NEWS_REQUESTS + NEWS_FACTOR * self.reported_per_s * since_s;
        let is_urgent = has_news && self.waiting_s.is_none();
        let after_s = if is_urgent { NEWS_AFTER_S } else { plan.period_s() * self.exchange.spread() };
        is_stale || is_changed && since_s >= after_s
    }

    /// The message to the store. Its content counts as reported, unless the message is [lost](View::lost).
    pub fn message(&mut self, plan: &Plan, now: Timestamp) -> Message {
        let now_s = self.exchange.seconds(now);
        let own = self.demand.sum(now_s, plan.memory_s());
        if let Some(message) = self.repeated(plan, own, now_s) {
            return message;
        }
        if self.queue.is_some() && self.is_blind(plan, now_s) {
            self.add_debt(plan, now_s);
        }
        let half_trip_s = self.known.map_or(0.0, |known| known.half_trip_s);
        self.unsent -= self.queue.as_mut().map_or(0.0, |queue| queue.take_refund());
        let lost = Decayed::new(self.lost_lately, self.exchange.reported_s).sum(now_s, SLOW_MEMORY_S);
        let lately = lost + self.asked_since_try;
        let returns = self.is_blind(plan, now_s);
        let known = self.known.filter(|_| returns || !plan.is_work);
        let message = Message {
            charge: self.unsent,
            returns,
            asked: self.asked.min(own),
            asked_lately: lately.min(self.slow_demand.sum(now_s, SLOW_MEMORY_S)),
            // The message takes effect when it arrives, half a round trip from now. Other nodes may have taken back
            // charges since the last reply: the TAT of that reply would add those charges again.
            restore_s: known.map(|known| known.tat_s - now_s - known.half_trip_s),
            known_age_s: self.known.map_or(0.0, |known| now_s + known.half_trip_s - known.born_s),
            wants: self.queue.as_mut().map(|queue| queue.ask(now.as_nanos() / 1_000, half_trip_s, now_s)),
            own,
            ..Message::new(plan)
        };
        self.exchange.sent(self.unsent, now_s);
        (self.unsent, self.asked) = (0.0, 0.0);
        (self.asked_since_try, self.lost_lately) = (0.0, 0.0);
        self.reported_per_s = own / plan.memory_s();
        self.waiting_s.get_or_insert(now_s);
        message
    }

    /// Notes that a message did not reach the store. The message's requests stay unreported, and the next message is
    /// due after a period.
    pub fn lost(&mut self, message: &Message) {
        self.exchange.on_its_way = None;
        match &mut self.queue {
            Some(queue) if message.wants.is_some() => queue.repeat = Some(message.clone()),
            _ => self.put_back(message),
        }
    }

    /// Takes back a message that has had no effect.
    fn put_back(&mut self, message: &Message) {
        self.unsent += message.charge;
        self.asked += message.asked;
        self.lost_lately += message.asked_lately;
        if let (Some(queue), Some(wants)) = (&mut self.queue, &message.wants) {
            let unpaid = queue.lost(wants, self.exchange.reported_s);
            self.unsent += unpaid;
        }
    }

    /// Applies the answer to a message. The plan must hold the message's round trip.
    pub fn reply(&mut self, plan: &Plan, message: &Message, reply: &Reply, now: Timestamp) {
        let (now_s, half_trip_s) = (self.exchange.seconds(now), plan.round_trip.as_secs_f64() / 2.0);
        let is_return = self.is_blind(plan, now_s);
        if is_return {
            self.returned_s = now_s;
            self.queue.iter_mut().for_each(|queue| queue.own = 0);
        }
        (self.exchange.on_its_way, self.waiting_s) = (None, None);
        let (known, own_per_s) = self.learn(plan, message.own, reply, half_trip_s, now_s);
        if !is_return {
            self.drift(plan, now_s);
        }
        self.known = Some(known);
        if self.take_grant(plan, reply, &known, now_s) {
            return;
        }
        let feared_s = self.tat_s;
        self.drifted_s = now_s;
        // Nodes with few requests rarely have something to report.
        let late = (known.others_per_s * plan.period_s() * plan.equal_share()).min(1.0);
        let arrears_s = half_trip_s + ARREARS * plan.period_s() * late;
        let known_s = known.tat_s.max(now_s - half_trip_s - plan.burst_s())
            + self.others_speed(plan, own_per_s) * arrears_s;
        self.tat_s = known_s.max(now_s - plan.burst_s()) + self.unsent * plan.slot_s();
        if feared_s > self.tat_s.max(now_s) {
            let believed = if now_s - self.returned_s < RETURN_S { 0.0 } else { BELIEVED };
            self.tat_s += (1.0 - believed) * (feared_s - self.tat_s);
        }
        let tokens = (now_s - self.tat_s).max(0.0) * plan.rate_per_s;
        self.allowance = self.allowance.max(1.0 + tokens * known.share);
        if plan.refuses() && own_per_s + known.others_per_s < ROOM_BELOW * plan.rate_per_s {
            self.allowance = self.allowance.max(room(plan, own_per_s, plan.round_trip));
        }
    }

    /// The content of a reply, and this node's demand per second. `own` is the demand when the message was sent.
    fn learn(&self, plan: &Plan, own: f64, reply: &Reply, half_trip_s: f64, now_s: f64) -> (Known, f64) {
        let memory_s = plan.memory_s();
        // A young sum is not complete yet.
        let whole = 1.0 - (-reply.age_s.max(AGE_MIN_S) / memory_s).exp();
        let all_per_s = reply.demand / memory_s / whole;
        let own_per_s = own / memory_s / if whole < WHOLE { whole } else { 1.0 };
        let mut others_per_s = (all_per_s - own_per_s).max(0.0);
        if now_s - self.returned_s < FADED * memory_s {
            others_per_s = others_per_s.max(self.known.map_or(0.0, |known| known.others_per_s));
        }
        let share = own_per_s.max(TINY) / (own_per_s + others_per_s).max(TINY);
        let slow = self.slow_demand.sum(now_s, SLOW_MEMORY_S);
        // A genuine store never answers with more than this, but another program may have written the record.
        let ahead_s = reply.ahead_s.min(plan.cap_s() + Plan::AHEAD_MAX_S);
        let tat_s = now_s - half_trip_s + ahead_s;
        let mut slow_share = (slow / reply.slow_demand.max(slow).max(TINY)).clamp(SLOW_SHARE_MIN, 1.0);
        if now_s - self.returned_s < RETURN_S {
            slow_share = slow_share.min(self.known.map_or(1.0, |known| known.slow_share));
        }
        let known = Known {
            others_per_s,
            share: share.clamp(SHARE_MIN * plan.equal_share(), 1.0),
            slow_share,
            tat_s,
            half_trip_s,
            at_s: now_s,
            born_s: now_s - half_trip_s - reply.age_s,
        };
        (known, own_per_s)
    }

    /// Advances the TAT by the other nodes' expected requests, unless the store is silent, and lets the allowance grow.
    fn drift(&mut self, plan: &Plan, now_s: f64) {
        let time_s = (now_s - self.drifted_s).max(0.0);
        let (own_per_s, all_per_s) = self.demands(plan, now_s);
        let is_blind = self.is_blind(plan, now_s);
        if is_blind {
            self.add_debt(plan, now_s);
            self.at_once = 0.0;
            if self.queue.as_mut().is_some_and(|queue| !mem::replace(&mut queue.is_alone, true)) {
                self.fall_silent(plan, now_s);
            }
        } else if self.queue.is_some() {
            let room_s = (now_s + plan.cap_s() - self.tat_s).max(0.0);
            self.expect((self.others_speed(plan, own_per_s) * time_s).min(room_s));
        } else {
            let is_busy = self.tat_s > now_s || all_per_s > BUSY * plan.rate_per_s;
            self.at_once = if self.known.is_some() && is_busy { CHARGED_AT_ONCE } else { 0.0 };
            self.tat_s += (1.0 - self.at_once) * self.others_speed(plan, own_per_s) * time_s;
        }
        self.drifted_s = self.drifted_s.max(now_s);
        // With many nodes, a slot at this node's own share may be longer than the burst.
        let burst_s = if is_blind { plan.burst_s().max(self.own_slot_s(plan)) } else { plan.burst_s() };
        self.tat_s = self.tat_s.max(now_s - burst_s);

        let tokens = (now_s - self.tat_s).max(0.0) * plan.rate_per_s;
        let share = match self.known {
            _ if is_blind => self.share_alone(plan),
            Some(known) => known.share,
            None => plan.equal_share(),
        };
        let per_s = match is_blind {
            true => plan.rate_per_s * share,
            false => own_per_s * (plan.rate_per_s / all_per_s.max(TINY)).min(1.0),
        };
        let least = match plan.refuses() && all_per_s < ROOM_BELOW * plan.rate_per_s {
            true => room(plan, own_per_s, Duration::ZERO),
            false => 1.0,
        };
        let gain = if self.queue.is_some() { 1.0 } else { self.gain(plan, now_s) };
        let grown = self.allowance + time_s * gain * per_s;
        self.allowance = grown.min(least + tokens * share);
    }

    /// The factor by which the allowance grows: 1, but falling from [`GAIN_MAX`] to 0 within the band below the cap.
    fn gain(&self, plan: &Plan, now_s: f64) -> f64 {
        let room_s = now_s + plan.cap_s() - self.tat_s;
        if room_s > BAND_S { 1.0 } else { (GAIN_MAX * room_s / BAND_S).clamp(0.0, GAIN_MAX) }
    }

    /// How many seconds the other nodes add to the TAT in one second.
    fn others_speed(&self, plan: &Plan, own_per_s: f64) -> f64 {
        let others_per_s = self.known.map_or(0.0, |known| known.others_per_s);
        let all_per_s = (own_per_s + others_per_s).max(TINY);
        others_per_s * (plan.rate_per_s / all_per_s).min(1.0) * plan.slot_s()
    }

    /// Whether the store is silent.
    fn is_blind(&self, plan: &Plan, now_s: f64) -> bool {
        self.waiting_s.is_some_and(|since_s| now_s - since_s > plan.silent_after.as_secs_f64())
    }

    /// The part of the rate that this node takes while the store is silent.
    fn share_alone(&self, plan: &Plan) -> f64 {
        match plan.on_silence {
            OnSilence::Open => 1.0,
            _ => self.known.map_or(plan.equal_share(), |known| known.slow_share),
        }
    }

    /// While the store is silent, a node owes only requests that it has promised but not yet admitted. Admitted
    /// requests were paced at its own share, and all shares add up to the rate, unless `OnSilence::Open` accepts more.
    fn add_debt(&mut self, plan: &Plan, now_s: f64) {
        let expected = match &self.queue {
            Some(queue) => queue.own as f64,
            None => (self.tat_s - now_s).max(0.0) * plan.rate_per_s * self.share_alone(plan),
        };
        self.unsent = (expected - self.exchange.on_its_way.unwrap_or(0.0)).max(0.0);
    }
}

/// The number of requests beyond the mean that may arrive by chance within a period plus this round trip.
fn room(plan: &Plan, own_per_s: f64, round_trip: Duration) -> f64 {
    ROOM_REQUESTS + ROOM_DEVIATIONS * (own_per_s * (plan.period_s() + round_trip.as_secs_f64())).sqrt()
}

/// A delay in whole microseconds: anything smaller is a rounding error.
fn duration(seconds: f64) -> Duration {
    Duration::from_micros((seconds * 1e6) as u64)
}
