//! The decision on a batch: requests of one key in their order, rows of one shard side by side.

use std::time::Duration;

use arrayvec::ArrayVec;

use crate::base::blocked::Blocked;
use crate::base::draw::Draw;
use crate::base::key::Key;
use crate::base::request::Request;
use crate::base::sharing::Sharing;
use crate::base::time::Timestamp;
use crate::base::verdict::{Decision, JUDGED_MAX, Judged};
use crate::cluster::{OnSilence, Terms};
use crate::law::{Arrival, Judgement, Law};
use crate::policy::{BATCH_MAX, Batch, Case, Slo};
use crate::table::Entry;
use crate::throttle::ruling::Ruling;
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
            if let Some(blocked) = cases.blocked.filter(|blocked| blocked.holds_at(now)) {
                self.settle(&mut pending, now, decisions);
                decisions.push(self.refuse_blocked(&cases.list, blocked, arrival));
                return;
            }
            match cases.list.as_slice() {
                &[case] => {
                    if pending.must_settle_before(&case) {
                        self.settle(&mut pending, now, decisions);
                    }
                    pending.push(case, arrival, self.memory(&case));
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
            let Single { case, arrival, ruling } = &mut singles[place];
            *ruling = Some(self.judge(case, entry, Arrival { now, ..*arrival }, Way::Judge));
        });
        // Decisions are made after the rows are unlocked.
        for Single { case, arrival, ruling } in singles.iter() {
            let ruling = ruling.expect("each key has been written");
            let judged = self.judged(case, &ruling);
            let mut decision = Decision::of_one(judged, arrival.cost, arrival.now);
            decision.blocked = ruling.blocked(case);
            self.open_ticket(&mut decision, std::slice::from_ref(case));
            decisions.push(decision);
        }
        pending.clear();
    }

    /// Decides a request under several SLOs as one step, by the strictest verdict. If one SLO denies the
    /// request, the others count it as asked, but not as let through. For that their rows are restored first.
    /// Annexes are written only after all SLOs have judged.
    fn decide_together(&self, cases: &[Case<'_>], arrival: Arrival) -> Decision {
        let keys: ArrayVec<_, JUDGED_MAX> = cases.iter().map(|case| (case.key, self.memory(case))).collect();
        let mut decision = self.table.with_each(&keys, arrival.now, |entries, now| {
            let arrival = Arrival { now, ..arrival };
            let before: ArrayVec<Entry, JUDGED_MAX> = entries.iter().copied().collect();
            let mut blocked = None;
            let judge = |(case, entry)| {
                let ruling = self.judge(case, entry, arrival, Way::Foresee);
                blocked = blocked.or(ruling.blocked(case));
                self.judged(case, &ruling)
            };
            let judged: ArrayVec<Judged, JUDGED_MAX> =
                cases.iter().zip(entries.iter_mut()).map(judge).collect();
            let mut decision = Decision::of(&judged, arrival.cost, arrival.now);
            decision.blocked = blocked;
            for (place, case) in cases.iter().enumerate().filter(|&(place, _)| judged[place].is_counted()) {
                if !decision.is_let_through() {
                    entries[place] = before[place];
                    entries[place].ask(arrival.cost, arrival.now);
                } else if case.slo.law.has_annex() || self.is_shared(case) {
                    // `foresee` left the annex and the view as they were. Judging again writes the row and them.
                    entries[place] = before[place];
                    self.judge(case, &mut entries[place], arrival, Way::Judge);
                }
            }
            decision
        });
        self.open_ticket(&mut decision, cases);
        decision
    }

    /// Refuses a request that an operator has blocked. It counts as asked under all of its SLOs.
    #[cold]
    fn refuse_blocked(&self, cases: &[Case<'_>], blocked: Blocked, arrival: Arrival) -> Decision {
        let keys: ArrayVec<_, JUDGED_MAX> =
            cases.iter().map(|case| (case.key, case.slo.law.memory())).collect();
        self.table.with_each(&keys, arrival.now, |entries, now| {
            entries.iter_mut().for_each(|entry| entry.ask(arrival.cost, now));
        });
        let ruling = Ruling::of_block(blocked, arrival.now);
        let judged: ArrayVec<Judged, JUDGED_MAX> =
            cases.iter().map(|case| ruling.judged_by_operator(case)).collect();
        let mut decision = Decision::of(&judged, arrival.cost, arrival.now);
        decision.blocked = Some(blocked);
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

    /// A request whose key is blocked counts as asked, and its law is not asked. A refusal may begin a block.
    #[inline]
    fn judge(&self, case: &Case<'_>, entry: &mut Entry, arrival: Arrival, way: Way) -> Ruling {
        if let Some(blocked) = self.blocks.find(case, arrival.now) {
            entry.ask(arrival.cost, arrival.now);
            return Ruling::of_block(blocked, arrival.now);
        }
        let arrival = Arrival { sharer: case.sharer, ..arrival };
        let judgement = match self.cluster {
            Some(_) => self.judge_shared(case, entry, &arrival, way),
            None => None,
        };
        let judgement = judgement.unwrap_or_else(|| self.judge_here(case, entry, &arrival, way));
        self.blocks.refused(case, judgement.verdict, arrival.now);
        Ruling::of_law(judgement)
    }

    /// Judges a request that is a matter of this node alone.
    #[inline]
    fn judge_here(&self, case: &Case<'_>, entry: &mut Entry, arrival: &Arrival, way: Way) -> Judgement {
        let law = &case.slo.law;
        let judge = match way {
            Way::Judge => Law::judge,
            Way::Foresee => Law::foresee,
        };
        self.annexes.with(case.key, law, arrival.cost, arrival.now, |annex| judge(law, entry, annex, arrival))
    }

    /// Adds the SLO to a ruling, and counts a fallback.
    #[inline]
    fn judged(&self, case: &Case<'_>, ruling: &Ruling) -> Judged {
        if ruling.judgement.fell_back {
            self.count_fallback();
        }
        ruling.judged(case)
    }

    /// Judges a request under a law that nodes share. None if it is a matter of this node alone.
    pub(super) fn judge_shared(
        &self,
        case: &Case<'_>,
        entry: &mut Entry,
        arrival: &Arrival,
        way: Way,
    ) -> Option<Judgement> {
        let cluster = self.cluster.as_deref().filter(|_| arrival.cost > 0)?;
        let Slo { law, sharing, .. } = case.slo;
        let terms = Terms::new(*sharing, law);
        let shared = terms.and_then(|terms| match way {
            Way::Judge => cluster.judge(case.key, &terms, entry, arrival),
            Way::Foresee => cluster.foresee(case.key, &terms, entry, arrival),
        });
        // Without room for one more shared key, or without a store, the node takes a part of the rate for itself.
        shared.or_else(|| Some(self.law_alone(case.slo)?.judge(entry, None, arrival)))
    }

    /// The law of a node that takes a part of a shared SLO for itself. None if it is not shared.
    pub(super) fn law_alone(&self, slo: &Slo) -> Option<Law> {
        let cluster = self.cluster.as_deref().filter(|_| slo.sharing != Sharing::Local)?;
        let is_open = slo.sharing != Sharing::Split
            && cluster.is_silent()
            && cluster.settings().on_silence == OnSilence::Open;
        Some(if is_open { slo.law } else { slo.law.split(cluster.nodes()) })
    }
}

/// Whether a judgement counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Judge,
    /// Annexes and views stay as they are.
    Foresee,
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
    ruling: Option<Ruling>,
}

impl<'p> Pending<'p> {
    /// Whether the pending requests must be judged before this one. Annexes and tickets share one bound, so requests
    /// that need them are judged in their order.
    fn must_settle_before(&self, case: &Case<'_>) -> bool {
        self.uses_annexes && uses_annexes(&case.slo.law)
    }

    #[inline]
    fn push(&mut self, case: Case<'p>, arrival: Arrival, memory: Duration) {
        self.uses_annexes |= uses_annexes(&case.slo.law);
        self.keys.push((case.key, memory));
        self.singles.push(Single { case, arrival, ruling: None });
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
