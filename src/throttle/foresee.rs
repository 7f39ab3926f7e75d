//! The decision that a request would get, without making it.

use arrayvec::ArrayVec;

use crate::base::draw::Draw;
use crate::base::time::Timestamp;
use crate::base::verdict::{Decision, JUDGED_MAX, Judged};
use crate::law::{Arrival, Judgement};
use crate::policy::{Case, Cases};
use crate::table::{Entry, Found};
use crate::throttle::state::{Throttle, judged};

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
    pub judgement: Judgement,
    /// The law's formula with its numbers.
    pub formula: String,
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
        let views: ArrayVec<View, JUDGED_MAX> =
            cases.list.iter().map(|case| self.view(case, arrival)).collect();
        let judged: ArrayVec<Judged, JUDGED_MAX> =
            cases.list.iter().zip(&views).map(|(case, view)| judged(case, view.judgement)).collect();
        Foreseen { decision: Decision::of(&judged, arrival.cost, now), views }
    }

    fn view(&self, case: &Case<'_>, arrival: Arrival) -> View {
        let &Case { slo, key, sharer } = case;
        let arrival = Arrival { sharer, ..arrival };
        let found = self.table.row(key, arrival.now);
        let entry = found.map_or(Entry::default(), |found| found.entry);
        let annex = self.annexes.copy(key, &slo.law, arrival.cost, arrival.now);
        let judgement = slo.law.foresee(&mut { entry }, annex.clone().as_mut(), &arrival);
        View { found, formula: slo.law.explain(&slo.objective, &entry, annex.as_ref(), &arrival), judgement }
    }
}
