//! Assured rates: the SLO by which a request bypasses those above it.
//!
//! ```text
//! cases    2001 assured=10/s ─also▶ 1001 assured=60/s ─also▶ 9001       own SLO first, those above after it
//!          └ carries past 1001 and 9001  └ carries past 9001
//! ```
//! By the first SLO that has room in its assured rate, the request bypasses all SLOs after it. They are charged anyway,
//! and so are their own assured rates, so that others wait longer.

use arrayvec::ArrayVec;

use crate::base::{Assurance, JUDGED_MAX, Judged, Timestamp, Verdict};
use crate::law::{Assured, Gcra, Judgement, Law};
use crate::policy::{Case, Slo};
use crate::table::Entry;
use crate::throttle::Throttle;

/// An SLO by which a request bypasses others, and the range of these others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Carried {
    /// The index of the SLO with the assured rate.
    pub(super) by: usize,
    /// The last index that would delay or refuse the request.
    last: usize,
    /// The number of SLOs in the chain. Those that a lookup adds are not bypassed.
    chain: usize,
    /// How many more requests would bypass them at once.
    remaining: u32,
}

/// An assured rate by which a request may bypass others: the index of its SLO, and its row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guarantee {
    pub(super) place: usize,
    pub(super) assured: Assured,
    pub(super) entry: Entry,
}

/// The assured rates of one request.
pub(super) type Guarantees = ArrayVec<Guarantee, JUDGED_MAX>;

impl Carried {
    /// Finds the first SLO by whose assured rate a request can bypass the others. None if no SLO above
    /// one with an assured rate stops the request, or if it is refused anyway.
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
        // An SLO with rate 0 is closed for all. A protected application always has room for one more request.
        let has_room = |law: &Law| law.protection().is_some() || law.gcra().is_some_and(Gcra::can_owe);
        let is_closed = (by + 1..=last).any(|place| stops(place) && !has_room(&cases[place].slo.law));
        let remaining = guarantee.assured.remaining(&guarantee.entry, now).saturating_sub(cases[by].cost);
        (!is_refused && !is_closed).then_some(Carried { by, last, chain, remaining })
    }

    /// Whether the verdict with this index is overruled.
    fn overrules(self, place: usize, judged: &Judged) -> bool {
        (self.by + 1..self.chain).contains(&place) && !judged.is_dry_run && judged.verdict != Verdict::Pass
    }

    /// Whether the assured rate with this index is charged: the found SLO and all SLOs between it and `last` are.
    pub(super) fn charges(self, place: usize) -> bool {
        (self.by..self.last).contains(&place)
    }

    /// Records in the judgements which assured rates are used, and which verdicts are overruled.
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
    /// The assured rate of a case on this node. None without one, or if no SLO is above. A dry run bypasses nothing.
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
        // Each node assures an equal part: all of them together never assure more than the line says.
        Some(self.cluster_of(slo).map_or(assured, |cluster| assured.split(cluster.nodes())))
    }
}
