//! The modes in which nodes share an SLO, the types that differ between them, and a node's state by mode.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::{Sample, Sharing, Timestamp, Verdict};
use crate::cluster::{
    CountMessage, CountRecord, CountReply, CountView, LeaseMessage, LeaseRecord, LeaseReply, LeaseView,
    Message, Plan, QuotaPlan, Record, Reply, Settings, Stats, View,
};
use crate::law::{Admission, Gcra, Judgement, Law, Used, Window};

/// The types that each mode defines for itself: the [`Share`] of an SLO, a node's state for a key and its
/// [`Arguments`], and the store's record and [`Answer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ByMode<R, C, L> {
    /// One theoretical arrival time.
    Rate(R),
    /// The counts of a window.
    Count(C),
    /// Parts of a window's quota.
    Lease(L),
}

/// How nodes share an SLO: the mode, and the numbers of the law.
pub type Share<'l> = ByMode<&'l Gcra, &'l Window, &'l Window>;

/// A node's state for a shared key, with the numbers of its law.
pub(super) type LocalView = ByMode<(Gcra, View), (Window, CountView), (Window, LeaseView)>;

/// A node's report about a key.
pub type Arguments = ByMode<Message, CountMessage, LeaseMessage>;

/// The store's record of a key.
pub(super) type KeptRecord = ByMode<Record, CountRecord, LeaseRecord>;

/// The store's answer about a key.
pub type Answer = ByMode<Reply, CountReply, LeaseReply>;

/// The state of the cluster at this moment, which turns the law of an SLO into a plan.
#[derive(Clone, Copy, Debug)]
pub(super) struct Situation<'s> {
    pub(super) settings: &'s Settings,
    pub(super) nodes: u32,
    pub(super) phase: f64,
    pub(super) round_trip: Duration,
    pub(super) now: Timestamp,
}

impl Situation<'_> {
    pub(super) fn plan(&self, gcra: &Gcra) -> Plan {
        Plan::new(gcra, self.settings, self.nodes, self.phase, self.round_trip)
    }

    pub(super) fn quota(&self, window: &Window) -> QuotaPlan {
        QuotaPlan {
            limit: f64::from(window.limit),
            window_s: window.longest().as_secs_f64(),
            period_s: self.settings.period.as_secs_f64(),
            round_trip_s: self.round_trip.as_secs_f64(),
            nodes: self.nodes,
            is_sliding: window.is_sliding,
            calendar: window.calendar,
            is_work: window.is_work,
        }
    }
}

impl<'l> Share<'l> {
    /// None if each node has a part of the SLO, or the whole SLO, to itself.
    pub fn new(sharing: Sharing, law: &'l Law) -> Option<Share<'l>> {
        match sharing {
            Sharing::Rate => law.gcra().map(Share::Rate),
            Sharing::Count => law.shared_window().map(Share::Count),
            Sharing::Lease => law.shared_window().map(Share::Lease),
            Sharing::Split | Sharing::Local => None,
        }
    }

    /// How long a view without requests still affects decisions.
    pub(super) fn memory(&self) -> Duration {
        match self {
            Share::Rate(gcra) => gcra.burst().saturating_add(gcra.delay_max()),
            Share::Count(window) | Share::Lease(window) => window.longest(),
        }
    }

    /// The number of requests that may be admitted at once.
    pub(super) fn limit(&self) -> u32 {
        match self {
            Share::Rate(gcra) => gcra.burst_requests(),
            Share::Count(window) | Share::Lease(window) => window.limit,
        }
    }

    /// The estimated number of clients, in thousandths, that this delay implies.
    pub(super) fn milli_clients(&self, delay: Duration, cost: u32) -> u32 {
        match self {
            Share::Rate(gcra) => gcra.milli_clients(delay.as_nanos() as u64, cost),
            Share::Count(_) | Share::Lease(_) => 1_000,
        }
    }

    /// The time in which the budget for one request refills, and the time in which the whole budget refills. None if
    /// every request must be reported.
    pub(super) fn slot_and_room(&self) -> Option<(Duration, Duration)> {
        match self {
            Share::Rate(gcra) => Some((gcra.slot(), gcra.burst())),
            Share::Count(window) => Some((window.longest() / window.limit.max(1), window.longest())),
            Share::Lease(_) => None,
        }
    }
}

impl LocalView {
    /// The state of a key after a node has admitted this many requests without reporting them.
    pub(super) fn new(share: &Share<'_>, situation: &Situation<'_>, unreported: f64) -> LocalView {
        let now = situation.now;
        match *share {
            Share::Rate(gcra) => {
                LocalView::Rate((*gcra, View::owing(&situation.plan(gcra), unreported, now)))
            }
            Share::Count(windowed) => LocalView::Count((*windowed, CountView::owing(unreported, now))),
            Share::Lease(windowed) => LocalView::Lease((*windowed, LeaseView::new(now))),
        }
    }

    /// Adopts the numbers of this share. Returns false and makes the state unusable if an edit has changed the mode.
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

    /// The view of the `rate` mode, with its plan. None in any other mode.
    pub(super) fn of_rate(&mut self, situation: &Situation<'_>) -> Option<(&mut View, Plan)> {
        let LocalView::Rate((gcra, view)) = self else { return None };
        Some((view, situation.plan(gcra)))
    }

    /// Judges a request of this cost. `hold` is set if the request costs 1 and this node can hold its answer.
    pub(super) fn judge(&mut self, situation: &Situation<'_>, cost: u32, hold: Option<Sample>) -> Judgement {
        let (cost, now) = (f64::from(cost), situation.now);
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

    fn remaining(&self, situation: &Situation<'_>) -> u32 {
        let now = situation.now;
        match self {
            LocalView::Rate((gcra, view)) => view.remaining(&situation.plan(gcra), now),
            LocalView::Count((windowed, view)) => view.remaining(&situation.quota(windowed), now),
            LocalView::Lease((windowed, view)) => view.remaining(&situation.quota(windowed), now),
        }
    }

    /// The law's formula with the numbers of a request of this cost.
    pub(super) fn explain(self, situation: &Situation<'_>, cost: u32) -> String {
        let left = self.remaining(situation);
        match self {
            LocalView::Rate((gcra, view)) => {
                let plan = situation.plan(&gcra);
                of_rate(&view.stats(&plan, situation.now), &plan, cost)
            }
            LocalView::Count((windowed, _)) => {
                format!("room for {left} of {} in the window, as last reported by all nodes", windowed.limit)
            }
            LocalView::Lease((windowed, _)) => {
                format!("this node may admit {left} more of the {} in the window", windowed.limit)
            }
        }
    }

    /// The quota used by all nodes. None in the `rate` mode.
    pub(super) fn used(&self, situation: &Situation<'_>) -> Option<Used> {
        match self {
            LocalView::Rate(..) => None,
            LocalView::Count((windowed, view)) => Some(view.used(&situation.quota(windowed), situation.now)),
            LocalView::Lease((windowed, view)) => Some(view.used(&situation.quota(windowed), situation.now)),
        }
    }

    /// Adds `more`, which may be negative, to the charge of an admitted request.
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

    /// The report that is due now, if any.
    pub(super) fn arguments(&mut self, situation: &Situation<'_>) -> Option<Arguments> {
        let now = situation.now;
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

    /// Applies the answer to these arguments, and returns whether the demand leaves no room for requests that nodes
    /// admit unreported. Updates and answers of another mode do not affect this state. Under a lease, no request is
    /// unreported.
    pub(super) fn reply(
        &mut self,
        situation: &Situation<'_>,
        arguments: &Arguments,
        answer: &Answer,
    ) -> bool {
        let now = situation.now;
        match (self, arguments, answer) {
            (LocalView::Rate((gcra, view)), Arguments::Rate(message), Answer::Rate(reply)) => {
                let plan = situation.plan(gcra);
                view.reply(&plan, message, reply, now);
                reply.is_crowded(&plan)
            }
            (LocalView::Count((windowed, view)), Arguments::Count(_), Answer::Count(reply)) => {
                view.reply(reply, now);
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

    /// The number of requests admitted but not yet reported.
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
    /// Whether the store had forgotten the key, and these arguments restored it. Only the `rate` mode can tell.
    pub fn restores(&self, answer: &Answer) -> bool {
        matches!(
            (self, answer),
            (Arguments::Rate(Message { restore_s: Some(_), .. }), Answer::Rate(reply)) if reply.age_s == 0.0
        )
    }
}

fn of_rate(stats: &Stats, plan: &Plan, cost: u32) -> String {
    let cost_s = f64::from(cost) * plan.slot_s();
    let tokens = (-stats.ahead_s * plan.rate_per_s).max(0.0);
    let wait = match stats.ahead_s + cost_s {
        wait_s if wait_s > 0.0 => format!("wait {} behind the requests of all nodes", ms(wait_s)),
        _ => format!("tokens {tokens:.0} of burst {:.0} >= cost {cost}", plan.burst),
    };
    format!("{wait}; {}", known(stats, plan))
}

/// The node's view of the other nodes, in words.
fn known(stats: &Stats, plan: &Plan) -> String {
    let &Stats { own_per_s, others_per_s, share, replied, silent, .. } = stats;
    match (share, silent) {
        (share, Some(silent)) => {
            let part = share.unwrap_or(1.0 / f64::from(plan.nodes.max(1)));
            format!(
                "the store has been silent for {}: this node takes {:.1} % of the rate",
                ms(silent.as_secs_f64()),
                part * 100.0
            )
        }
        (None, None) => {
            format!("no reply from the store yet: each request counts once per node; nodes: {}", plan.nodes)
        }
        (Some(share), None) => format!(
            "share {:.1} % of the demand: {own_per_s:.1}/s here, {others_per_s:.1}/s elsewhere, as of {} ago",
            share * 100.0,
            ms(replied.unwrap_or(Duration::ZERO).as_secs_f64()),
        ),
    }
}

fn ms(seconds: f64) -> String {
    if seconds < 10.0 { format!("{:.0} ms", seconds * 1e3) } else { format!("{seconds:.0} s") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::plan::tests::plan;

    /// At 10/s, with a burst of 20, on two nodes.
    #[test]
    fn a_request_waits_for_what_is_missing_and_passes_when_nothing_is() {
        let plan = plan(10.0, 20.0);
        let of = |ahead_s, cost| {
            let (own_per_s, others_per_s, share, replied, silent) = (0.0, 0.0, None, None, None);
            of_rate(&Stats { ahead_s, own_per_s, others_per_s, share, replied, silent }, &plan, cost)
        };
        let ignorant = "; no reply from the store yet: each request counts once per node; nodes: 2";
        assert_eq!(of(0.4, 1), format!("wait 500 ms behind the requests of all nodes{ignorant}"));
        assert_eq!(of(-0.5, 6), format!("wait 100 ms behind the requests of all nodes{ignorant}"));
        assert_eq!(of(-0.5, 5), format!("tokens 5 of burst 20 >= cost 5{ignorant}"));
    }
}
