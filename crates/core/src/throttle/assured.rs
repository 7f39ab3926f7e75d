//! Assured rates: a request within the assured rate of an SLO bypasses the SLOs above that SLO.
//!
//! ```text
//! cases    2001 assured=10/s ─also▶ 1001 assured=60/s ─also▶ 9001       own SLO first, then the SLOs above it
//!          └ carries past 1001 and 9001  └ carries past 9001
//! ```
//! The first SLO with room in its assured rate lets the request bypass the SLOs after it. The bypassed SLOs
//! are charged anyway, and so are the assured rates from this SLO up to, but excluding, the last one that
//! stops the request. Other requests wait longer.

use arrayvec::ArrayVec;

use crate::base::{Assurance, JUDGED_MAX, Judged, Timestamp, Verdict};
use crate::law::{Assured, Gcra, Judgement, Law};
use crate::policy::{Case, Slo};
use crate::table::Entry;
use crate::throttle::Throttle;

/// The SLO whose assured rate lets a request bypass other SLOs, and the range of the bypassed SLOs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Carried {
    /// The index of the SLO with the assured rate.
    pub(super) by: usize,
    /// The index of the last SLO that would delay or refuse the request.
    last: usize,
    /// The number of SLOs in the chain. SLOs that a lookup adds come after the chain, and are not bypassed.
    chain: usize,
    /// How many more requests of cost 1 the assured rate would let through at once.
    remaining: u32,
}

/// An assured rate that may let a request bypass SLOs, with the index of the rate's SLO and the rate's row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guarantee {
    pub(super) place: usize,
    pub(super) assured: Assured,
    pub(super) entry: Entry,
}

/// The assured rates of one request.
pub(super) type Guarantees = ArrayVec<Guarantee, JUDGED_MAX>;

impl Carried {
    /// Finds the first SLO whose assured rate has room for the request, below the last SLO that stops the
    /// request. None if there is no such SLO, if an SLO that is not bypassed refuses the request, or if a
    /// bypassed SLO that stops the request has no room for debt.
    pub(super) fn find(
        cases: &[Case<'_>],
        judgements: &[Judgement],
        guarantees: &[Guarantee],
        now: Timestamp,
    ) -> Option<Carried> {
        let stops = |place: usize| !cases[place].slo.dry_run && judgements[place].verdict != Verdict::Pass;
        let chain = cases.iter().take_while(|case| !case.is_added).count();
        let last = (0..chain).rev().find(|&place| stops(place))?;
        let has_room = |guarantee: &&Guarantee| {
            guarantee.assured.has_room(&guarantee.entry, cases[guarantee.place].cost, now)
        };
        let guarantee = guarantees.iter().filter(|guarantee| guarantee.place < last).find(has_room)?;
        let by = guarantee.place;
        let refuses = |place: usize| stops(place) && !judgements[place].verdict.is_let_through();
        let is_refused = (0..=by).chain(chain..cases.len()).any(refuses);
        // An SLO with a rate of 0 cannot be bypassed. A protected application always has room for one more request.
        let has_room = |law: &Law| law.protection().is_some() || law.gcra().is_some_and(Gcra::can_owe);
        let is_closed = (by + 1..=last).any(|place| stops(place) && !has_room(&cases[place].slo.law));
        let remaining = guarantee.assured.remaining(&guarantee.entry, now).saturating_sub(cases[by].cost);
        (!is_refused && !is_closed).then_some(Carried { by, last, chain, remaining })
    }

    /// Whether the verdict with this index is overruled.
    fn overrules(self, place: usize, judged: &Judged) -> bool {
        (self.by + 1..self.chain).contains(&place) && !judged.is_dry_run && judged.verdict != Verdict::Pass
    }

    /// Whether the assured rate of this SLO is charged: its index is from `by` up to, but not including, `last`.
    pub(super) fn charges(self, place: usize) -> bool {
        (self.by..self.last).contains(&place)
    }

    /// Marks the judgements whose assured rates are charged, and the judgements whose verdicts are overruled.
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
    /// The assured rate of a case on this node. None if the SLO has none, has no SLO above it, or is a dry run.
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

    /// The assured rate of an SLO on this node.
    pub(super) fn assured_by(&self, slo: &Slo) -> Option<Assured> {
        let assured = slo.assured?;
        // Each node assures an equal part, so that the nodes together never assure more than the SLO's line says.
        Some(self.cluster_of(slo).map_or(assured, |cluster| assured.split(cluster.nodes())))
    }
}
