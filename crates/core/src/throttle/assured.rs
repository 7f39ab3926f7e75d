//! Assured rates: the SLO that carries a request past those above it.
//!
//! ```text
//! cases    2001 assured=10/s ─also▶ 1001 assured=60/s ─also▶ 9001       own SLO first, those above after it
//!          └ carries past 1001 and 9001  └ carries past 9001
//! ```
//! The first SLO with room in its assured rate carries the request past all SLOs after it. They are charged all the
//! same, and their own assured rates with them, so that others wait the longer.

use arrayvec::ArrayVec;

use crate::base::{Assurance, JUDGED_MAX, Judged, Timestamp, Verdict};
use crate::law::{Assured, Gcra, Judgement};
use crate::policy::{Case, Slo};
use crate::table::Entry;
use crate::throttle::Throttle;

/// An SLO of a request that carries it, and the SLOs that it is carried past.
#[derive(Clone, Copy, Debug)]
pub(super) struct Carried {
    /// The place of the SLO that carries.
    pub(super) by: usize,
    /// The last place that would delay or refuse the request.
    last: usize,
    /// How many more requests it would carry at once.
    remaining: u32,
}

/// An assured rate that may carry a request: the place of its SLO, and its row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guarantee {
    pub(super) place: usize,
    pub(super) assured: Assured,
    pub(super) entry: Entry,
}

/// The assured rates of one request.
pub(super) type Guarantees = ArrayVec<Guarantee, JUDGED_MAX>;

impl Carried {
    /// Finds the first SLO that can carry a request of this cost. None if no SLO above one with an assured rate stops
    /// it, or if it is refused all the same.
    pub(super) fn find(
        cases: &[Case<'_>],
        judgements: &[Judgement],
        guarantees: &[Guarantee],
        cost: u32,
        now: Timestamp,
    ) -> Option<Carried> {
        let stops = |place: usize| !cases[place].slo.dry_run && judgements[place].verdict != Verdict::Pass;
        let last = (0..cases.len()).rev().find(|&place| stops(place))?;
        let has_room = |guarantee: &&Guarantee| guarantee.assured.has_room(&guarantee.entry, cost, now);
        let guarantee = guarantees.iter().filter(|guarantee| guarantee.place < last).find(has_room)?;
        let by = guarantee.place;
        let refuses = |place: usize| stops(place) && !judgements[place].verdict.is_let_through();
        let is_refused = (0..=by).any(refuses);
        // An SLO with rate 0 is closed for all.
        let is_closed = (by + 1..=last)
            .any(|place| stops(place) && !cases[place].slo.law.gcra().is_some_and(Gcra::can_owe));
        let remaining = guarantee.assured.remaining(&guarantee.entry, now).saturating_sub(cost);
        (!is_refused && !is_closed).then_some(Carried { by, last, remaining })
    }

    /// Whether the verdict of a place is overruled.
    fn overrules(self, place: usize, judged: &Judged) -> bool {
        place > self.by && !judged.is_dry_run && judged.verdict != Verdict::Pass
    }

    /// Whether the assured rate of a place is charged: that of the SLO that carries, and those of the SLOs between.
    pub(super) fn charges(self, place: usize) -> bool {
        (self.by..self.last).contains(&place)
    }

    /// Notes in the judgements which of them carry, and which are overruled.
    pub(super) fn mark(self, judged: &mut [Judged], guarantees: &[Guarantee]) {
        for (place, judged) in judged.iter_mut().enumerate() {
            let is_guarantee = guarantees.iter().any(|guarantee| guarantee.place == place);
            let carries = is_guarantee && self.charges(place);
            let is_carried = self.overrules(place, judged);
            judged.assurance = Assurance { carries, is_carried };
            if is_carried {
                judged.remaining = self.remaining;
            }
        }
    }
}

impl Throttle {
    /// The assured rate of a case, as far as this node gives it. None without one, and if no SLO is above. A dry run
    /// carries nothing.
    #[inline]
    pub(super) fn assured(&self, case: &Case<'_>) -> Option<Assured> {
        case.assured.filter(|_| !case.slo.dry_run).and_then(|_| self.assured_by(case.slo))
    }

    /// The assured rates of a request, each with a copy of its row.
    pub(super) fn guarantees(&self, cases: &[Case<'_>], entry: impl Fn(&Case<'_>) -> Entry) -> Guarantees {
        let guarantee = |(place, case): (usize, &Case<'_>)| {
            Some(Guarantee { place, assured: self.assured(case)?, entry: entry(case) })
        };
        cases.iter().enumerate().filter_map(guarantee).collect()
    }

    /// The assured rate of an SLO, as far as this node gives it.
    pub(super) fn assured_by(&self, slo: &Slo) -> Option<Assured> {
        let assured = slo.assured?;
        // Each node assures an equal part: all of them together never assure more than the line says.
        Some(self.cluster_of(slo).map_or(assured, |cluster| assured.split(cluster.nodes())))
    }
}
