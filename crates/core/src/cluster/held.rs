//! What a node holds of a shared key, by the mode of its SLO.

use std::time::Duration;

use crate::base::time::Timestamp;
use crate::base::verdict::Verdict;
use crate::cluster::count::{CountMessage, CountReply, CountView};
use crate::cluster::lease::{LeaseMessage, LeaseReply, LeaseView};
use crate::cluster::plan::Plan;
use crate::cluster::quota::QuotaPlan;
use crate::cluster::record::{Message, Reply};
use crate::cluster::terms::{Situation, Terms};
use crate::cluster::view::View;
use crate::law::{Judgement, Pacing, Used, Windowed};

/// What a node holds of a shared key, with the terms that it is for.
#[derive(Clone, Debug)]
pub(super) enum Held {
    Rate(Pacing, View),
    Count(Windowed, CountView),
    Lease(Windowed, LeaseView),
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
    pub(super) fn new(terms: &Terms, situation: &Situation<'_>, untold: f64, now: Timestamp) -> Held {
        match *terms {
            Terms::Rate(pacing) => Held::Rate(pacing, View::owing(&situation.plan(&pacing), untold, now)),
            Terms::Count(windowed) => Held::Count(windowed, CountView::owing(untold, now)),
            Terms::Lease(windowed) => Held::Lease(windowed, LeaseView::new(now)),
        }
    }

    /// Goes on under these terms. False if an edit has changed the mode of the SLO: then nothing of it is of use.
    pub(super) fn follow(&mut self, terms: &Terms) -> bool {
        match (self, terms) {
            (Held::Rate(own, _), Terms::Rate(pacing)) => *own = *pacing,
            (Held::Count(own, _), Terms::Count(windowed)) | (Held::Lease(own, _), Terms::Lease(windowed)) => {
                *own = *windowed;
            }
            (Held::Rate(..) | Held::Count(..) | Held::Lease(..), _) => return false,
        }
        true
    }

    pub(super) fn terms(&self) -> Terms {
        match *self {
            Held::Rate(pacing, _) => Terms::Rate(pacing),
            Held::Count(windowed, _) => Terms::Count(windowed),
            Held::Lease(windowed, _) => Terms::Lease(windowed),
        }
    }

    /// Judges a request of this cost.
    pub(super) fn judge(&mut self, situation: &Situation<'_>, cost: u32, now: Timestamp) -> Judgement {
        let cost = f64::from(cost);
        let (answer, remaining, is_beyond) = match self {
            Held::Rate(pacing, view) => {
                let plan = situation.plan(pacing);
                (view.judge(&plan, cost, now), view.remaining(&plan, now), plan.is_beyond(cost))
            }
            Held::Count(windowed, view) => {
                let plan = situation.quota(windowed);
                let answer = view.judge(&plan, cost, now).map(|()| Duration::ZERO);
                (answer, view.remaining(&plan, now), cost > plan.limit)
            }
            Held::Lease(windowed, view) => {
                let plan = situation.quota(windowed);
                let answer = view.judge(&plan, cost, now).map(|()| Duration::ZERO);
                (answer, view.remaining(&plan, now), cost > plan.limit)
            }
        };
        match answer {
            Ok(delay) => Judgement::new(Verdict::after(delay), remaining),
            Err(_) if is_beyond => Judgement::never(remaining),
            Err(wait) => Judgement::deny(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX), remaining),
        }
    }

    /// Charges a request that was refused and passes all the same. Only a rate can go into debt.
    pub(super) fn overdraw(&mut self, situation: &Situation<'_>, cost: f64, now: Timestamp) {
        match self {
            Held::Rate(pacing, view) => view.overdraw(&situation.plan(pacing), cost, now),
            Held::Count(..) | Held::Lease(..) => {}
        }
    }

    pub(super) fn remaining(&self, situation: &Situation<'_>, now: Timestamp) -> u32 {
        match self {
            Held::Rate(pacing, view) => view.remaining(&situation.plan(pacing), now),
            Held::Count(windowed, view) => view.remaining(&situation.quota(windowed), now),
            Held::Lease(windowed, view) => view.remaining(&situation.quota(windowed), now),
        }
    }

    /// The seconds until the bucket is full again. None: it is no rate.
    pub(super) fn full_in_s(self, situation: &Situation<'_>, now: Timestamp) -> Option<f64> {
        match self {
            Held::Rate(pacing, view) => {
                let plan = situation.plan(&pacing);
                Some(view.glance(&plan, now).ahead_s + plan.burst_s())
            }
            Held::Count(..) | Held::Lease(..) => None,
        }
    }

    /// What all nodes have used of a quota. None: it is a rate.
    pub(super) fn used(&self, situation: &Situation<'_>, now: Timestamp) -> Option<Used> {
        match self {
            Held::Rate(..) => None,
            Held::Count(windowed, view) => Some(view.used(&situation.quota(windowed), now)),
            Held::Lease(windowed, view) => Some(view.used(&situation.quota(windowed), now)),
        }
    }

    pub(super) fn take_back(&mut self, situation: &Situation<'_>, cost: f64) {
        match self {
            Held::Rate(pacing, view) => view.take_back(&situation.plan(pacing), cost),
            Held::Count(_, view) => view.take_back(cost),
            Held::Lease(_, view) => view.take_back(cost),
        }
    }

    /// The words that are due now.
    pub(super) fn words(&mut self, situation: &Situation<'_>, now: Timestamp) -> Option<Words> {
        match self {
            Held::Rate(pacing, view) => {
                let plan = situation.plan(pacing);
                view.has_to_tell(&plan, now).then(|| Words::Rate(plan, view.message(&plan, now)))
            }
            Held::Count(windowed, view) => {
                let plan = situation.quota(windowed);
                view.has_to_tell(&plan, now).then(|| Words::Count(plan, view.message(&plan, now)))
            }
            Held::Lease(windowed, view) => {
                let plan = situation.quota(windowed);
                view.has_to_tell(&plan, now).then(|| Words::Lease(plan, view.message(&plan, now)))
            }
        }
    }

    /// Takes up the answer to its words. An answer to those of another mode tells nothing of this one.
    pub(super) fn reply(&mut self, words: &Words, answer: &Answer, round_trip: Duration, now: Timestamp) {
        match (self, words, answer) {
            (Held::Rate(_, view), Words::Rate(plan, message), Answer::Rate(reply)) => {
                view.reply(plan, message, reply, round_trip, now);
            }
            (Held::Count(_, view), Words::Count(_, message), Answer::Count(reply)) => {
                view.reply(message, reply, now);
            }
            (Held::Lease(_, view), Words::Lease(_, message), Answer::Lease(reply)) => {
                view.reply(message, reply, now);
            }
            (Held::Rate(..) | Held::Count(..) | Held::Lease(..), _, _) => {}
        }
    }

    /// Notes that words did not reach the store. Those of another mode are none of its own.
    pub(super) fn lost(&mut self, words: &Words) {
        match (self, words) {
            (Held::Rate(_, view), Words::Rate(_, message)) => view.lost(message),
            (Held::Count(_, view), Words::Count(_, message)) => view.lost(message),
            (Held::Lease(_, view), Words::Lease(_, message)) => view.lost(message),
            (Held::Rate(..) | Held::Count(..) | Held::Lease(..), _) => {}
        }
    }

    /// Requests let through and not yet told.
    pub(super) fn owed(&self) -> f64 {
        match self {
            Held::Rate(_, view) => view.owed(),
            Held::Count(_, view) => view.owed(),
            Held::Lease(..) => 0.0,
        }
    }

    /// Whether there is nothing left to tell.
    pub(super) fn is_settled(&self, now: Timestamp) -> bool {
        match self {
            Held::Rate(_, view) => view.is_settled(now),
            Held::Count(_, view) => view.is_settled(),
            Held::Lease(_, view) => view.is_settled(now),
        }
    }
}

impl Words {
    /// Whether the store had forgotten the key, and has learnt it from these words. Only a rate is taught.
    pub fn teach(&self, answer: &Answer) -> bool {
        match (self, answer) {
            (Words::Rate(_, message), Answer::Rate(reply)) => {
                message.taught_s.is_some() && reply.age_s == 0.0
            }
            (Words::Rate(..) | Words::Count(..) | Words::Lease(..), _) => false,
        }
    }
}

impl Answer {
    /// Whether the demand leaves no room for requests that nodes let through untold. None are under a lease.
    pub(super) fn is_crowded(&self, words: &Words) -> bool {
        match (self, words) {
            (Answer::Rate(reply), Words::Rate(plan, _)) => reply.is_crowded(plan),
            (Answer::Count(reply), Words::Count(plan, _)) => reply.is_crowded(plan),
            (Answer::Rate(..) | Answer::Count(..) | Answer::Lease(..), _) => false,
        }
    }
}
