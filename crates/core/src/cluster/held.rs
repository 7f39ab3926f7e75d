//! What a node holds of a shared key, by the mode of its SLO.

use std::time::Duration;

use crate::base::time::Timestamp;
use crate::base::verdict::Verdict;
use crate::cluster::count::CountView;
use crate::cluster::lease::LeaseView;
use crate::cluster::mode::{Answer, Held, Terms, Words};
use crate::cluster::terms::Situation;
use crate::cluster::view::View;
use crate::law::{Judgement, Used};

impl Held {
    /// What a node holds of a key of which it has let through so many requests untold.
    pub(super) fn new(terms: &Terms, situation: &Situation<'_>, untold: f64, now: Timestamp) -> Held {
        match *terms {
            Terms::Rate(pacing) => Held::Rate((pacing, View::owing(&situation.plan(&pacing), untold, now))),
            Terms::Count(windowed) => Held::Count((windowed, CountView::owing(untold, now))),
            Terms::Lease(windowed) => Held::Lease((windowed, LeaseView::new(now))),
        }
    }

    /// Goes on under these terms. False if an edit has changed the mode of the SLO: then nothing of it is of use.
    pub(super) fn follow(&mut self, terms: &Terms) -> bool {
        match (self, terms) {
            (Held::Rate((own, _)), Terms::Rate(pacing)) => *own = *pacing,
            (Held::Count((own, _)), Terms::Count(windowed))
            | (Held::Lease((own, _)), Terms::Lease(windowed)) => *own = *windowed,
            _ => return false,
        }
        true
    }

    pub(super) fn terms(&self) -> Terms {
        match *self {
            Held::Rate((pacing, _)) => Terms::Rate(pacing),
            Held::Count((windowed, _)) => Terms::Count(windowed),
            Held::Lease((windowed, _)) => Terms::Lease(windowed),
        }
    }

    /// Judges a request of this cost.
    pub(super) fn judge(&mut self, situation: &Situation<'_>, cost: u32, now: Timestamp) -> Judgement {
        let cost = f64::from(cost);
        let (answer, remaining, is_beyond) = match self {
            Held::Rate((pacing, view)) => {
                let plan = situation.plan(pacing);
                (view.judge(&plan, cost, now), view.remaining(&plan, now), plan.is_beyond(cost))
            }
            Held::Count((windowed, view)) => {
                let plan = situation.quota(windowed);
                let answer = view.judge(&plan, cost, now).map(|()| Duration::ZERO);
                (answer, view.remaining(&plan, now), cost > plan.limit)
            }
            Held::Lease((windowed, view)) => {
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
            Held::Rate((pacing, view)) => view.overdraw(&situation.plan(pacing), cost, now),
            Held::Count(..) | Held::Lease(..) => {}
        }
    }

    pub(super) fn remaining(&self, situation: &Situation<'_>, now: Timestamp) -> u32 {
        match self {
            Held::Rate((pacing, view)) => view.remaining(&situation.plan(pacing), now),
            Held::Count((windowed, view)) => view.remaining(&situation.quota(windowed), now),
            Held::Lease((windowed, view)) => view.remaining(&situation.quota(windowed), now),
        }
    }

    /// The seconds until the bucket is full again. None: it is no rate.
    pub(super) fn full_in_s(self, situation: &Situation<'_>, now: Timestamp) -> Option<f64> {
        match self {
            Held::Rate((pacing, view)) => {
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
            Held::Count((windowed, view)) => Some(view.used(&situation.quota(windowed), now)),
            Held::Lease((windowed, view)) => Some(view.used(&situation.quota(windowed), now)),
        }
    }

    pub(super) fn take_back(&mut self, situation: &Situation<'_>, cost: f64) {
        match self {
            Held::Rate((pacing, view)) => view.take_back(&situation.plan(pacing), cost),
            Held::Count((_, view)) => view.take_back(cost),
            Held::Lease((_, view)) => view.take_back(cost),
        }
    }

    /// The words that are due now.
    pub(super) fn words(&mut self, situation: &Situation<'_>, now: Timestamp) -> Option<Words> {
        match self {
            Held::Rate((pacing, view)) => {
                let plan = situation.plan(pacing);
                view.has_to_tell(&plan, now).then(|| Words::Rate(view.message(&plan, now)))
            }
            Held::Count((windowed, view)) => {
                let plan = situation.quota(windowed);
                view.has_to_tell(&plan, now).then(|| Words::Count(view.message(&plan, now)))
            }
            Held::Lease((windowed, view)) => {
                let plan = situation.quota(windowed);
                view.has_to_tell(&plan, now).then(|| Words::Lease(view.message(&plan, now)))
            }
        }
    }

    /// Takes up the answer to its words, and returns whether the demand leaves no room for requests that nodes let
    /// through untold. Words and answers of another mode tell nothing of this one, and none are untold under a lease.
    pub(super) fn reply(
        &mut self,
        situation: &Situation<'_>,
        words: &Words,
        answer: &Answer,
        now: Timestamp,
    ) -> bool {
        match (self, words, answer) {
            (Held::Rate((pacing, view)), Words::Rate(message), Answer::Rate(reply)) => {
                let plan = situation.plan(pacing);
                view.reply(&plan, message, reply, situation.round_trip, now);
                reply.is_crowded(&plan)
            }
            (Held::Count((windowed, view)), Words::Count(message), Answer::Count(reply)) => {
                view.reply(message, reply, now);
                reply.is_crowded(&situation.quota(windowed))
            }
            (Held::Lease((_, view)), Words::Lease(message), Answer::Lease(reply)) => {
                view.reply(message, reply, now);
                false
            }
            _ => false,
        }
    }

    /// Notes that words did not reach the store. Those of another mode are none of its own.
    pub(super) fn lost(&mut self, words: &Words) {
        match (self, words) {
            (Held::Rate((_, view)), Words::Rate(message)) => view.lost(message),
            (Held::Count((_, view)), Words::Count(message)) => view.lost(message),
            (Held::Lease((_, view)), Words::Lease(message)) => view.lost(message),
            _ => {}
        }
    }

    /// Requests let through and not yet told.
    pub(super) fn owed(&self) -> f64 {
        match self {
            Held::Rate((_, view)) => view.owed(),
            Held::Count((_, view)) => view.owed(),
            Held::Lease(..) => 0.0,
        }
    }

    /// Whether there is nothing left to tell.
    pub(super) fn is_settled(&self, now: Timestamp) -> bool {
        match self {
            Held::Rate((_, view)) => view.is_settled(now),
            Held::Count((_, view)) => view.is_settled(),
            Held::Lease((_, view)) => view.is_settled(now),
        }
    }
}

impl Words {
    /// Whether the store had forgotten the key, and has learnt it from these words. Only a rate is taught.
    pub fn teach(&self, answer: &Answer) -> bool {
        match (self, answer) {
            (Words::Rate(message), Answer::Rate(reply)) => message.taught_s.is_some() && reply.age_s == 0.0,
            _ => false,
        }
    }
}
