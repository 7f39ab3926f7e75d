//! The decision on a batch: requests of one key in their order, rows of one shard side by side.

use std::time::Duration;

use arrayvec::ArrayVec;

use crate::base::draw::Draw;
use crate::base::key::Key;
use crate::base::request::Request;
use crate::base::time::Timestamp;
use crate::base::verdict::{Decision, JUDGED_MAX, Judged};
use crate::law::{Annex, Arrival, Judgement, Law};
use crate::policy::{BATCH_MAX, Batch, Case};
use crate::table::Entry;
use crate::throttle::state::Throttle;

/// The decisions on a batch, in the order of its requests.
pub type Decisions = ArrayVec<Decision, BATCH_MAX>;

impl Throttle {
    /// Decides the requests of a batch, and counts them. Verdicts, rows and annexes are the same as when
    /// deciding one by one. The results replace the content of `decisions`.
    ///
    /// ```
    /// # use slowlane::{policy::Policy, table::Sizing, throttle::Throttle};
    /// # use std::time::Duration;
    /// use slowlane::{base::draw::Draw, base::request::Request, base::time::Timestamp};
    /// use slowlane::{policy::Batch, throttle::Decisions};
    /// # let sizing = Sizing { entries_max: 1_000, expire: Duration::from_secs(30) };
    /// # let read = |path: &std::path::Path| match path.to_str() {
    /// #     Some("slo.map") => Ok(b"0 burst=10000 rate=5000/s".to_vec()),
    /// #     _ => Err(std::io::ErrorKind::NotFound.into()),
    /// # };
    /// # let limited = Policy::parse("".as_ref(), &slowlane::policy::Layout::default(), read).unwrap();
    /// # let throttle = Throttle::new(limited, sizing, 1 << 20);
    /// let policy = throttle.policy();
    /// let mut batch = Batch::of(&policy);
    /// for _ in 0..2 {
    ///     batch.push(&Request::new());
    /// }
    /// let mut decisions = Decisions::new();
    /// throttle.decide(&batch, Timestamp::from_millis(60_000), || Draw::MIDDLE, &mut decisions);
    /// assert_eq!(decisions.iter().map(|decision| decision.remaining).collect::<Vec<_>>(), [9_999, 9_998]);
    /// ```
    pub fn decide(
        &self,
        batch: &Batch<'_, '_>,
        now: Timestamp,
        mut draw: impl FnMut() -> Draw,
        decisions: &mut Decisions,
    ) {
        decisions.clear();
        let mut pending = Pending::default();
        batch.classify(|cases| {
            let arrival = Arrival { now, draw: draw(), cost: cases.cost, sharer: 0 };
            match cases.list.as_slice() {
                &[case] => {
                    if pending.must_settle_before(&case) {
                        self.settle(&mut pending, now, decisions);
                    }
                    pending.push(case, arrival);
                }
                several => {
                    self.settle(&mut pending, now, decisions);
                    decisions.push(self.decide_together(several, arrival));
                }
            }
        });
        self.settle(&mut pending, now, decisions);
    }

    /// Decides one request: a batch of one.
    ///
    /// ```
    /// use slowlane::{base::draw::Draw, policy::Policy, base::request::Request, table::Sizing, throttle::Throttle};
    /// use slowlane::{base::time::Timestamp, base::verdict::Verdict};
    /// use std::time::Duration;
    ///
    /// let sizing = Sizing { entries_max: 1_000, expire: Duration::from_secs(30) };
    /// let throttle = Throttle::new(Policy::builtin(), sizing, 1 << 20);
    /// let decision = throttle.decide_one(&Request::new(), Timestamp::from_millis(1), Draw::MIDDLE);
    /// assert_eq!(decision.verdict, Verdict::Pass);
    /// ```
    pub fn decide_one(&self, request: &Request<'_>, now: Timestamp, draw: Draw) -> Decision {
        let policy = self.policy();
        let mut batch = Batch::of(&policy);
        batch.push(request);
        let mut decisions = Decisions::new();
        self.decide(&batch, now, || draw, &mut decisions);
        decisions[0]
    }

    /// Judges the pending requests and appends their decisions, in their order.
    fn settle(&self, pending: &mut Pending<'_>, now: Timestamp, decisions: &mut Decisions) {
        let Pending { keys, singles, .. } = pending;
        self.table.with_batch(keys, now, |place, entry, now| {
            let Single { case, arrival, judgement } = &mut singles[place];
            *judgement = Some(self.judge(case, entry, Arrival { now, ..*arrival }, Law::judge));
        });
        // Decisions are made after the rows are unlocked.
        for Single { case, arrival, judgement } in singles.iter() {
            let judged = self.judged(case, judgement.expect("each key has been written"));
            let mut decision = Decision::of_one(judged, arrival.cost, arrival.now);
            self.open_ticket(&mut decision, std::slice::from_ref(case));
            decisions.push(decision);
        }
        pending.clear();
    }

    /// Decides a request under several SLOs as one step, by the strictest verdict. If one SLO denies the
    /// request, the others count it as asked, but not as let through. For that their rows are restored first.
    /// Annexes are written only after all SLOs have judged.
    fn decide_together(&self, cases: &[Case<'_>], arrival: Arrival) -> Decision {
        let keys: ArrayVec<_, JUDGED_MAX> =
            cases.iter().map(|case| (case.key, case.slo.law.memory())).collect();
        let mut decision = self.table.with_each(&keys, arrival.now, |entries, now| {
            let arrival = Arrival { now, ..arrival };
            let before: ArrayVec<Entry, JUDGED_MAX> = entries.iter().copied().collect();
            let judge = |(case, entry)| self.judged(case, self.judge(case, entry, arrival, Law::foresee));
            let judged: ArrayVec<Judged, JUDGED_MAX> =
                cases.iter().zip(entries.iter_mut()).map(judge).collect();
            let decision = Decision::of(&judged, arrival.cost, arrival.now);
            for (place, case) in cases.iter().enumerate().filter(|&(place, _)| judged[place].is_counted()) {
                if !decision.is_let_through() {
                    entries[place] = before[place];
                    entries[place].ask(arrival.cost, arrival.now);
                } else if case.slo.law.has_annex() {
                    // `foresee` left the annex as it was. Judging again writes the row and the annex.
                    entries[place] = before[place];
                    self.judge(case, &mut entries[place], arrival, Law::judge);
                }
            }
            decision
        });
        self.open_ticket(&mut decision, cases);
        decision
    }

    /// Opens the ticket of a decision, if an SLO counts the request until its end.
    #[inline]
    fn open_ticket(&self, decision: &mut Decision, cases: &[Case<'_>]) {
        if !decision.has_ticket() {
            return;
        }
        let at = decision.at;
        decision.number(|judged| {
            let case = cases.iter().find(|case| (case.slo.id, case.key) == (judged.slo, judged.key));
            let lease = case.expect("each judgement is one of a case").slo.law.memory();
            self.annexes.open_ticket(judged.key, lease, at).unwrap_or_else(|| {
                self.count_fallback();
                0
            })
        });
    }

    #[inline]
    fn judge(
        &self,
        case: &Case<'_>,
        entry: &mut Entry,
        arrival: Arrival,
        judge: impl FnOnce(&Law, &mut Entry, Option<&mut Annex>, &Arrival) -> Judgement,
    ) -> Judgement {
        let &Case { slo, key, sharer } = case;
        let arrival = Arrival { sharer, ..arrival };
        self.annexes
            .with(key, &slo.law, arrival.cost, arrival.now, |annex| judge(&slo.law, entry, annex, &arrival))
    }
}

/// Requests under one SLO each, judged side by side.
#[derive(Default)]
struct Pending<'p> {
    keys: ArrayVec<(Key, Duration), BATCH_MAX>,
    singles: ArrayVec<Single<'p>, BATCH_MAX>,
    uses_annexes: bool,
}

/// A request under one SLO.
struct Single<'p> {
    case: Case<'p>,
    arrival: Arrival,
    judgement: Option<Judgement>,
}

impl<'p> Pending<'p> {
    /// Whether the pending requests must be judged before this one. Annexes and tickets share one bound, so requests
    /// that need them are judged in their order.
    fn must_settle_before(&self, case: &Case<'_>) -> bool {
        self.uses_annexes && uses_annexes(&case.slo.law)
    }

    #[inline]
    fn push(&mut self, case: Case<'p>, arrival: Arrival) {
        self.uses_annexes |= uses_annexes(&case.slo.law);
        self.keys.push((case.key, case.slo.law.memory()));
        self.singles.push(Single { case, arrival, judgement: None });
    }

    fn clear(&mut self) {
        self.keys.clear();
        self.singles.clear();
        self.uses_annexes = false;
    }
}

/// Whether requests under the law need an annex or a ticket.
fn uses_annexes(law: &Law) -> bool {
    law.has_annex() || law.counts_ends()
}
