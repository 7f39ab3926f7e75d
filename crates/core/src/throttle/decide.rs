//! The decision on a batch: requests with one key are judged in order, and the rows of one shard are written together.

use std::time::Duration;

use arrayvec::ArrayVec;

use crate::base::{
    BATCH_MAX, Blocked, Decision, Decisions, Ends, JUDGED_MAX, Judged, Key, Request, Ruling, Sample,
    Timestamp, Verdict,
};
use crate::law::protect::{Means, ProtectView};
use crate::law::{Arrival, Judgement};
use crate::policy::{Batch, Case, LookedUp, SloPlan};
use crate::table::{EACH_MAX, Entry};
use crate::throttle::Throttle;
use crate::throttle::assured::{Carried, Guarantee};

impl Throttle {
    /// Decides the requests of a batch, and counts them. Verdicts, rows and auxiliary states are the same as if each
    /// request were decided by itself. The results replace the content of `decisions`.
    ///
    /// ```
    /// # use slowlane_core::{policy::Policy, table::Sizing, throttle::Throttle};
    /// # use std::time::Duration;
    /// use slowlane_core::base::{Decisions, Request, Sample, Timestamp};
    /// use slowlane_core::policy::Batch;
    /// # let sizing = Sizing { entries_max: 1_000, expire: Duration::from_secs(30) };
    /// # let read = |path: &std::path::Path| match path.to_str() {
    /// #     Some("slo.map") => Ok(b"0 burst=10000 rate=5000/s".to_vec()),
    /// #     _ => Err(std::io::ErrorKind::NotFound.into()),
    /// # };
    /// # let limited = Policy::parse("".as_ref(), &slowlane_core::policy::Layout::default(), read).unwrap();
    /// # let throttle = Throttle::new(limited, sizing, 1 << 20);
    /// let policy = throttle.policy();
    /// let mut batch = Batch::of(&policy);
    /// for _ in 0..2 {
    ///     batch.push(&Request::new());
    /// }
    /// let mut decisions = Decisions::new();
    /// throttle.decide(&batch, Timestamp::from_millis(60_000), &mut || Sample::MIDDLE, &mut decisions);
    /// assert_eq!(decisions.iter().map(|(ruling, _)| ruling.remaining).collect::<Vec<_>>(), [9_999, 9_998]);
    /// ```
    pub fn decide(
        &self,
        batch: &Batch<'_, '_>,
        now: Timestamp,
        sample: &mut dyn FnMut() -> Sample,
        decisions: &mut Decisions,
    ) {
        decisions.clear();
        let mut pending = Pending::default();
        let looked_up = batch.look_up(now);
        for row in 0..batch.len() {
            let Some((case, cost)) = batch.only_case(row, &looked_up) else {
                self.settle(&mut pending, batch, now, decisions);
                self.decide_several(&looked_up, (batch, row), (now, sample()), decisions);
                continue;
            };
            if pending.must_settle_before(case.plan) {
                self.settle(&mut pending, batch, now, decisions);
            }
            // In a cluster, a node that holds requests chooses at random which of them may wait for other nodes' slots.
            let draws = case.plan.draws || self.cluster.is_some();
            let sample = if draws { sample() } else { Sample::MIDDLE };
            decisions.push_ruling(Ruling::unruled(case.key, case.plan.id, cost));
            let single = Single { case, cost, sample, row: row as u32, may_hold: batch.may_hold(row) };
            let is_bare = case.plan.is_plain && self.cluster.is_none();
            let keep = if is_bare { case.plan.keep } else { self.memory(&case) };
            self.reserve(pending.push(single, keep));
        }
        self.settle(&mut pending, batch, now, decisions);
    }

    /// Decides a request that has several SLOs or an SLO with a sketch, or that an operator may have blocked.
    #[cold]
    fn decide_several(
        &self,
        looked_up: &LookedUp,
        (batch, row): (&Batch<'_, '_>, usize),
        (now, sample): (Timestamp, Sample),
        decisions: &mut Decisions,
    ) {
        let cases = batch.cases(row, looked_up);
        let arrival = Arrival { now, sample, cost: cases.cost, sharer: 0, may_hold: cases.may_hold };
        decisions.push(match cases.blocked.filter(|blocked| blocked.holds_at(now)) {
            Some(blocked) => self.refuse_blocked(&cases.list, blocked, arrival),
            None => self.decide_together(&cases.list, (batch, row), arrival),
        });
    }

    /// Decides a single request, as a batch of one.
    ///
    /// ```
    /// use slowlane_core::{base::{Request, Sample}, policy::Policy, table::Sizing, throttle::Throttle};
    /// use slowlane_core::base::{Timestamp, Verdict};
    /// use std::time::Duration;
    ///
    /// let sizing = Sizing { entries_max: 1_000, expire: Duration::from_secs(30) };
    /// let throttle = Throttle::new(Policy::builtin(), sizing, 1 << 20);
    /// let decision = throttle.decide_one(&Request::new(), Timestamp::from_millis(1), Sample::MIDDLE);
    /// assert_eq!(decision.verdict, Verdict::Pass);
    /// ```
    pub fn decide_one(&self, request: &Request<'_>, now: Timestamp, sample: Sample) -> Decision {
        let policy = self.policy();
        let mut batch = Batch::of(&policy);
        batch.push(request);
        let mut decisions = Decisions::new();
        self.decide(&batch, now, &mut || sample, &mut decisions);
        decisions.only()
    }

    /// If the SLO counts work, adjusts the reservation to the estimate of the case's key and to this node's part.
    #[inline]
    pub(super) fn reserve(&self, case: &mut Case<'_>) {
        if case.slo.ends.is_work() {
            self.reserve_work(case);
        }
    }

    #[cold]
    fn reserve_work(&self, case: &mut Case<'_>) {
        if let Some(work) = case.slo.work.as_ref().filter(|work| work.is_learned()) {
            case.cost = work.reservation(None, self.aux_store.estimate(case.key));
        }
        // The limit of a node's part of a window may be smaller than the reservation.
        if let Some(window) = self.law_alone(case.slo).window() {
            case.cost = case.cost.min(window.limit.max(1));
        }
    }

    /// Judges the pending requests, and puts each decision in its place.
    fn settle(
        &self,
        pending: &mut Pending<'_>,
        batch: &Batch<'_, '_>,
        now: Timestamp,
        decisions: &mut Decisions,
    ) {
        let Pending { keys, singles, .. } = pending;
        let first = decisions.count() - singles.len();
        let mut others: ArrayVec<(usize, Judgement, Timestamp), BATCH_MAX> = ArrayVec::new();
        // The row's moment becomes the decision's moment, because a ticket or a disconnect refers to the row's moment.
        self.table.with_batch(keys, now, |place, entry, now| {
            let judgement = self.judge_single(&singles[place], entry, now);
            if singles[place].case.plan.is_plain && judgement.is_plain() {
                decisions.rule(first + place, judgement.verdict, judgement.remaining, now);
            } else {
                others.push((place, judgement, now));
            }
        });
        // These decisions are made after the rows are unlocked, and in order, because some of them open tickets.
        others.sort_unstable_by_key(|&(place, ..)| place);
        for &(place, ref judgement, at) in &others {
            self.put_decision((first + place, decisions), &singles[place], judgement, batch, at);
        }
        pending.clear();
    }

    /// Whether a plain law decides alone, because there is no cluster and no key is blocked.
    #[inline]
    fn decides_alone(&self) -> bool {
        self.cluster.is_none() && self.blocks.keys.is_empty()
    }

    /// Judges a request under one SLO.
    #[inline]
    fn judge_single(&self, single: &Single<'_>, entry: &mut Entry, now: Timestamp) -> Judgement {
        let &Single { ref case, cost, sample, may_hold, .. } = single;
        let arrival = Arrival { now, sample, cost, sharer: 0, may_hold };
        if case.plan.is_plain && self.decides_alone() {
            return case.slo.law.judge(entry, None, &arrival);
        }
        self.judge_general(case, entry, arrival)
    }

    #[inline(never)]
    fn judge_general(&self, case: &Case<'_>, entry: &mut Entry, arrival: Arrival) -> Judgement {
        self.judge_and_note(case, entry, arrival, Way::Judge)
    }

    /// Puts the decision under one SLO into its place.
    #[inline(never)]
    fn put_decision(
        &self,
        (place, decisions): (usize, &mut Decisions),
        single: &Single<'_>,
        judgement: &Judgement,
        batch: &Batch<'_, '_>,
        at: Timestamp,
    ) {
        self.note_fallback(judgement);
        let case = &single.case;
        let mut decision = Decision::of_one(case.judged(judgement), single.cost, at);
        decision.set_turn(judgement.turn);
        decision.set_blocked(case.blocked(judgement));
        if case.slo.ends != Ends::Never {
            let cases = std::slice::from_ref(case);
            let number = self.ask_gate(&mut decision, cases, (batch, single.row as usize));
            self.open_ticket(&mut decision, cases, number);
        }
        decisions.put(place, decision);
    }

    /// If a request is let through, asks the application that the first protecting SLO protects to admit it,
    /// and revises the decision. Returns the request's number there, for its ticket. Other protecting SLOs
    /// merely count the request.
    fn ask_gate(
        &self,
        decision: &mut Decision,
        cases: &[Case<'_>],
        (batch, row): (&Batch<'_, '_>, usize),
    ) -> u32 {
        let protected = cases.iter().find_map(|case| Some((case, case.slo.law.protection()?)));
        let Some((case, protection)) = protected.filter(|_| decision.has_ticket()) else { return 0 };
        let is_it = |judged: &Judged| (judged.slo, judged.key) == (case.slo.id, case.key);
        let judged = decision.judged();
        let Some(place) = judged.iter().position(is_it) else { return 0 };
        let is_assured =
            place > 0 && !case.is_added && self.is_assured(&cases[..place], case.key, &judged, decision.at);
        let means = match (case.slo.dry_run || is_assured, batch.may_hold(row)) {
            (true, _) => Means::Watch,
            (_, true) => Means::Hold,
            (_, false) => Means::Refuse,
        };
        let asker = batch.asker(row, case.slo.id);
        let asked = (protection.settings, means);
        let name = || batch.group_name(row, case.slo.id);
        let arrived = self.gates.arrive(&judged[place], asked, (&asker, name), decision.at);
        let Some((id, verdict, waits)) = arrived else {
            self.count_fallback();
            return 0;
        };
        if is_assured {
            return id.bits();
        }
        if !verdict.is_let_through() && !case.slo.dry_run {
            self.take_back(batch.policy(), decision, decision.at);
        }
        if waits || verdict != Verdict::Pass && (case.slo.dry_run || !verdict.is_let_through()) {
            decision.revise(place, verdict, if waits { id.bits().into() } else { 0 });
        }
        id.bits()
    }

    /// Whether an assured rate lets a request bypass a full application. If so, the rate is charged, but only once.
    fn is_assured(&self, below: &[Case<'_>], application: Key, judged: &[Judged], now: Timestamp) -> bool {
        let is_full = |view: ProtectView| view.waiting > 0 || view.inside >= view.limit;
        self.gates.view(application).is_some_and(is_full)
            && below.iter().zip(judged).any(|(case, judged)| {
                let Some((assured, key)) = self.assured(case).zip(case.assured) else { return false };
                judged.assurance.carries
                    || self.table.with(key, now, assured.memory(), |entry| {
                        let has_room = assured.has_room(entry, case.cost, now);
                        has_room.then(|| assured.charge(entry, case.cost, now));
                        has_room
                    })
            })
    }

    /// Decides a request under several SLOs in one step, by the strictest verdict. If one SLO denies the request, the
    /// rows of the other SLOs are restored, and count the request as received but not as admitted. Auxiliary states are
    /// written only after all SLOs have judged. The assured rate of an SLO may overrule the SLOs above it.
    ///
    /// Sketches judge first, and take the request back if another SLO denies it. If a sketch denies the
    /// request, no new row is stored.
    pub(super) fn decide_together(
        &self,
        cases: &[Case<'_>],
        asked: (&Batch<'_, '_>, usize),
        mut arrival: Arrival,
    ) -> Decision {
        // The longest of several delays is final: the request waits in no queue of the cluster.
        arrival.may_hold = false;
        let mut cases: ArrayVec<Case<'_>, JUDGED_MAX> = cases.iter().copied().collect();
        cases.iter_mut().for_each(|case| self.reserve(case));
        let staged = self.ask_sketches(&cases, &mut arrival);
        let (cases, is_refused) = (staged.cases.as_slice(), staged.is_refused());
        let in_rows: ArrayVec<usize, JUDGED_MAX> =
            (0..cases.len()).filter(|&place| staged.judgements[place].is_none()).collect();
        let mut keys: ArrayVec<_, EACH_MAX> =
            in_rows.iter().map(|&place| (cases[place].key, self.memory(&cases[place]))).collect();
        let mut guarantees = self.guarantees(cases, |_| Entry::default());
        keys.extend(
            guarantees
                .iter()
                .filter_map(|guarantee| Some((cases[guarantee.place].assured?, guarantee.assured.memory()))),
        );
        let way = if is_refused { Way::Refused } else { Way::Foresee };
        let mut decision = self.table.with_each(&keys, arrival.now, is_refused, |entries, now| {
            let arrival = Arrival { now, ..arrival };
            let (entries, assured) = entries.split_at_mut(in_rows.len());
            for (guarantee, entry) in guarantees.iter_mut().zip(&*assured) {
                guarantee.entry = *entry;
            }
            let before: ArrayVec<Entry, JUDGED_MAX> = entries.iter().copied().collect();
            let mut rows = entries.iter_mut();
            let rule = |(case, judgement): (&Case<'_>, &Option<Judgement>)| {
                let mut rule =
                    || self.judge_keeping_rate(case, rows.next().expect("a row for each rule"), arrival, way);
                judgement.unwrap_or_else(&mut rule)
            };
            let judgements: ArrayVec<Judgement, JUDGED_MAX> =
                cases.iter().zip(&staged.judgements).map(rule).collect();
            judgements.iter().for_each(|judgement| self.note_fallback(judgement));
            let decision = combine(cases, &judgements, &guarantees, arrival);
            for (row, &place) in in_rows.iter().enumerate() {
                let (judged, entry) = (&decision.judged()[place], &mut entries[row]);
                let states = (before[row], entry);
                self.settle_one(&cases[place], &judgements[place], judged, &decision, states, arrival);
            }
            for (guarantee, entry) in guarantees.iter().zip(assured) {
                if decision.judged()[guarantee.place].assurance.carries {
                    guarantee.assured.charge(entry, cases[guarantee.place].cost, now);
                }
            }
            decision
        });
        if !decision.is_let_through() {
            self.leave_sketches(&decision.judged(), &staged, &arrival);
        }
        let cases = staged.cases.as_slice();
        let number = self.ask_gate(&mut decision, cases, asked);
        self.open_ticket(&mut decision, cases, number);
        decision
    }

    /// Writes the part of a decision that concerns one of several SLOs to the SLO's row. The row keeps the
    /// state from the judgement, or is first reset to `before`. A refusal may start a block.
    fn settle_one(
        &self,
        case: &Case<'_>,
        judgement: &Judgement,
        judged: &Judged,
        decision: &Decision,
        (before, entry): (Entry, &mut Entry),
        arrival: Arrival,
    ) {
        let (verdict, law) = (judged.verdict, &case.slo.law);
        let arrival = Arrival { cost: case.cost, ..arrival };
        if !judged.assurance.is_carried && !judgement.is_block() {
            self.refused(case, verdict, arrival.now);
        }
        match (decision.is_let_through(), verdict.is_let_through()) {
            (true, true) if law.has_aux() || self.shared(case.slo).is_some() => {
                // `foresee` left the auxiliary state and the local view unchanged. Judging again updates them and the
                // row.
                *entry = before;
                self.judge_and_note(case, entry, arrival, Way::Judge);
            }
            (true, false) if judged.assurance.is_carried => {
                *entry = before;
                self.add_debt(case, entry, arrival);
            }
            (false, true) => {
                *entry = before;
                entry.ask(arrival.cost, arrival.now);
            }
            _ => {}
        }
    }

    /// Charges a request that an SLO has not admitted but that passes anyway.
    pub(super) fn add_debt(&self, case: &Case<'_>, entry: &mut Entry, arrival: Arrival) {
        let shared = self.shared(case.slo);
        if shared.is_none_or(|(cluster, share)| !cluster.add_debt(case.key, &share, entry, &arrival)) {
            let law = self.law_alone(case.slo);
            law.gcra().inspect(|gcra| gcra.owing().add_debt(entry, &arrival));
        }
    }

    /// Refuses a request that an operator has blocked. The rows of all its SLOs, but no sketches, count it as received.
    #[cold]
    pub(super) fn refuse_blocked(&self, cases: &[Case<'_>], blocked: Blocked, arrival: Arrival) -> Decision {
        let in_rows = cases.iter().filter(|case| case.slo.law.sketched().is_none());
        let keys: ArrayVec<_, JUDGED_MAX> =
            in_rows.clone().map(|case| (case.key, case.slo.law.memory())).collect();
        self.table.with_each(&keys, arrival.now, false, |entries, now| {
            entries.iter_mut().zip(in_rows).for_each(|(entry, case)| entry.ask(case.cost, now));
        });
        refusal(cases, blocked, arrival)
    }

    /// Opens the ticket of a decision, if an SLO counts the request until it ends. `protected` is the
    /// request's number in its protected application.
    #[inline]
    fn open_ticket(&self, decision: &mut Decision, cases: &[Case<'_>], protected: u32) {
        if !decision.has_ticket() {
            return;
        }
        let at = decision.at;
        decision.number(|judged| {
            let case = cases.iter().find(|case| (case.slo.id, case.key) == (judged.slo, judged.key));
            let slo = case.expect("each judgement belongs to a case").slo;
            if slo.law.protection().is_some() {
                return protected;
            }
            let work = slo.work.as_ref().map(|work| work.estimate());
            self.aux_store.open_ticket(judged.key, slo.lease(), work, at).unwrap_or_else(|| {
                self.count_fallback();
                0
            })
        });
    }

    /// Judges a request. A refusal may start a block.
    #[inline]
    fn judge_and_note(&self, case: &Case<'_>, entry: &mut Entry, arrival: Arrival, way: Way) -> Judgement {
        let judgement = self.judge_keeping_rate(case, entry, arrival, way);
        if !judgement.is_block() {
            self.refused(case, judgement.verdict, arrival.now);
        }
        judgement
    }

    /// A refusal may start a block, but not while the SLO refuses all requests because the store is silent.
    #[inline]
    fn refused(&self, case: &Case<'_>, verdict: Verdict, now: Timestamp) {
        if !verdict.is_let_through()
            && !self.shared(case.slo).is_some_and(|(cluster, share)| cluster.is_closed(&share))
        {
            self.blocks.refused(case, verdict, now);
        }
    }

    /// Judges a request. If its SLO counts work, the rate of admitted work stays unchanged, because this rate
    /// counts true costs, which are known only when requests end.
    #[inline]
    fn judge_keeping_rate(
        &self,
        case: &Case<'_>,
        entry: &mut Entry,
        arrival: Arrival,
        way: Way,
    ) -> Judgement {
        let settled = entry.gpc1_rate;
        let judgement = self.judge_unless_blocked(case, entry, arrival, way);
        if case.slo.ends.is_work() {
            entry.gpc1_rate = settled;
        }
        judgement
    }

    /// Judges a request. If its key is blocked, the request counts as received, and the law is not consulted.
    #[inline]
    fn judge_unless_blocked(
        &self,
        case: &Case<'_>,
        entry: &mut Entry,
        arrival: Arrival,
        way: Way,
    ) -> Judgement {
        if let Some(blocked) = self.blocks.find(case, arrival.now) {
            entry.ask(case.cost, arrival.now);
            return Judgement::blocked(blocked, arrival.now);
        }
        let may_hold = arrival.may_hold && !case.slo.dry_run;
        let arrival = Arrival { sharer: case.sharer, cost: case.cost, may_hold, ..arrival };
        let judgement = match self.cluster {
            Some(_) => self.judge_shared(case, entry, &arrival, way),
            None => None,
        };
        judgement.unwrap_or_else(|| self.judge_alone(case, entry, &arrival, way))
    }

    /// Judges a request that this node decides alone.
    #[inline]
    fn judge_alone(&self, case: &Case<'_>, entry: &mut Entry, arrival: &Arrival, way: Way) -> Judgement {
        let law = &case.slo.law;
        match way {
            Way::Judge => self
                .aux_store
                .with(case.key, law, arrival.cost, arrival.now, |aux| law.judge(entry, aux, arrival)),
            Way::Foresee => self
                .aux_store
                .with(case.key, law, arrival.cost, arrival.now, |aux| law.foresee(entry, aux, arrival)),
            Way::Refused => {
                self.aux_store.with_known_or_fresh(case.key, law, arrival.cost, arrival.now, |aux| {
                    law.foresee(entry, aux, arrival)
                })
            }
        }
    }

    /// Counts the judgement if a simpler law made it.
    #[inline]
    fn note_fallback(&self, judgement: &Judgement) {
        if judgement.fell_back {
            self.count_fallback();
        }
    }

    /// Judges a request under an SLO that nodes share or divide. None if the SLO is this node's own, or the cost is 0.
    pub(super) fn judge_shared(
        &self,
        case: &Case<'_>,
        entry: &mut Entry,
        arrival: &Arrival,
        way: Way,
    ) -> Option<Judgement> {
        self.cluster_of(case.slo).filter(|_| arrival.cost > 0)?.note_use();
        let shared = self.shared(case.slo).and_then(|(cluster, share)| match way {
            Way::Judge => cluster.judge(case.key, &share, entry, arrival),
            Way::Foresee | Way::Refused => cluster.foresee(case.key, &share, entry, arrival),
        });
        // Judges alone if nodes divide the SLO, if no more shared keys fit, or if the store of shared counts is silent.
        Some(shared.unwrap_or_else(|| self.law_alone(case.slo).judge(entry, None, arrival)))
    }
}

/// Combines several judgements into one decision.
pub(super) fn combine(
    cases: &[Case<'_>],
    judgements: &[Judgement],
    guarantees: &[Guarantee],
    arrival: Arrival,
) -> Decision {
    let Arrival { cost, now, .. } = arrival;
    let mut judged: ArrayVec<Judged, JUDGED_MAX> =
        cases.iter().zip(judgements).map(|(case, judgement)| case.judged(judgement)).collect();
    if let Some(carried) = Carried::find(cases, judgements, guarantees, now) {
        carried.mark(&mut judged, guarantees);
    }
    let mut decision = Decision::of(&judged, cost, now);
    decision.set_blocked(blocked(cases, judgements, &judged));
    decision
}

/// The decision on a request that an operator has blocked. A dry run does not lift the block.
pub(super) fn refusal(cases: &[Case<'_>], blocked: Blocked, arrival: Arrival) -> Decision {
    let judgement = Judgement::blocked(blocked, arrival.now);
    let judged: ArrayVec<Judged, JUDGED_MAX> =
        cases.iter().map(|case| Judged { is_dry_run: false, ..case.judged(&judgement) }).collect();
    let mut decision = Decision::of(&judged, arrival.cost, arrival.now);
    decision.set_blocked(Some(blocked));
    decision
}

/// The key's block that decides: the first block that no assured rate lets the request bypass.
fn blocked(cases: &[Case<'_>], judgements: &[Judgement], judged: &[Judged]) -> Option<Blocked> {
    let in_force =
        cases.iter().zip(judgements).zip(judged).filter(|(_, judged)| !judged.assurance.is_carried);
    in_force.filter_map(|((case, judgement), _)| case.blocked(judgement)).next()
}

/// Which state a judgement changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Judge,
    /// Auxiliary states and the cluster's local views stay unchanged.
    Foresee,
    /// Like `Foresee`, for a request that a sketch has refused. No state is stored for a new key.
    Refused,
}

/// Requests under one SLO each, judged together.
#[derive(Default)]
struct Pending<'p> {
    keys: ArrayVec<(Key, Duration), BATCH_MAX>,
    singles: ArrayVec<Single<'p>, BATCH_MAX>,
    uses_aux: bool,
}

/// A request under one SLO.
struct Single<'p> {
    case: Case<'p>,
    cost: u32,
    sample: Sample,
    /// The request's place in the batch.
    row: u32,
    may_hold: bool,
}

impl<'p> Pending<'p> {
    /// Whether the pending requests must be judged before this one. Auxiliary states and tickets share one bound, so
    /// requests that need them are judged in the order of arrival.
    fn must_settle_before(&self, plan: &SloPlan) -> bool {
        self.uses_aux && plan.uses_aux
    }

    #[inline]
    fn push(&mut self, single: Single<'p>, memory: Duration) -> &mut Case<'p> {
        self.uses_aux |= single.case.plan.uses_aux;
        self.keys.push((single.case.key, memory));
        self.singles.push(single);
        &mut self.singles.last_mut().expect("a case was just added").case
    }

    fn clear(&mut self) {
        self.keys.clear();
        self.singles.clear();
        self.uses_aux = false;
    }
}
