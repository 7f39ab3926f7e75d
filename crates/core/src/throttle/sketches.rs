//! The SLOs with the `sketch` law, which are consulted before the table and have no row.

use std::sync::Arc;

use arc_swap::ArcSwap;
use arrayvec::ArrayVec;

use crate::base::{JUDGED_MAX, Judged, SloId};
use crate::law::{Arrival, Judgement, Rule};
use crate::policy::{Case, Policy, Slo};
use crate::table::{Seen, Sketch};
use crate::throttle::Throttle;

/// The counts of all keys, for each SLO with the `sketch` law. They stay when another policy is put in force,
/// unless the SLO's window, error or confidence changes.
#[derive(Debug)]
pub(super) struct Sketches(ArcSwap<Vec<SloCounts>>);

#[derive(Clone, Debug)]
struct SloCounts {
    slo: SloId,
    /// The [state shape](Rule::state_shape) of the SLO's law.
    shape: u64,
    sketch: Arc<Sketch>,
    /// Whether no SLO in force uses these counts. Requests under the previous policy may still use them.
    is_over: bool,
}

impl Sketches {
    pub(super) fn of(policy: &Policy) -> Sketches {
        let sketches = Sketches(ArcSwap::default());
        sketches.begin(policy);
        sketches
    }

    /// Prepares the counts of a policy that is about to be put in force.
    pub(super) fn begin(&self, policy: &Policy) {
        let before = self.0.load();
        let counts = |slo: &Slo| {
            let law = slo.law.sketched()?;
            let known = find(&before, slo).cloned();
            let sketch = known.unwrap_or_else(|| Arc::new(Sketch::new(law.shape, law.period())));
            Some(SloCounts { slo: slo.id, shape: law.state_shape(), sketch, is_over: false })
        };
        let mut all: Vec<SloCounts> = policy.slos().filter_map(counts).collect();
        let is_gone =
            |old: &&SloCounts| !old.is_over && all.iter().all(|new| !Arc::ptr_eq(&new.sketch, &old.sketch));
        let gone: Vec<SloCounts> = before.iter().filter(is_gone).cloned().collect();
        all.extend(gone.into_iter().map(|counts| SloCounts { is_over: true, ..counts }));
        self.0.store(Arc::new(all));
    }

    /// Forgets the counts that no SLO uses.
    pub(super) fn sweep(&self) {
        let all = self.0.load();
        if all.iter().any(|counts| counts.is_over) {
            self.0.store(Arc::new(all.iter().filter(|counts| !counts.is_over).cloned().collect()));
        }
    }
}

/// The counts of an SLO. None if its law counts in rows.
fn find<'c>(all: &'c [SloCounts], slo: &Slo) -> Option<&'c Arc<Sketch>> {
    let shape = slo.law.sketched()?.state_shape();
    let own = |counts: &&SloCounts| (counts.slo, counts.shape) == (slo.id, shape);
    all.iter().find(own).map(|counts| &counts.sketch)
}

/// The SLOs that take part in the decision on a request, with the judgements of the SLOs that have a sketch.
#[derive(Default)]
pub(super) struct Staged<'p> {
    pub(super) cases: ArrayVec<Case<'p>, JUDGED_MAX>,
    pub(super) judgements: ArrayVec<Option<Judgement>, JUDGED_MAX>,
}

impl<'p> Staged<'p> {
    /// Consults the sketches with `judge`, whose flag says whether the sketch is a first stage.
    ///
    /// A first stage decides alone on a request within its rate, and takes no part in the decision on a
    /// request beyond that rate.
    #[inline]
    pub(super) fn new(
        cases: &[Case<'p>],
        sketches: &Sketches,
        mut judge: impl FnMut(&Case<'p>, &Sketch, bool) -> Judgement,
    ) -> Staged<'p> {
        let (mut staged, sketches) = (Staged::default(), sketches.0.load());
        for (place, case) in cases.iter().enumerate() {
            let Some(sketch) = find(&sketches, case.slo) else {
                staged.push(case, None);
                continue;
            };
            let is_stage = place + 1 < cases.len() && is_first_stage(case);
            let judgement = judge(case, sketch, is_stage);
            let is_within = judgement.verdict.is_let_through();
            if !is_stage || is_within || judgement.is_block() {
                staged.push(case, Some(judgement));
            }
            if is_stage && is_within {
                break;
            }
        }
        staged
    }

    /// All SLOs of a request. No sketch is consulted.
    pub(super) fn unasked(cases: &[Case<'p>]) -> Staged<'p> {
        let mut staged = Staged::default();
        cases.iter().for_each(|case| staged.push(case, None));
        staged
    }

    /// Whether an SLO takes part in the decision.
    pub(super) fn has(&self, case: &Case<'_>) -> bool {
        self.cases.iter().any(|own| own.slo.id == case.slo.id)
    }

    fn push(&mut self, case: &Case<'p>, judgement: Option<Judgement>) {
        self.cases.push(*case);
        self.judgements.push(judgement);
    }

    /// Whether a sketch refuses the request, so that no new row may be stored for it.
    pub(super) fn is_refused(&self) -> bool {
        let refuses = |(case, judgement): (&Case<'_>, &Option<Judgement>)| {
            !case.slo.dry_run && judgement.is_some_and(|judgement| !judgement.verdict.is_let_through())
        };
        self.cases.iter().zip(&self.judgements).any(refuses)
    }
}

/// Whether the SLO is a first stage: the SLOs after it decide on requests beyond its rate.
fn is_first_stage(case: &Case<'_>) -> bool {
    !case.slo.dry_run && case.slo.law.sketched().is_some_and(|law| law.is_first_stage)
}

impl Throttle {
    /// The counts of an SLO. None if its law counts in rows.
    pub(super) fn sketch(&self, slo: &Slo) -> Option<Arc<Sketch>> {
        find(&self.sketches.0.load(), slo).cloned()
    }

    /// Has sketches count a request if they admit it; first stages always do. Sets the arrival to the moment
    /// of counting.
    #[inline]
    pub(super) fn ask_sketches<'p>(&self, cases: &[Case<'p>], arrival: &mut Arrival) -> Staged<'p> {
        Staged::new(cases, &self.sketches, |case, sketch, is_stage| {
            self.count_sketched(case, sketch, is_stage, arrival)
        })
    }

    #[inline]
    fn count_sketched(
        &self,
        case: &Case<'_>,
        sketch: &Sketch,
        is_stage: bool,
        arrival: &mut Arrival,
    ) -> Judgement {
        if let Some(blocked) = self.blocks.find(case, arrival.now) {
            return Judgement::blocked(blocked, arrival.now);
        }
        let (judgement, moment) = sketch.with(case.key, arrival.cost, arrival.now, |seen| {
            let judgement = judged(case, seen, arrival.cost);
            let is_counted = is_stage || judgement.verdict.is_let_through();
            (is_counted && arrival.cost > 0, judgement)
        });
        arrival.now = moment;
        if !is_stage {
            self.blocks.refused(case, judgement.verdict, arrival.now);
        }
        judgement
    }

    /// The judgement that a sketch would give now.
    pub(super) fn read_sketched(&self, case: &Case<'_>, sketch: &Sketch, arrival: &Arrival) -> Judgement {
        match self.blocks.find(case, arrival.now) {
            Some(blocked) => Judgement::blocked(blocked, arrival.now),
            None => judged(case, &sketch.read(case.key, arrival.now), arrival.cost),
        }
    }

    /// Takes a refused request back from the sketches that admitted it.
    pub(super) fn leave_sketches(&self, judged: &[Judged], staged: &Staged<'_>, arrival: &Arrival) {
        for (case, _) in staged.cases.iter().zip(judged).filter(|(_, judged)| judged.is_counted()) {
            if let Some(sketch) = self.sketch(case.slo) {
                sketch.take_back(case.key, arrival.cost, arrival.now);
            }
        }
    }
}

/// The judgement of a sketch on a request.
#[inline]
fn judged(case: &Case<'_>, seen: &Seen, cost: u32) -> Judgement {
    let law = case.slo.law.sketched().expect("only laws that count in a sketch are judged by a sketch");
    law.judge_seen(seen, cost)
}
