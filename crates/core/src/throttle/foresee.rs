//! The decision that a request would get, found without counting the request.

use std::time::Duration;

use arrayvec::ArrayVec;

use crate::base::units::written;
use crate::base::{Blocked, Decision, JUDGED_MAX, Sample, Timestamp, UNCOUNTED, Verdict, plural};
use crate::law::protect::ProtectView;
use crate::law::{Arrival, Assured, Judgement, Used};
use crate::policy::{Asker, Case, Cases};
use crate::table::{Entry, Found, Sketch};
use crate::throttle::Throttle;
use crate::throttle::decide::{Way, combine, refusal};
use crate::throttle::gates::Outlook;
use crate::throttle::sketches::Staged;

/// The decision that a request would get, with the reasons for it.
#[derive(Clone, Debug)]
pub struct Foreseen {
    pub decision: Decision,
    /// One view for each SLO, in the order of the cases.
    pub views: ArrayVec<View, JUDGED_MAX>,
}

/// The verdict that one SLO would give.
#[derive(Clone, Debug)]
pub struct View {
    /// The key's entry. None if the key would begin with a fresh entry.
    pub found: Option<Found>,
    /// The law's formula with its numbers.
    pub formula: String,
    /// How much of a quota is used. None if the law has a rate instead.
    pub used: Option<Used>,
    /// The formula of the SLO's assured rate. None if the SLO has no assured rate, or no SLO is above it.
    pub assured: Option<String>,
    pub judgement: Judgement,
}

impl Throttle {
    /// The result that [`decide`](Throttle::decide) would give for a request under these SLOs. Nothing is
    /// counted or changed.
    ///
    /// ```
    /// # use slowlane_core::{base::{Request, Sample}, policy::Policy, table::Sizing, throttle::Throttle};
    /// # use slowlane_core::base::Timestamp;
    /// # use std::time::Duration;
    /// # let sizing = Sizing { entries_max: 1_000, expire: Duration::from_secs(30) };
    /// # let read = |path: &std::path::Path| match path.to_str() {
    /// # Some("slo.map") => Ok(b"0 burst=10000 rate=5000/s".to_vec()),
    /// # _ => Err(std::io::ErrorKind::NotFound.into()),
    /// # };
    /// # let limited = Policy::parse("".as_ref(), &slowlane_core::policy::Layout::default(), read).unwrap();
    /// # let throttle = Throttle::new(limited, sizing, 1 << 20);
    /// let (policy, now) = (throttle.policy(), Timestamp::from_millis(60_000));
    /// let foreseen = || throttle.foresee(&policy.cases(&Request::new()), now, Sample::MIDDLE).decision.remaining;
    /// assert_eq!([foreseen(), foreseen()], [9_999, 9_999]);
    /// throttle.decide_one(&Request::new(), now, Sample::MIDDLE);
    /// assert_eq!(foreseen(), 9_998);
    /// ```
    pub fn foresee(&self, cases: &Cases<'_>, now: Timestamp, sample: Sample) -> Foreseen {
        self.foresee_for(None, cases, now, sample)
    }

    /// Like [`foresee`](Throttle::foresee), but with the page and the groups by which a protected application decides.
    pub fn foresee_for(
        &self,
        asker: Option<&Asker>,
        cases: &Cases<'_>,
        now: Timestamp,
        sample: Sample,
    ) -> Foreseen {
        let arrival = Arrival { now, sample, cost: cases.cost, sharer: 0, may_hold: false };
        let by_operator = cases.blocked.filter(|blocked| blocked.holds_at(now));
        let mut list: ArrayVec<Case<'_>, JUDGED_MAX> = cases.list.clone();
        list.iter_mut().for_each(|case| self.reserve(case));
        let staged = match by_operator {
            Some(_) => Staged::unasked(&list),
            None => Staged::new(&list, &self.sketches, |case, sketch, _| {
                self.read_sketched(case, sketch, &arrival)
            }),
        };
        let view = |case| match staged.has(case) {
            true => self.view(case, (asker, by_operator), arrival),
            false => self.left_out(case, arrival),
        };
        let views: ArrayVec<View, JUDGED_MAX> = list.iter().map(view).collect();
        let asked = list.iter().zip(&views).filter(|(case, _)| staged.has(case));
        let judgements: ArrayVec<Judgement, JUDGED_MAX> = asked.map(|(_, view)| view.judgement).collect();
        let cases = staged.cases.as_slice();
        let decision = match by_operator {
            Some(blocked) => refusal(cases, blocked, arrival),
            None => {
                let guarantees = self.guarantees(cases, |case| self.assured_entry(case, now));
                combine(cases, &judgements, &guarantees, arrival)
            }
        };
        Foreseen { decision, views }
    }

    fn view(
        &self,
        case: &Case<'_>,
        (asker, by_operator): (Option<&Asker>, Option<Blocked>),
        arrival: Arrival,
    ) -> View {
        let &Case { slo, key, sharer, .. } = case;
        let (arrival, now) = (Arrival { sharer, cost: case.cost, ..arrival }, arrival.now);
        let found = self.table.row(key, now);
        let entry = found.map_or(Entry::default(), |found| found.entry);
        let aux = self.aux_store.copy(key, &slo.law, arrival.cost, now);
        let of_nodes = self.shared(slo).and_then(|(cluster, share)| cluster.used(key, &share, now));
        let used = of_nodes.or_else(|| slo.law.used(&entry, aux.as_ref(), now));
        if let Some(blocked) = by_operator.or_else(|| self.blocks.find(case, now)) {
            let formula = "not consulted: the request is blocked".into();
            let judgement = Judgement::blocked(blocked, now);
            return View { found, formula, used, assured: None, judgement };
        }
        if let Some(sketch) = self.sketch(slo) {
            let formula = explain_sketched(case, &sketch, arrival);
            let judgement = self.read_sketched(case, &sketch, &arrival);
            return View { found, formula, used: None, assured: None, judgement };
        }
        if slo.law.protection().is_some()
            && let Some(of) = asker.and_then(|asker| self.gates.foresee(key, asker, now))
        {
            let (verdict, formula) = of_gate(&of);
            let judgement = Judgement::new(verdict, UNCOUNTED);
            return View { found, formula, used: None, assured: None, judgement };
        }
        let shared = self.judge_shared(case, &mut { entry }, &arrival, Way::Foresee);
        let judgement =
            shared.unwrap_or_else(|| slo.law.foresee(&mut { entry }, aux.clone().as_mut(), &arrival));
        let of_shared = self.explain_shared(case, &entry, &arrival);
        let formula =
            of_shared.unwrap_or_else(|| slo.law.explain(&slo.scale(), &entry, aux.as_ref(), &arrival));
        let explain = |assured: Assured| assured.explain(&self.assured_entry(case, now), arrival.cost, now);
        let assured = self.assured(case).map(explain);
        View { found, formula, used, assured, judgement }
    }

    fn assured_entry(&self, case: &Case<'_>, now: Timestamp) -> Entry {
        case.assured.map_or(Entry::default(), |key| self.entry(key, now))
    }

    /// The view of an SLO that takes no part in the decision: a first stage whose rate is exceeded, or an SLO
    /// behind a first stage whose rate is not exceeded.
    fn left_out(&self, case: &Case<'_>, arrival: Arrival) -> View {
        let formula = match self.sketch(case.slo) {
            Some(sketch) => {
                explain_sketched(case, &sketch, arrival) + "; beyond this rate, the SLOs from also= apply"
            }
            None => "not consulted: the request is within the rate of the first stage".into(),
        };
        let judgement = Judgement::new(Verdict::Pass, UNCOUNTED);
        View { found: self.table.row(case.key, arrival.now), formula, used: None, assured: None, judgement }
    }

    /// The formula of an SLO that nodes share or divide. None if the SLO is this node's own, or the cost is 0.
    fn explain_shared(&self, case: &Case<'_>, entry: &Entry, arrival: &Arrival) -> Option<String> {
        let cluster = self.cluster_of(case.slo).filter(|_| arrival.cost > 0)?;
        let shared =
            self.shared(case.slo).and_then(|(_, share)| cluster.explain(case.key, &share, entry, arrival));
        shared.or_else(|| {
            let alone = self.law_alone(case.slo).explain(&case.slo.scale(), entry, None, arrival);
            Some(format!("as one of {} nodes: {alone}", cluster.nodes()))
        })
    }
}

/// The verdict of a protected application on one more request, and its explanation. A client that has used
/// little need not wait for the whole queue.
fn of_gate(of: &Outlook) -> (Verdict, String) {
    let &ProtectView { limit, inside, waiting, slow_down, .. } = &of.view;
    let state = format!("{inside} inside, limit {limit}, {waiting} waiting, slow-down {slow_down:.2}");
    if !of.view.sees_ends {
        return (
            Verdict::Pass,
            format!("{state}; no proxy has reported the end of a request, so this request passes"),
        );
    }
    if inside < limit && waiting == 0 {
        return (Verdict::Pass, format!("{state}; the request passes"));
    }
    let wait = Duration::from_millis(of.wait.as_millis().max(1) as u64);
    let behind = of.behind.as_ref().map_or(String::new(), |group| {
        format!("the request waits behind {} of {}; ", plural(group.requests, "request"), group.name)
    });
    (Verdict::Delay(wait), format!("{state}; {behind}the request's turn is in about {}", written(wait)))
}

/// The formula of a law that counts in a sketch.
fn explain_sketched(case: &Case<'_>, sketch: &Sketch, arrival: Arrival) -> String {
    let law = &case.slo.law;
    let Some(sketched) = law.sketched() else { return String::new() };
    let (entry, now) = sketched.row(&sketch.read(case.key, arrival.now));
    law.explain(&case.slo.scale(), &entry, None, &Arrival { now, ..arrival })
}
