//! The decision: what a proxy is told about one request.

pub mod annexes;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use arrayvec::ArrayVec;

use crate::base::draw::Draw;
use crate::base::key::Key;
use crate::base::quota::Quota;
use crate::base::request::{Request, Value};
use crate::base::slo_id::SloId;
use crate::base::ticket::Ticket;
use crate::base::time::Timestamp;
use crate::base::verdict::{Decision, JUDGED_MAX, Judged};
use crate::law::{Annex, Arrival, Judgement, Law};
use crate::policy::{Case, Cases, Policy};
pub use crate::policy::{DOCKET_MAX, Docket, Fact, Filing};
use crate::table::{Entry, Found, Sizing, Table, Usage};
use crate::throttle::annexes::{AnnexUsage, Annexes};

/// The policy in force, and what is remembered of every key.
#[derive(Debug)]
pub struct Throttle {
    policy: ArcSwap<Policy>,
    table: Table,
    annexes: Annexes,
}

impl Throttle {
    /// The annexes take up at most so many bytes beside the table.
    pub fn new(policy: Policy, sizing: Sizing, annex_bytes_max: usize) -> Throttle {
        let annexes = Annexes::new(annex_bytes_max);
        Throttle { policy: ArcSwap::from_pointee(policy), table: Table::new(sizing), annexes }
    }

    /// Decides one request, and counts it.
    ///
    /// ```
    /// use slowlane::{base::draw::Draw, policy::Policy, base::request::Request, table::Sizing, throttle::Throttle};
    /// use slowlane::{base::time::Timestamp, base::verdict::Verdict};
    /// use std::time::Duration;
    ///
    /// let sizing = Sizing { entries_max: 1_000, expire: Duration::from_secs(30) };
    /// let throttle = Throttle::new(Policy::builtin(), sizing, 1 << 20);
    /// let decision = throttle.decide(&Request::new(), Timestamp::from_millis(1), Draw::MIDDLE);
    /// assert_eq!(decision.verdict, Verdict::Pass);
    /// ```
    pub fn decide(&self, request: &Request<'_>, now: Timestamp, draw: Draw) -> Decision {
        let policy = self.policy.load();
        let cases = policy.cases(request);
        let arrival = Arrival { now, draw, cost: cases.cost, sharer: 0 };
        match cases.list.as_slice() {
            [case] => {
                let memory = case.slo.law.memory();
                let judge = |entry: &mut Entry| self.judge(case, entry, arrival, Law::judge);
                self.decision(case, self.table.with(case.key, now, memory, judge), arrival)
            }
            several => self.decide_all(several, arrival),
        }
    }

    /// Of the one SLO that a request falls under.
    fn decision(&self, case: &Case<'_>, judgement: Judgement, arrival: Arrival) -> Decision {
        Decision::of_one(self.judged(case, judgement), arrival.cost, arrival.now)
    }

    /// Opens a sitting: the policy as it is now decides about several requests.
    pub fn sit(&self) -> Sitting<'_> {
        Sitting { throttle: self, policy: self.policy.load() }
    }

    /// The strictest verdict of several SLOs, as one step. What one of them denies is counted by none: asked
    /// about, but not let through. A row is put back as it was; an annex is written when all have said their
    /// word.
    fn decide_all(&self, cases: &[Case<'_>], arrival: Arrival) -> Decision {
        let keys: ArrayVec<_, JUDGED_MAX> =
            cases.iter().map(|case| (case.key, case.slo.law.memory())).collect();
        self.table.with_each(&keys, arrival.now, |entries| {
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
                    entries[place] = before[place];
                    self.judge(case, &mut entries[place], arrival, Law::judge);
                }
            }
            decision
        })
    }

    fn judge(
        &self,
        case: &Case<'_>,
        entry: &mut Entry,
        arrival: Arrival,
        judge: impl FnOnce(&Law, &mut Entry, Option<&mut Annex>, &Arrival) -> Judgement,
    ) -> Judgement {
        let &Case { slo, key, sharer } = case;
        let arrival = Arrival { sharer, ..arrival };
        match slo.law.has_annex() {
            false => judge(&slo.law, entry, None, &arrival),
            true => self.annexes.with(key, &slo.law, arrival.cost, arrival.now, |annex| {
                judge(&slo.law, entry, annex, &arrival)
            }),
        }
    }

    fn judged(&self, case: &Case<'_>, judgement: Judgement) -> Judged {
        if judgement.fell_back {
            self.annexes.count_fallback();
        }
        judged(case, judgement)
    }

    /// What [`decide`](Throttle::decide) would say of a request that falls under these SLOs; nothing is counted, and nothing
    /// changes.
    ///
    /// ```
    /// # use slowlane::{base::draw::Draw, policy::Policy, base::request::Request, table::Sizing, throttle::Throttle};
    /// # use slowlane::base::time::Timestamp;
    /// # use std::time::Duration;
    /// # let sizing = Sizing { entries_max: 1_000, expire: Duration::from_secs(30) };
    /// # let throttle = Throttle::new(Policy::builtin(), sizing, 1 << 20);
    /// let (policy, now) = (throttle.policy(), Timestamp::from_millis(60_000));
    /// let foreseen = || throttle.foresee(&policy.cases(&Request::new()), now, Draw::MIDDLE).decision.remaining;
    /// assert_eq!([foreseen(), foreseen()], [9_999, 9_999]);
    /// throttle.decide(&Request::new(), now, Draw::MIDDLE);
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
        let annex = slo.law.has_annex().then(|| self.annexes.copy(key, &slo.law, arrival.cost, arrival.now));
        let annex = annex.flatten();
        let judgement = slo.law.foresee(&mut { entry }, annex.clone().as_mut(), &arrival);
        View { found, formula: slo.law.explain(&slo.objective, &entry, annex.as_ref(), &arrival), judgement }
    }

    /// Takes back a delayed request whose client left before its turn: its slot is free again.
    pub fn take_back(&self, decision: &Decision, now: Timestamp) {
        let policy = self.policy.load();
        for judged in decision.judged().iter().filter(|judged| judged.is_counted()) {
            let Some(slo) = policy.slo(judged.slo) else { continue };
            self.table.with_known(judged.key, now, |entry| {
                self.annexes.with_known(judged.key, &slo.law, |annex| {
                    slo.law.take_back(entry, annex, decision.cost, now, judged.due(decision.at));
                });
            });
        }
    }

    /// Ends a request that was let through.
    pub fn end(&self, ticket: &Ticket, now: Timestamp) {
        let policy = self.policy.load();
        for &(slo, key) in &ticket.counted {
            let Some(slo) = policy.slo(slo) else { continue };
            self.table.with_known(key, now, |entry| {
                slo.law.end(entry, ticket.cost, ticket.begun(now), now);
            });
        }
    }

    /// Forgets the entry of a key if it is to go, with all that its law remembers beside it.
    pub fn forget(&self, key: Key, is_to_go: impl FnOnce(&Entry) -> bool) {
        if self.table.remove(key, is_to_go) {
            self.annexes.remove(key);
        }
    }

    /// The policy in force. Who keeps it keeps a reload from being over: a moment, not while somebody reads.
    pub fn policy(&self) -> Arc<Policy> {
        self.policy.load_full()
    }

    /// What a client whose request was decided like this may be told that it is allowed. None: it was not counted.
    pub fn quota(&self, decision: &Decision) -> Option<Quota> {
        let is_counted = decision.remaining != u32::MAX;
        self.policy.load().slo(decision.slo).filter(|_| is_counted)?.quota()
    }

    /// Puts another policy in force, whole, and gives the old one back. The table stays as it is.
    pub fn replace(&self, policy: Policy) -> Arc<Policy> {
        self.policy.swap(Arc::new(policy))
    }

    pub fn table(&self) -> &Table {
        &self.table
    }

    pub fn usage(&self) -> Usage {
        self.table.usage()
    }

    pub fn annex_usage(&self) -> AnnexUsage {
        self.annexes.usage()
    }
}

fn judged(case: &Case<'_>, judgement: Judgement) -> Judged {
    Judged {
        slo: case.slo.id,
        key: case.key,
        verdict: judgement.verdict,
        remaining: judgement.remaining,
        is_dry_run: case.slo.dry_run,
        counts_end: case.slo.law.counts_ends(),
    }
}

/// A decision that was not made, and how it would come about.
#[derive(Clone, Debug)]
pub struct Foreseen {
    pub decision: Decision,
    /// Of each SLO, in the order of the cases.
    pub views: ArrayVec<View, JUDGED_MAX>,
}

/// What one SLO would say.
#[derive(Clone, Debug)]
pub struct View {
    /// None: it would begin with a fresh entry.
    pub found: Option<Found>,
    pub judgement: Judgement,
    /// The law's formula with the numbers in it.
    pub formula: String,
}

/// Requests that came together are decided together: their SLOs and their entries are looked up side by side.
///
/// ```
/// # use slowlane::{base::draw::Draw, policy::Policy, table::Sizing, throttle::Throttle, base::time::Timestamp};
/// # use std::time::Duration;
/// use slowlane::{policy::Docket, base::request::Value};
/// # let sizing = Sizing { entries_max: 1_000, expire: Duration::from_secs(30) };
/// # let throttle = Throttle::new(Policy::builtin(), sizing, 1 << 20);
/// let sitting = throttle.sit();
/// let mut docket = Docket::default();
/// for name in ["one.example", "other.example"] {
///     sitting.file(&mut docket).field(b"website", Value::Text(name.as_bytes()));
///     sitting.enter(&mut docket);
/// }
/// let mut remaining = [0; 2];
/// sitting.decide(&docket, Timestamp::from_millis(60_000), || Draw::MIDDLE, |number, decision| {
///     remaining[number] = decision.remaining;
/// });
/// assert_eq!(remaining, [9_999, 9_998]);
/// ```
#[derive(Debug)]
pub struct Sitting<'t> {
    throttle: &'t Throttle,
    policy: Guard<Arc<Policy>>,
}

impl Sitting<'_> {
    /// Opens the filing of a request for a docket that has room for it.
    pub fn file<'a, 'd>(&self, docket: &'d mut Docket<'a>) -> Filing<'_, 'd, 'a> {
        self.policy.file(docket)
    }

    /// Enters what was filed into the docket. False: it has no room for another.
    pub fn enter(&self, docket: &mut Docket<'_>) -> bool {
        self.policy.enter(docket)
    }

    /// What the policy sees of a request of the docket; see [`Policy::facts`].
    pub fn facts(&self, docket: &Docket<'_>, number: usize, slo: SloId, each: impl FnMut(Fact<'_, '_>)) {
        self.policy.facts_of(docket, number, slo, each);
    }

    /// What a request of a docket has for the fields that the policy knows, by their names.
    pub fn fields<'s, 'a: 's>(
        &'s self,
        docket: &'s Docket<'a>,
        number: usize,
    ) -> impl Iterator<Item = (&'s [u8], Value<'s>)> {
        self.policy.fields_of(docket, number)
    }

    /// Decides the requests of a docket, and counts them. Each decision comes with its request's number in the docket;
    /// those of one key in its order.
    pub fn decide(
        &self,
        docket: &Docket<'_>,
        now: Timestamp,
        mut draw: impl FnMut() -> Draw,
        mut tell: impl FnMut(usize, &Decision),
    ) {
        let throttle = self.throttle;
        let mut singles: ArrayVec<Single<'_>, DOCKET_MAX> = ArrayVec::new();
        let mut keys: ArrayVec<(Key, Duration), DOCKET_MAX> = ArrayVec::new();
        self.policy.hear(docket, |number, Cases { list, cost }| {
            let arrival = Arrival { now, draw: draw(), cost, sharer: 0 };
            match list.as_slice() {
                &[case] => {
                    keys.push((case.key, case.slo.law.memory()));
                    singles.push(Single { number, case, arrival, judgement: None });
                }
                several => tell(number, &throttle.decide_all(several, arrival)),
            }
        });
        // Nothing is told while rows are locked.
        throttle.table.with_batch(&keys, now, |place, entry| {
            let Single { case, arrival, judgement, .. } = &mut singles[place];
            *judgement = Some(throttle.judge(case, entry, *arrival, Law::judge));
        });
        for Single { number, case, arrival, judgement } in &singles {
            let judgement = judgement.expect("each key has been written");
            tell(*number, &throttle.decision(case, judgement, *arrival));
        }
    }
}

/// A request of a docket that falls under one SLO.
struct Single<'p> {
    number: usize,
    case: Case<'p>,
    arrival: Arrival,
    judgement: Option<Judgement>,
}
