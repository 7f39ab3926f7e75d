//! A node's view of one key that it shares with others.
//!
//! ```text
//! F: the TAT as this node sees it   R: rate   w: own demand   o: the others' demand, as of the last reply
//! between replies   F += (1 - b) * o * min(1, R / (w + o)) / R * time      b: 1/2 in debt or near the rate, else 0
//! a request         delay = F + 1/R - now
//!   foreseen        F += 1/R * (1 + b * (1 / share - 1))                    an own allowance accrues at the own part of R
//!   unforeseen      F += 1/R / share                                        the others are taken to be surprised alike
//! a reply           F = TAT + half a round trip and half a period of the others' arrears + own unsent
//! ```
//! The allowance is what the node expects to let through. Near the longest delay it shrinks, so that the nodes divide
//! the rate by their demand. A store that is silent leaves each node its share of the last seconds.

use std::time::Duration;

use crate::base::time::Timestamp;
use crate::cluster::decayed::Decayed;
use crate::cluster::plan::{Plan, SLOW_MEMORY_S};
use crate::cluster::record::{Message, Reply};
use crate::cluster::settings::OnSilence;

/// The part of a request's effect on the others that is charged at once, while there is no room to spare.
const CHARGED_AT_ONCE: f64 = 0.5;

/// Above this part of the rate there is no room to spare.
const BUSY: f64 = 0.95;

/// Of a reply that shows less debt than was feared, this part is believed at once.
const BELIEVED: f64 = 0.7;

/// Once the store answers again, the others need this time to tell what they owe. Until then no lower debt is believed,
/// and no larger share for the next silence.
const RETURN_S: f64 = 0.4;

/// The store's sums have faded meanwhile. For so many of their memories, no lower demand of the others is believed.
const FADED: f64 = 1.0;

/// The others have sent what they owe half a period ago, on average.
const ARREARS: f64 = 0.5;

/// A node without demand keeps this part of an equal share.
const SHARE_MIN: f64 = 0.02;

/// The most by which an unforeseen request counts for the others, in nodes.
const NODES_MAX: f64 = 4.0;

/// News may be told after this time already.
const NEWS_AFTER_S: f64 = 0.005;

/// In debt, a node asks at least this often.
const STALE_S: f64 = 1.0;

/// A message without an answer for so long is lost.
const LOST_AFTER_S: f64 = 1.0;

/// A node's view of one key. Times are seconds since its first request.
#[derive(Clone, Debug)]
pub struct View {
    origin: Timestamp,
    /// The TAT as this node sees it, and the moment up to which it has drifted.
    tat_s: f64,
    drifted_s: f64,
    demand: Decayed,
    slow_demand: Decayed,
    /// Let through, and asked, since the last message.
    unsent: f64,
    asked: f64,
    /// Asked since the last message, and what lost ones would have told of the slow demand, as of the moment of the last.
    asked_since_try: f64,
    lost_lately: f64,
    /// Requests that this node expects to let through.
    allowance: f64,
    /// The part of a request that is charged at once, for the others.
    at_once: f64,
    known: Option<Known>,
    sent: Option<Sent>,
    /// The moment of the last message, and the own demand per second then.
    told_s: f64,
    told_per_s: f64,
    /// The first message without an answer.
    waiting_s: Option<f64>,
    /// When the store answered again after its last silence.
    returned_s: f64,
}

/// What the last reply told.
#[derive(Clone, Copy, Debug)]
struct Known {
    others_per_s: f64,
    share: f64,
    /// The share of the last seconds.
    slow_share: f64,
    tat_s: f64,
    half_trip_s: f64,
    /// The moment of the reply, and that of the record's birth.
    at_s: f64,
    born_s: f64,
}

/// A view as operators see it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Glance {
    /// The TAT less now.
    pub ahead_s: f64,
    /// The demand of this node, and of the others as of the last reply.
    pub own_per_s: f64,
    pub others_per_s: f64,
    /// The part of the rate that this node takes. None before the first reply.
    pub share: Option<f64>,
    /// The time since the last reply.
    pub replied: Option<Duration>,
    /// The time that the store has been silent, if it is.
    pub silent: Option<Duration>,
}

/// The message that is on its way.
#[derive(Clone, Copy, Debug)]
struct Sent {
    at_s: f64,
    charge: f64,
}

impl View {
    /// A view of a key that this node has not seen before.
    pub fn new(plan: &Plan, now: Timestamp) -> View {
        View {
            origin: now,
            tat_s: -plan.burst_s(),
            drifted_s: 0.0,
            demand: Decayed::default(),
            slow_demand: Decayed::default(),
            unsent: 0.0,
            asked: 0.0,
            asked_since_try: 0.0,
            lost_lately: 0.0,
            allowance: ((plan.burst * plan.equal_share()).floor() - 1.0).max(0.0),
            at_once: 0.0,
            known: None,
            sent: None,
            told_s: f64::NEG_INFINITY,
            told_per_s: 0.0,
            waiting_s: None,
            returned_s: f64::NEG_INFINITY,
        }
    }

    /// A view of a key of which this node has let through so many requests untold.
    pub fn owing(plan: &Plan, untold: f64, now: Timestamp) -> View {
        let view = View::new(plan, now);
        let allowance = (view.allowance - untold).max(0.0);
        View { tat_s: view.tat_s + untold * plan.slot_s(), unsent: untold, allowance, ..view }
    }

    /// The delay of a request of this cost.
    ///
    /// # Errors
    /// It is refused. The same request would get through after this time, if no other asked meanwhile.
    pub fn judge(&mut self, plan: &Plan, cost: f64, now: Timestamp) -> Result<Duration, Duration> {
        let now_s = self.seconds(now);
        self.demand.add(cost, now_s, plan.memory_s());
        self.slow_demand.add(cost, now_s, SLOW_MEMORY_S);
        self.asked += cost;
        self.asked_since_try += cost;
        self.drift(plan, now_s);
        let slots_s = cost * plan.slot_s();
        if self.is_blind(plan, now_s) {
            return self.judge_alone(plan, slots_s, now_s);
        }
        let delay_s = self.tat_s + slots_s - now_s;
        let is_foreseen = self.allowance >= cost && self.known.is_some();
        let cap_s = if is_foreseen { plan.cap_s() } else { plan.cap_s() - plan.band_s() };
        if delay_s > cap_s {
            return Err(duration(delay_s - cap_s));
        }
        self.charge(plan, cost);
        Ok(if plan.refuses() { Duration::ZERO } else { duration(delay_s) })
    }

    /// Charges a request that is let through.
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

    /// A request while the store is silent: it goes at the pace of the own share.
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
        self.owe(plan, now_s);
        Ok(duration(delay_s))
    }

    /// Charges a request that was refused and passes all the same. The debt is bounded.
    pub fn overdraw(&mut self, plan: &Plan, cost: f64, now: Timestamp) {
        let now_s = self.seconds(now);
        let deepest_s = now_s + plan.cap_s() + Plan::AHEAD_MAX_S;
        if self.is_blind(plan, now_s) {
            let own_s = cost * plan.slot_s() / self.share_alone(plan);
            self.tat_s = (self.tat_s + own_s).min(deepest_s);
            return self.owe(plan, now_s);
        }
        self.charge(plan, cost);
        self.tat_s = self.tat_s.min(deepest_s);
    }

    /// Takes back a request whose client left before its turn.
    pub fn take_back(&mut self, plan: &Plan, cost: f64) {
        self.tat_s -= cost * plan.slot_s();
        self.unsent -= cost;
    }

    /// How many more requests would pass at once.
    pub fn remaining(&self, plan: &Plan, now: Timestamp) -> u32 {
        let tokens = (self.seconds(now) - self.tat_s) * plan.rate_per_s;
        let share = self.known.map_or(plan.equal_share(), |known| known.share);
        // Those that are foreseen count once, any further one counts for the others, too.
        let foreseen = tokens.min(self.allowance);
        (foreseen + (tokens - foreseen) * share).max(0.0) as u32
    }

    /// The TAT less now: how long a request of no cost would wait. Negative: the time of the tokens that are left.
    fn ahead_s(&self, now: Timestamp) -> f64 {
        self.tat_s - self.seconds(now)
    }

    /// The view as operators see it.
    pub fn glance(mut self, plan: &Plan, now: Timestamp) -> Glance {
        let now_s = self.seconds(now);
        self.drift(plan, now_s);
        let is_blind = self.is_blind(plan, now_s);
        let share = self.known.map(|known| if is_blind { known.slow_share } else { known.share });
        Glance {
            ahead_s: self.tat_s.max(now_s - plan.burst_s()) - now_s,
            own_per_s: self.demand.sum(now_s, plan.memory_s()) / plan.memory_s(),
            others_per_s: self.known.map_or(0.0, |known| known.others_per_s),
            share,
            replied: self.known.map(|known| duration(now_s - known.at_s)),
            silent: self.waiting_s.filter(|_| is_blind).map(|since_s| duration(now_s - since_s)),
        }
    }

    /// Requests let through that the store does not know of, as far as this node knows.
    pub fn owed(&self) -> f64 {
        (self.unsent + self.sent.map_or(0.0, |sent| sent.charge)).max(0.0)
    }

    /// Whether there is anything left to tell, now or later.
    pub fn is_settled(&self, now: Timestamp) -> bool {
        self.unsent == 0.0 && self.asked == 0.0 && self.sent.is_none() && self.ahead_s(now) <= 0.0
    }

    /// Whether a message would be more than the usual one of a period.
    fn has_news(&self, now: Timestamp) -> bool {
        let since_s = self.seconds(now) - self.told_s;
        self.known.is_none() || self.asked > 3.0 + 1.5 * self.told_per_s * since_s
    }

    /// Whether a message about this key is due: once in a period, sooner with news, later while one is on its way.
    pub fn has_to_tell(&self, plan: &Plan, now: Timestamp) -> bool {
        let now_s = self.seconds(now);
        if self.sent.is_some_and(|sent| now_s <= sent.at_s + LOST_AFTER_S) {
            return false;
        }
        let since_s = now_s - self.told_s;
        let owes = self.unsent != 0.0 || self.asked > 0.0;
        let is_stale = self.tat_s > now_s && since_s > STALE_S;
        let is_urgent = self.has_news(now) && self.waiting_s.is_none();
        let after_s = if is_urgent { NEWS_AFTER_S } else { plan.period_s() };
        is_stale || owes && since_s >= after_s
    }

    /// The message to the store. What it says is charged, unless it is [lost](View::lost).
    pub fn message(&mut self, plan: &Plan, now: Timestamp) -> Message {
        let now_s = self.seconds(now);
        let own = self.demand.sum(now_s, plan.memory_s());
        let lost = Decayed::new(self.lost_lately, self.told_s).sum(now_s, SLOW_MEMORY_S);
        let lately = lost + self.asked_since_try;
        let message = Message {
            charge: self.unsent,
            returns: self.is_blind(plan, now_s),
            asked: self.asked.min(own),
            asked_lately: lately.min(self.slow_demand.sum(now_s, SLOW_MEMORY_S)),
            // It says so when it arrives, half a round trip from now.
            taught_s: self.known.map(|known| known.tat_s - now_s - known.half_trip_s),
            known_age_s: self.known.map_or(0.0, |known| now_s + known.half_trip_s - known.born_s),
            own,
            ..Message::new(plan)
        };
        self.sent = Some(Sent { at_s: now_s, charge: self.unsent });
        (self.unsent, self.asked) = (0.0, 0.0);
        (self.asked_since_try, self.lost_lately) = (0.0, 0.0);
        (self.told_s, self.told_per_s) = (now_s, own / plan.memory_s());
        self.waiting_s.get_or_insert(now_s);
        message
    }

    /// Notes that a message did not reach the store. It stays owed, and the next one is due after a period.
    pub fn lost(&mut self, message: &Message) {
        self.unsent += message.charge;
        self.asked += message.asked;
        self.lost_lately += message.asked_lately;
        self.sent = None;
    }

    /// Takes up the answer to a message.
    pub fn reply(
        &mut self,
        plan: &Plan,
        message: &Message,
        reply: &Reply,
        round_trip: Duration,
        now: Timestamp,
    ) {
        let (now_s, half_trip_s) = (self.seconds(now), round_trip.as_secs_f64() / 2.0);
        let is_return = self.is_blind(plan, now_s);
        if is_return {
            self.returned_s = now_s;
        }
        (self.sent, self.waiting_s) = (None, None);
        let memory_s = plan.memory_s();
        // A young sum is not yet a whole one.
        let whole = 1.0 - (-reply.age_s.max(1e-3) / memory_s).exp();
        let all_per_s = reply.demand / memory_s / whole;
        let own_per_s = message.own / memory_s / if whole < 0.9 { whole } else { 1.0 };
        let mut others_per_s = (all_per_s - own_per_s).max(0.0);
        if now_s - self.returned_s < FADED * memory_s {
            others_per_s = others_per_s.max(self.known.map_or(0.0, |known| known.others_per_s));
        }
        let share = own_per_s.max(1e-9) / (own_per_s + others_per_s).max(1e-9);
        let slow = self.slow_demand.sum(now_s, SLOW_MEMORY_S);
        // No store answers with more, unless somebody else writes to it.
        let ahead_s = reply.ahead_s.min(plan.cap_s() + Plan::AHEAD_MAX_S);
        let tat_s = now_s - half_trip_s + ahead_s;
        let mut slow_share = (slow / reply.slow_demand.max(slow).max(1e-9)).clamp(1e-4, 1.0);
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
        if !is_return {
            self.drift(plan, now_s);
        }
        self.known = Some(known);
        let feared_s = self.tat_s;
        self.drifted_s = now_s;
        // Others that seldom ask have seldom something to tell.
        let late = (others_per_s * plan.period_s() * plan.equal_share()).min(1.0);
        let arrears_s = half_trip_s + ARREARS * plan.period_s() * late;
        let known_s =
            tat_s.max(now_s - half_trip_s - plan.burst_s()) + self.others_speed(plan, own_per_s) * arrears_s;
        self.tat_s = known_s.max(now_s - plan.burst_s()) + self.unsent * plan.slot_s();
        if feared_s > self.tat_s.max(now_s) {
            let believed = if now_s - self.returned_s < RETURN_S { 0.0 } else { BELIEVED };
            self.tat_s += (1.0 - believed) * (feared_s - self.tat_s);
        }
        let tokens = (now_s - self.tat_s).max(0.0) * plan.rate_per_s;
        self.allowance = self.allowance.max(1.0 + tokens * known.share);
        if plan.refuses() && own_per_s + others_per_s < 0.97 * plan.rate_per_s {
            self.allowance = self.allowance.max(room(plan, own_per_s, round_trip));
        }
    }

    /// Moves the TAT by what the others take meanwhile, and lets the allowance grow.
    fn drift(&mut self, plan: &Plan, now_s: f64) {
        let time_s = (now_s - self.drifted_s).max(0.0);
        let own_per_s = self.demand.sum(now_s, plan.memory_s()) / plan.memory_s();
        let is_blind = self.is_blind(plan, now_s);
        let others_per_s = self.known.map_or(0.0, |known| known.others_per_s);
        let all_per_s = own_per_s + others_per_s;
        if is_blind {
            self.owe(plan, now_s);
            self.at_once = 0.0;
        } else {
            let is_busy = self.tat_s > now_s || all_per_s > BUSY * plan.rate_per_s;
            self.at_once = if self.known.is_some() && is_busy { CHARGED_AT_ONCE } else { 0.0 };
            self.tat_s += (1.0 - self.at_once) * self.others_speed(plan, own_per_s) * time_s;
        }
        self.drifted_s = self.drifted_s.max(now_s);
        self.tat_s = self.tat_s.max(now_s - plan.burst_s());

        let tokens = (now_s - self.tat_s).max(0.0) * plan.rate_per_s;
        let share = match self.known {
            _ if is_blind => self.share_alone(plan),
            Some(known) => known.share,
            None => plan.equal_share(),
        };
        let per_s = match is_blind {
            true => plan.rate_per_s * share,
            false => own_per_s * (plan.rate_per_s / all_per_s.max(1e-9)).min(1.0),
        };
        let least = match plan.refuses() && all_per_s < 0.97 * plan.rate_per_s {
            true => room(plan, own_per_s, Duration::ZERO),
            false => 1.0,
        };
        let grown = self.allowance + time_s * self.gain(plan, now_s) * per_s;
        self.allowance = grown.min(least + tokens * share);
    }

    /// How fast the allowance grows: slower within the band below the cap, and not at all at the cap.
    fn gain(&self, plan: &Plan, now_s: f64) -> f64 {
        let room_s = now_s + plan.cap_s() - self.tat_s;
        if room_s > plan.band_s() { 1.0 } else { (2.0 * room_s / plan.band_s()).clamp(0.0, 2.0) }
    }

    /// How many seconds of the rate the others take in a second.
    fn others_speed(&self, plan: &Plan, own_per_s: f64) -> f64 {
        let others_per_s = self.known.map_or(0.0, |known| known.others_per_s);
        let all_per_s = (own_per_s + others_per_s).max(1e-9);
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

    /// While the store is silent, a node owes what it has promised and not yet let through. What it let through
    /// meanwhile was paced, and the shares of all nodes add up to the rate.
    fn owe(&mut self, plan: &Plan, now_s: f64) {
        let promised = (self.tat_s - now_s).max(0.0) * plan.rate_per_s * self.share_alone(plan);
        self.unsent = (promised - self.sent.map_or(0.0, |sent| sent.charge)).max(0.0);
    }

    fn seconds(&self, now: Timestamp) -> f64 {
        now.since(self.origin).as_secs_f64()
    }
}

/// Requests that come by chance within a period, beyond the mean.
fn room(plan: &Plan, own_per_s: f64, round_trip: Duration) -> f64 {
    2.0 + 3.0 * (own_per_s * (plan.period_s() + round_trip.as_secs_f64())).sqrt()
}

/// A delay in whole microseconds: what is below that is a rounding error.
fn duration(seconds: f64) -> Duration {
    Duration::from_micros((seconds * 1e6) as u64)
}
