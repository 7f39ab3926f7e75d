//! Bounds on the values that nodes and the store exchange. A value outside its bounds may come from an unauthenticated
//! client, so the value is refused.

use crate::cluster::{Answer, Arguments, CountReply, Grant, HOLES_MAX, Hint, LeaseMessage, Message, Wants};

/// The largest number of requests or seconds: sums and products stay finite, and exact to a thousandth.
const MOST: f64 = 1e12;

/// The maximum number of slots for which a message may ask: more than the requests of one key that a node can hold.
const WANT_MAX: u32 = 10_000;

/// The shortest memory, window or lifetime of a record: divided by such a time, numbers stay finite.
const LEAST: f64 = 1e-3;

fn are_within(least: f64, most: f64, numbers: &[f64]) -> bool {
    numbers.iter().all(|number| (least..=most).contains(number))
}

impl Wants {
    fn is_within_bounds(&self) -> bool {
        self.want <= WANT_MAX
            && self.back.len() <= HOLES_MAX
            && are_within(0.0, MOST, &[self.waited_s, self.half_trip_s])
            && are_within(-MOST, MOST, &self.back)
    }
}

impl Grant {
    /// Whether slots and refusals together are no more than wanted, and a node can calculate with the numbers.
    pub(super) fn fits(&self, wants: &Wants) -> bool {
        let all = self.holes.len() as u64 + u64::from(self.count) + u64::from(self.refused);
        all <= u64::from(wants.want)
            && are_within(-MOST, MOST, &self.holes)
            && are_within(-MOST, MOST, &[self.first_s])
    }
}

impl Hint {
    /// Whether a node can calculate with all numbers of the hint.
    pub fn is_within_bounds(&self) -> bool {
        are_within(-MOST, MOST, &[self.ahead_s])
            && are_within(0.0, MOST, &[self.demand, self.slow_demand, self.since_s, self.age_s])
    }
}

impl Arguments {
    /// Whether a store can calculate with all numbers of the report.
    pub fn are_within_bounds(&self) -> bool {
        match self {
            Arguments::Rate(message) => {
                let &Message { asked, asked_lately, known_age_s, burst_s, cap_s, .. } = message;
                are_within(0.0, MOST, &[asked, asked_lately, known_age_s, burst_s, cap_s, message.slot_s])
                    && are_within(LEAST, MOST, &[message.memory_s, message.kept_s])
                    && are_within(-MOST, MOST, &[message.charge_s(), message.restore_s.unwrap_or_default()])
                    && message.wants.as_ref().is_none_or(Wants::is_within_bounds)
            }
            Arguments::Count(message) => {
                let CountReply { current, before, over, age_s } = message.restore.unwrap_or_default();
                are_within(0.0, MOST, &[current, before, over, age_s, message.limit])
                    && are_within(LEAST, MOST, &[message.window_s, message.kept_s])
                    && are_within(-MOST, MOST, &[message.charge])
            }
            Arguments::Lease(message) => {
                let &LeaseMessage { asked, limit, kept_back, age_s, .. } = message;
                let (given, rest_s) = message.restore.unwrap_or_default();
                are_within(0.0, MOST, &[asked, limit, kept_back, given, age_s.unwrap_or_default()])
                    && are_within(LEAST, MOST, &[message.window_s, message.kept_s])
                    && are_within(-MOST, MOST, &[message.want, rest_s])
            }
        }
    }
}

impl Answer {
    /// Whether a node can use all numbers of the answer, and whether they fit the report that was answered.
    pub fn fits(&self, arguments: &Arguments) -> bool {
        match (self, arguments) {
            (Answer::Rate(reply), Arguments::Rate(message)) => {
                let grants = match (&reply.grant, &message.wants) {
                    (Some(grant), Some(wants)) => grant.fits(wants),
                    (grant, wants) => grant.is_none() && wants.is_none(),
                };
                grants
                    && are_within(-MOST, MOST, &[reply.ahead_s])
                    && are_within(0.0, MOST, &[reply.demand, reply.slow_demand, reply.age_s])
            }
            (Answer::Count(reply), Arguments::Count(message)) => {
                are_within(0.0, MOST, &[reply.current, reply.before])
                    && are_within(0.0, message.limit, &[reply.over])
                    && are_within(0.0, message.window_s, &[reply.age_s])
            }
            // The store grants no more than was requested and no more than the limit, and nothing after the end of the
            // window.
            (Answer::Lease(reply), Arguments::Lease(message)) => {
                are_within(-MOST, message.want.max(0.0), &[reply.granted])
                    && are_within(0.0, message.limit, &[reply.given])
                    && are_within(0.0, message.window_s, &[reply.rest_s])
            }
            _ => false,
        }
    }
}
