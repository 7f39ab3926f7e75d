//! The decision that a request would get, without making it.

use arrayvec::ArrayVec;

use crate::base::blocked::Blocked;
use crate::base::draw::Draw;
use crate::base::time::Timestamp;
use crate::base::verdict::{Decision, JUDGED_MAX, Judged};
use crate::cluster::Terms;
use crate::law::{Arrival, Judgement};
use crate::policy::{Case, Cases, Slo};
use crate::table::{Entry, Found};
use crate::throttle::decide::Way;
use crate::throttle::ruling::Ruling;
use crate::throttle::state::Throttle;

/// A decision that was not made, with the reasons for it.
#[derive(Clone, Debug)]
pub struct Foreseen {
    pub decision: Decision,
    /// One view for each SLO, in the order of the cases.
    pub views: ArrayVec<View, JUDGED_MAX>,
}

/// The verdict that one SLO would give.
#[derive(Clone, Debug)]
pub struct View {
    /// None means that the key would begin with a fresh entry.
    pub found: Option<Found>,
    /// The law's formula with its numbers.
    pub formula: String,
    ruling: Ruling,
}

impl View {
    pub fn judgement(&self) -> Judgement {
        self.ruling.judgement
    }
}

impl Throttle {
    /// The result of [`decide`](Throttle::decide) for a request under these SLOs. Nothing is counted, and
    /// nothing changes.
    ///
    /// ```
    /// # use slowlane::{base::draw::Draw, policy::Policy, base::request::Request, table::Sizing, throttle::Throttle};
    /// # use slowlane::base::time::Timestamp;
    /// # use std::time::Duration;
    /// # let sizing = Sizing { entries_max: 1_000, expire: Duration::from_secs(30) };
    /// # let read = |path: &std::path::Path| match path.to_str() {
    /// #     Some("slo.map") => Ok(b"0 burst=10000 rate=5000/s".to_vec()),
    /// #     _ => Err(std::io::ErrorKind::NotFound.into()),
    /// # };
    /// # let limited = Policy::parse("".as_ref(), &slowlane::policy::Layout::default(), read).unwrap();
    /// # let throttle = Throttle::new(limited, sizing, 1 << 20);
    /// let (policy, now) = (throttle.policy(), Timestamp::from_millis(60_000));
    /// let foreseen = || throttle.foresee(&policy.cases(&Request::new()), now, Draw::MIDDLE).decision.remaining;
    /// assert_eq!([foreseen(), foreseen()], [9_999, 9_999]);
    /// throttle.decide_one(&Request::new(), now, Draw::MIDDLE);
    /// assert_eq!(foreseen(), 9_998);
    /// ```
    pub fn foresee(&self, cases: &Cases<'_>, now: Timestamp, draw: Draw) -> Foreseen {
        let arrival = Arrival { now, draw, cost: cases.cost, sharer: 0 };
        let by_operator = cases.blocked.filter(|blocked| blocked.holds_at(now));
        let views: ArrayVec<View, JUDGED_MAX> =
            cases.list.iter().map(|case| self.view(case, by_operator, arrival)).collect();
        let each = || cases.list.iter().zip(&views);
        let judged: ArrayVec<Judged, JUDGED_MAX> = each()
            .map(|(case, view)| match by_operator {
                None => view.ruling.judged(case),
                Some(_) => view.ruling.judged_by_operator(case),
            })
            .collect();
        let blocked = by_operator.or_else(|| each().find_map(|(case, view)| view.ruling.blocked(case)));
        let mut decision = Decision::of(&judged, arrival.cost, now);
        decision.blocked = blocked;
        Foreseen { decision, views }
    }

    fn view(&self, case: &Case<'_>, by_operator: Option<Blocked>, arrival: Arrival) -> View {
        let &Case { slo, key, sharer } = case;
        let arrival = Arrival { sharer, ..arrival };
        let found = self.table.row(key, arrival.now);
        if let Some(blocked) = by_operator.or_else(|| self.blocks.find(case, arrival.now)) {
            let formula = "not asked: the request is blocked".into();
            return View { found, formula, ruling: Ruling::of_block(blocked, arrival.now) };
        }
        let entry = found.map_or(Entry::default(), |found| found.entry);
        let annex = self.annexes.copy(key, &slo.law, arrival.cost, arrival.now);
        let shared = self.judge_shared(case, &mut { entry }, &arrival, Way::Foresee);
        let judgement =
            shared.unwrap_or_else(|| slo.law.foresee(&mut { entry }, annex.clone().as_mut(), &arrival));
        let of_shared = self.explain_shared(case, &entry, &arrival);
        let formula =
            of_shared.unwrap_or_else(|| slo.law.explain(&slo.objective, &entry, annex.as_ref(), &arrival));
        View { found, formula, ruling: Ruling::of_law(judgement) }
    }

    /// The formula of a law that nodes share. None if it is a matter of this node alone.
    fn explain_shared(&self, case: &Case<'_>, entry: &Entry, arrival: &Arrival) -> Option<String> {
        let cluster = self.cluster.as_deref().filter(|_| arrival.cost > 0)?;
        let Slo { law, objective, sharing, .. } = case.slo;
        let terms = Terms::new(*sharing, law);
        let shared = terms.and_then(|terms| cluster.explain(case.key, &terms, entry, arrival));
        shared.or_else(|| {
            let alone = self.law_alone(case.slo)?.explain(objective, entry, None, arrival);
            Some(format!("one of {} nodes: {alone}", cluster.nodes()))
        })
    }
}
