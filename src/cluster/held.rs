//! What a node holds of a shared key, by the mode of its SLO.

use std::time::Duration;

use crate::base::time::Timestamp;
use crate::cluster::count::{CountMessage, CountReply, CountView};
use crate::cluster::lease::{LeaseMessage, LeaseReply, LeaseView};
use crate::cluster::plan::Plan;
use crate::cluster::quota::QuotaPlan;
use crate::cluster::record::{Message, Reply};
use crate::cluster::terms::{Numbers, Terms};
use crate::cluster::view::View;
use crate::law::Used;

/// What a node holds of a shared key.
#[derive(Clone, Debug)]
pub(super) enum Held {
    Rate(View),
    Count(CountView),
    Lease(LeaseView),
}

/// What a node tells of a key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Words {
    Rate(Plan, Message),
    Count(QuotaPlan, CountMessage),
    Lease(QuotaPlan, LeaseMessage),
}

/// What the store answers about a key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Answer {
    Rate(Reply),
    Count(CountReply),
    Lease(LeaseReply),
}

impl Held {
    /// What a node holds of a key of which it has let through so many requests untold.
    pub(super) fn new(terms: &Terms, numbers: &Numbers, untold: f64, now: Timestamp) -> Held {
        match (terms, numbers) {
            (Terms::Rate(_), Numbers::Rate(plan)) => Held::Rate(View::owing(plan, untold, now)),
            (Terms::Lease(_), _) => Held::Lease(LeaseView::new(now)),
            _ => Held::Count(CountView::owing(untold, now)),
        }
    }

    /// Whether it was made for these terms. An edit may have changed the mode of the SLO.
    pub(super) fn is_of(&self, terms: &Terms) -> bool {
        matches!(
            (self, terms),
            (Held::Rate(_), Terms::Rate(_))
                | (Held::Count(_), Terms::Count(_))
                | (Held::Lease(_), Terms::Lease(_))
        )
    }

    /// The delay of a request of this cost.
    ///
    /// # Errors
    /// It is refused. It may get through after this time.
    pub(super) fn judge(
        &mut self,
        numbers: &Numbers,
        cost: f64,
        now: Timestamp,
    ) -> Result<Duration, Duration> {
        match (self, numbers) {
            (Held::Rate(view), Numbers::Rate(plan)) => view.judge(plan, cost, now),
            (Held::Count(view), Numbers::Quota(plan)) => view.judge(plan, cost, now).map(|()| Duration::ZERO),
            (Held::Lease(view), Numbers::Quota(plan)) => view.judge(plan, cost, now).map(|()| Duration::ZERO),
            _ => Ok(Duration::ZERO),
        }
    }

    /// Charges a request that was refused and passes all the same. Only a rate can go into debt.
    pub(super) fn overdraw(&mut self, numbers: &Numbers, cost: f64, now: Timestamp) {
        if let (Held::Rate(view), Numbers::Rate(plan)) = (self, numbers) {
            view.overdraw(plan, cost, now);
        }
    }

    pub(super) fn remaining(&self, numbers: &Numbers, now: Timestamp) -> u32 {
        match (self, numbers) {
            (Held::Rate(view), Numbers::Rate(plan)) => view.remaining(plan, now),
            (Held::Count(view), Numbers::Quota(plan)) => view.remaining(plan, now),
            (Held::Lease(view), Numbers::Quota(plan)) => view.remaining(plan, now),
            _ => 0,
        }
    }

    /// The seconds until the bucket is full again. None: it is no rate.
    pub(super) fn full_in_s(self, numbers: &Numbers, now: Timestamp) -> Option<f64> {
        match (self, numbers) {
            (Held::Rate(view), Numbers::Rate(plan)) => Some(view.glance(plan, now).ahead_s + plan.burst_s()),
            _ => None,
        }
    }

    /// What all nodes have used of a quota. None: it is a rate.
    pub(super) fn used(&self, numbers: &Numbers, now: Timestamp) -> Option<Used> {
        match (self, numbers) {
            (Held::Count(view), Numbers::Quota(plan)) => Some(view.used(plan, now)),
            (Held::Lease(view), Numbers::Quota(plan)) => Some(view.used(plan, now)),
            _ => None,
        }
    }

    pub(super) fn take_back(&mut self, numbers: &Numbers, cost: f64) {
        match (self, numbers) {
            (Held::Rate(view), Numbers::Rate(plan)) => view.take_back(plan, cost),
            (Held::Count(view), _) => view.take_back(cost),
            (Held::Lease(view), _) => view.take_back(cost),
            (Held::Rate(_), Numbers::Quota(_)) => {}
        }
    }

    /// The words that are due now.
    pub(super) fn words(&mut self, numbers: &Numbers, now: Timestamp) -> Option<Words> {
        match (self, numbers) {
            (Held::Rate(view), Numbers::Rate(plan)) => {
                view.has_to_tell(plan, now).then(|| Words::Rate(*plan, view.message(plan, now)))
            }
            (Held::Count(view), Numbers::Quota(plan)) => {
                view.has_to_tell(plan, now).then(|| Words::Count(*plan, view.message(plan, now)))
            }
            (Held::Lease(view), Numbers::Quota(plan)) => {
                view.has_to_tell(plan, now).then(|| Words::Lease(*plan, view.message(plan, now)))
            }
            _ => None,
        }
    }

    pub(super) fn reply(&mut self, words: &Words, answer: &Answer, round_trip: Duration, now: Timestamp) {
        match (self, words, answer) {
            (Held::Rate(view), Words::Rate(plan, message), Answer::Rate(reply)) => {
                view.reply(plan, message, reply, round_trip, now);
            }
            (Held::Count(view), Words::Count(_, message), Answer::Count(reply)) => {
                view.reply(message, reply, now)
            }
            (Held::Lease(view), Words::Lease(_, message), Answer::Lease(reply)) => {
                view.reply(message, reply, now)
            }
            // The mode of the SLO has changed meanwhile.
            _ => {}
        }
    }

    /// Notes that words did not reach the store.
    pub(super) fn lost(&mut self, words: &Words) {
        match (self, words) {
            (Held::Rate(view), Words::Rate(_, message)) => view.lost(message),
            (Held::Count(view), Words::Count(_, message)) => view.lost(message),
            (Held::Lease(view), Words::Lease(_, message)) => view.lost(message),
            _ => {}
        }
    }

    /// Requests let through and not yet told.
    pub(super) fn owed(&self) -> f64 {
        match self {
            Held::Rate(view) => view.owed(),
            Held::Count(view) => view.owed(),
            Held::Lease(_) => 0.0,
        }
    }

    /// Whether there is nothing left to tell.
    pub(super) fn is_settled(&self, now: Timestamp) -> bool {
        match self {
            Held::Rate(view) => view.is_settled(now),
            Held::Count(view) => view.is_settled(),
            Held::Lease(view) => view.is_settled(now),
        }
    }
}

impl Words {
    /// Whether the store had forgotten the key, and has learnt it from these words.
    pub fn teach(&self, answer: &Answer) -> bool {
        match (self, answer) {
            (Words::Rate(_, message), Answer::Rate(reply)) => {
                message.taught_s.is_some() && reply.age_s == 0.0
            }
            _ => false,
        }
    }
}

impl Answer {
    /// Whether the demand leaves no room for requests that nodes let through untold.
    pub(super) fn is_crowded(&self, words: &Words) -> bool {
        match (self, words) {
            (Answer::Rate(reply), Words::Rate(plan, _)) => reply.is_crowded(plan),
            (Answer::Count(reply), Words::Count(plan, _)) => reply.is_crowded(plan),
            _ => false,
        }
    }
}
