//! A node's state for a shared key, by the mode of its SLO.

use std::time::Duration;

use crate::base::{Sample, Timestamp, Verdict};
use crate::cluster::{Answer, Arguments, CountView, LeaseView, LocalView, Plan, Share, Situation, View};
use crate::law::{Admission, Judgement, Used};

impl LocalView {
    /// The state of a key after a node has admitted this many requests without reporting them.
    pub(super) fn new(
        share: &Share<'_>,
        situation: &Situation<'_>,
        unreported: f64,
        now: Timestamp,
    ) -> LocalView {
        match *share {
            Share::Rate(gcra) => {
                LocalView::Rate((*gcra, View::owing(&situation.plan(gcra), unreported, now)))
            }
            Share::Count(windowed) => LocalView::Count((*windowed, CountView::owing(unreported, now))),
            Share::Lease(windowed) => LocalView::Lease((*windowed, LeaseView::new(now))),
        }
    }

    /// Continues under these terms. False if an edit has changed the mode of the SLO: the state is then unusable.
    pub(super) fn follow(&mut self, share: &Share<'_>) -> bool {
        match (self, share) {
            (LocalView::Rate((own, _)), Share::Rate(gcra)) => *own = **gcra,
            (LocalView::Count((own, _)), Share::Count(windowed))
            | (LocalView::Lease((own, _)), Share::Lease(windowed)) => *own = **windowed,
            _ => return false,
        }
        true
    }

    pub(super) fn share(&self) -> Share<'_> {
        match self {
            LocalView::Rate((gcra, _)) => Share::Rate(gcra),
            LocalView::Count((windowed, _)) => Share::Count(windowed),
            LocalView::Lease((windowed, _)) => Share::Lease(windowed),
        }
    }

    /// The view of the mode `rate`, with its plan. None in another mode.
    pub(super) fn of_rate(&mut self, situation: &Situation<'_>) -> Option<(&mut View, Plan)> {
        let LocalView::Rate((gcra, view)) = self else { return None };
        Some((view, situation.plan(gcra)))
    }

    /// Judges a request of this cost. `hold`: it costs 1, and this node can hold its answer.
    pub(super) fn judge(
        &mut self,
        situation: &Situation<'_>,
        cost: u32,
        hold: Option<Sample>,
        now: Timestamp,
    ) -> Judgement {
        let cost = f64::from(cost);
        let at_once = |()| (Duration::ZERO, None);
        let (answer, remaining, is_beyond) = match self {
            LocalView::Rate((gcra, view)) => {
                let plan = situation.plan(gcra);
                let answer = match hold {
                    Some(sample) => view.judge_held(&plan, sample, now),
                    None => view.judge(&plan, cost, now).map(|delay| (delay, None)),
                };
                (answer, view.remaining(&plan, now), hold.is_none() && plan.is_beyond(cost))
            }
            LocalView::Count((windowed, view)) => {
                let plan = situation.quota(windowed);
                let answer = view.judge(&plan, cost, now).map(at_once);
                (answer, view.remaining(&plan, now), cost > plan.limit)
            }
            LocalView::Lease((windowed, view)) => {
                let plan = situation.quota(windowed);
                let answer = view.judge(&plan, cost, now).map(at_once);
                (answer, view.remaining(&plan, now), cost > plan.limit)
            }
        };
        match answer {
            Ok((delay, turn)) => {
                let judgement = Judgement::new(Verdict::after(delay), remaining);
                Judgement { turn: turn.unwrap_or_default(), ..judgement }
            }
            Err(_) if is_beyond => Judgement::never(remaining),
            Err(wait) => Judgement::deny(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX), remaining),
        }
    }

    pub(super) fn remaining(&self, situation: &Situation<'_>, now: Timestamp) -> u32 {
        match self {
            LocalView::Rate((gcra, view)) => view.remaining(&situation.plan(gcra), now),
            LocalView::Count((windowed, view)) => view.remaining(&situation.quota(windowed), now),
            LocalView::Lease((windowed, view)) => view.remaining(&situation.quota(windowed), now),
        }
    }

    /// The quota used by all nodes. None in the mode `rate`.
    pub(super) fn used(&self, situation: &Situation<'_>, now: Timestamp) -> Option<Used> {
        match self {
            LocalView::Rate(..) => None,
            LocalView::Count((windowed, view)) => Some(view.used(&situation.quota(windowed), now)),
            LocalView::Lease((windowed, view)) => Some(view.used(&situation.quota(windowed), now)),
        }
    }

    /// Charges an admitted request for more, or for less.
    pub(super) fn settle(&mut self, situation: &Situation<'_>, more: f64, gone: &Admission) {
        match self {
            LocalView::Rate((gcra, view)) => view.settle(&situation.plan(gcra), more, gone.now),
            LocalView::Count((_, view)) => view.settle(more, gone.due),
            LocalView::Lease((_, view)) => view.take_back(-more),
        }
    }

    pub(super) fn take_back(&mut self, situation: &Situation<'_>, cost: f64) {
        match self {
            LocalView::Rate((gcra, view)) => view.take_back(&situation.plan(gcra), cost),
            LocalView::Count((_, view)) => view.take_back(cost),
            LocalView::Lease((_, view)) => view.take_back(cost),
        }
    }

    /// The arguments that are due now.
    pub(super) fn arguments(&mut self, situation: &Situation<'_>, now: Timestamp) -> Option<Arguments> {
        match self {
            LocalView::Rate((gcra, view)) => {
                let plan = situation.plan(gcra);
                view.drop_overdue(&plan, now);
                view.has_to_tell(&plan, now).then(|| Arguments::Rate(view.message(&plan, now)))
            }
            LocalView::Count((windowed, view)) => {
                let plan = situation.quota(windowed);
                view.has_to_tell(&plan, now).then(|| Arguments::Count(view.message(&plan, now)))
            }
            LocalView::Lease((windowed, view)) => {
                let plan = situation.quota(windowed);
                view.has_to_tell(&plan, now).then(|| Arguments::Lease(view.message(&plan, now)))
            }
        }
    }

    /// Applies the answer to its arguments, and returns whether the demand leaves no room for requests that nodes
    /// admit unreported. Updates and answers of another mode do not affect this one, and under a lease no request is
    /// unreported.
    pub(super) fn reply(
        &mut self,
        situation: &Situation<'_>,
        arguments: &Arguments,
        answer: &Answer,
        now: Timestamp,
    ) -> bool {
        match (self, arguments, answer) {
            (LocalView::Rate((gcra, view)), Arguments::Rate(message), Answer::Rate(reply)) => {
                let plan = situation.plan(gcra);
                view.reply(&plan, message, reply, situation.round_trip, now);
                reply.is_crowded(&plan)
            }
            (LocalView::Count((windowed, view)), Arguments::Count(message), Answer::Count(reply)) => {
                view.reply(message, reply, now);
                reply.is_crowded(&situation.quota(windowed))
            }
            (LocalView::Lease((_, view)), Arguments::Lease(message), Answer::Lease(reply)) => {
                view.reply(message, reply, now);
                false
            }
            _ => false,
        }
    }

    /// Notes that an update did not reach the store. An update of another mode is ignored.
    pub(super) fn lost(&mut self, arguments: &Arguments) {
        match (self, arguments) {
            (LocalView::Rate((_, view)), Arguments::Rate(message)) => view.lost(message),
            (LocalView::Count((_, view)), Arguments::Count(message)) => view.lost(message),
            (LocalView::Lease((_, view)), Arguments::Lease(message)) => view.lost(message),
            _ => {}
        }
    }

    /// Requests admitted and not yet reported.
    pub(super) fn debt(&self) -> f64 {
        match self {
            LocalView::Rate((_, view)) => view.debt(),
            LocalView::Count((_, view)) => view.debt(),
            LocalView::Lease(..) => 0.0,
        }
    }

    /// Whether there is nothing left to report.
    pub(super) fn is_settled(&self, now: Timestamp) -> bool {
        match self {
            LocalView::Rate((_, view)) => view.is_settled(now),
            LocalView::Count((_, view)) => view.is_settled(),
            LocalView::Lease((_, view)) => view.is_settled(now),
        }
    }
}

impl Arguments {
    /// Whether the store had forgotten the key, and these arguments restored it. Only the mode `rate` restores keys.
    pub fn restores(&self, answer: &Answer) -> bool {
        match (self, answer) {
            (Arguments::Rate(message), Answer::Rate(reply)) => {
                message.restore_s.is_some() && reply.age_s == 0.0
            }
            _ => false,
        }
    }
}
