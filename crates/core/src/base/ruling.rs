//! The ruling: the answer to a proxy, in the one form that it keeps on its way from the law to the wire.

use std::ops::{Deref, DerefMut};

use arrayvec::ArrayVec;
use serde::{Deserialize, Serialize};

use crate::base::{
    Assurance, Counted, Ends, JUDGED_MAX, Judged, Key, SloId, Ticket, Timestamp, UNCOUNTED, Verdict,
};

/// The strictest verdict on a request, and the SLO that gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ruling {
    pub verdict: Verdict,
    pub key: Key,
    /// The moment of the decision.
    pub at: Timestamp,
    /// How many more requests would pass at once: the minimum over all SLOs that count requests, or
    /// [`UNCOUNTED`]. If the SLO that decides counts work, the work that is left under that SLO.
    pub remaining: u32,
    /// The number of requests that this request counts as.
    pub cost: u32,
    pub slo: SloId,
}

const _: () = assert!(size_of::<Ruling>() == 48, "every answer copies a batch of rulings");

/// Parts that only a few rulings have: several SLOs, a ticket, a turn, a block, a dry run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Details {
    /// The request's number in the queue of its key, if the request's turn may still move. 0 if the delay is final.
    pub turn: u64,
    /// The block that refuses the request, if any.
    pub blocked: Option<Blocked>,
    judged: [Judged; JUDGED_MAX],
    judged_count: u8,
    /// For each judgement, the request's serial among the key's open tickets, or 0.
    serials: [u32; JUDGED_MAX],
}

/// A ruling with its details.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    ruling: Ruling,
    details: Option<Details>,
}

impl Deref for Decision {
    type Target = Ruling;

    fn deref(&self) -> &Ruling {
        &self.ruling
    }
}

impl DerefMut for Decision {
    fn deref_mut(&mut self) -> &mut Ruling {
        &mut self.ruling
    }
}

impl Ruling {
    /// A ruling whose verdict a law has yet to decide.
    #[inline]
    pub(crate) fn unruled(key: Key, slo: SloId, cost: u32) -> Ruling {
        Ruling { verdict: Verdict::Pass, key, at: Timestamp::default(), remaining: UNCOUNTED, cost, slo }
    }

    /// The only verdict of a ruling without [`Details`].
    const fn judged(&self) -> Judged {
        let &Ruling { slo, key, verdict, remaining, cost, .. } = self;
        let (ends, assurance) = (Ends::Never, Assurance::NONE);
        Judged { slo, key, verdict, remaining, cost, is_dry_run: false, ends, assurance }
    }
}

impl Details {
    fn of_one(judged: Judged) -> Details {
        Details {
            turn: 0,
            blocked: None,
            judged: [judged; JUDGED_MAX],
            judged_count: 1,
            serials: [0; JUDGED_MAX],
        }
    }

    /// The verdicts of all SLOs of the request.
    pub fn judged(&self) -> &[Judged] {
        &self.judged[..usize::from(self.judged_count)]
    }

    /// The verdicts of dry-run SLOs.
    pub fn dry_runs(&self) -> impl Iterator<Item = &Judged> {
        self.judged().iter().filter(|judged| judged.is_dry_run)
    }

    /// Whether any SLO, including a dry run, delays or denies the request.
    pub fn is_throttled(&self) -> bool {
        self.judged().iter().any(|judged| judged.in_force() != Verdict::Pass)
    }

    /// Whether any SLO counts the request until it ends, and all such SLOs learn of the end only after the
    /// response has been sent.
    pub fn ends_with_stream(&self) -> bool {
        let mut ends = self.judged().iter().filter(|judged| judged.is_until_end()).peekable();
        ends.peek().is_some() && ends.all(|judged| judged.ends == Ends::WithStream)
    }

    /// Whether any SLO counts the request until it ends, if the request is let through.
    fn is_until_end(&self) -> bool {
        self.judged().iter().any(Judged::is_until_end)
    }

    /// The ticket of a request that is let through.
    ///
    /// `None` if the request is denied or costs nothing, or if no SLO counts it until it ends.
    pub fn ticket(&self, ruling: &Ruling) -> Option<Ticket> {
        if !ruling.verdict.is_let_through() || !self.is_until_end() {
            return None;
        }
        let counted = self.judged().iter().zip(self.serials).filter(|(judged, _)| judged.is_until_end());
        let counted =
            counted.map(|(&Judged { slo, key, cost, .. }, serial)| Counted { slo, key, serial, cost });
        Some(Ticket::new(ruling.at, counted))
    }
}

impl Decision {
    /// Combines one to [`JUDGED_MAX`] verdicts, the request's own SLO first. Panics on any other number of verdicts.
    ///
    /// ```
    /// use std::time::Duration;
    /// use slowlane_core::base::{Assurance, Decision, Ends, Judged, Key, SloId, Timestamp, Verdict};
    ///
    /// let (slo, key) = (SloId::DEFAULT, Key::from_bits(7));
    /// let first = Judged {
    ///     slo, key, verdict: Verdict::Pass, remaining: 9, cost: 1, is_dry_run: false,
    ///     ends: Ends::Never, assurance: Assurance::NONE,
    /// };
    /// let second = Judged { verdict: Verdict::Delay(Duration::from_millis(20)), remaining: 0, ..first };
    /// let third = Judged { verdict: Verdict::Deny { retry_after_s: 3 }, is_dry_run: true, ..first };
    /// let decision = Decision::of(&[first, second, third], 1, Timestamp::from_millis(1));
    /// assert_eq!((decision.verdict, decision.remaining), (second.verdict, 0));
    /// ```
    pub fn of(judged: &[Judged], cost: u32, at: Timestamp) -> Decision {
        let mut decision = Decision::of_one(judged[0], cost, at);
        for other in &judged[1..] {
            decision.add(*other);
        }
        decision
    }

    /// The decision under a single SLO, which is the usual case.
    #[inline]
    pub fn of_one(judged: Judged, cost: u32, at: Timestamp) -> Decision {
        let Judged { slo, key, verdict, remaining, is_dry_run, .. } = judged;
        let verdict = if is_dry_run { Verdict::Pass } else { verdict };
        let ruling = Ruling { verdict, key, at, remaining, cost, slo };
        Decision { ruling, details: (judged != ruling.judged()).then(|| Details::of_one(judged)) }
    }

    fn add(&mut self, other: Judged) {
        let Decision { ruling, .. } = *self;
        let details = self.details_mut();
        let is_first_to_count = details.judged().iter().all(|judged| judged.is_dry_run);
        let verdict = other.in_force();
        details.judged[usize::from(details.judged_count)] = other;
        details.judged_count += 1;
        if other.is_dry_run {
            return;
        }
        let (mut slo, mut key) = (ruling.slo, ruling.key);
        let decides = is_first_to_count || verdict > ruling.verdict;
        if decides {
            (slo, key) = (other.slo, other.key);
        }
        let judged = details.judged();
        let deciding = judged.iter().find(|judged| (judged.slo, judged.key) == (slo, key));
        let deciding = deciding.expect("the SLO and the key belong to a judgement");
        let alike = judged.iter().filter(|judged| !judged.is_dry_run && !judged.ends.is_work());
        let remaining = match deciding.ends.is_work() {
            true => deciding.remaining,
            false => alike.map(|judged| judged.remaining).min().unwrap_or(UNCOUNTED),
        };
        let verdict = if decides { verdict } else { ruling.verdict };
        self.ruling = Ruling { verdict, slo, key, remaining, ..ruling };
    }

    fn details_mut(&mut self) -> &mut Details {
        let judged = self.ruling.judged();
        self.details.get_or_insert_with(|| Details::of_one(judged))
    }

    /// The decision made up of one ruling of a batch and that ruling's details.
    pub fn with(ruling: &Ruling, details: Option<&Details>) -> Decision {
        Decision { ruling: *ruling, details: details.copied() }
    }

    /// The ruling and its details, for an encoder.
    pub fn parts(&self) -> (&Ruling, Option<&Details>) {
        (&self.ruling, self.details.as_ref())
    }

    /// The verdicts of dry-run SLOs.
    pub fn dry_runs(&self) -> impl Iterator<Item = &Judged> {
        self.details.iter().flat_map(Details::dry_runs)
    }

    /// The verdicts of all SLOs of the request.
    pub fn judged(&self) -> ArrayVec<Judged, JUDGED_MAX> {
        let only = [self.ruling.judged()];
        self.details.as_ref().map_or(&only[..], Details::judged).iter().copied().collect()
    }

    /// Whether any SLO, including a dry run, delays or denies the request.
    pub fn is_throttled(&self) -> bool {
        self.details.as_ref().map_or(self.ruling.verdict != Verdict::Pass, Details::is_throttled)
    }

    /// The request's number in the queue of its key, if the request's turn may still move. 0 if the delay is final.
    pub fn turn(&self) -> u64 {
        self.details.map_or(0, |details| details.turn)
    }

    pub fn set_turn(&mut self, turn: u64) {
        if turn != self.turn() {
            self.details_mut().turn = turn;
        }
    }

    /// The block that refuses the request, if any.
    pub fn blocked(&self) -> Option<Blocked> {
        self.details?.blocked
    }

    pub fn set_blocked(&mut self, blocked: Option<Blocked>) {
        if blocked != self.blocked() {
            self.details_mut().blocked = blocked;
        }
    }

    /// Changes the verdict of one SLO. If `turn` is not 0, that SLO decides, because the proxy asks for the
    /// turn by that SLO's key.
    pub fn revise(&mut self, place: usize, verdict: Verdict, turn: u64) {
        let (mut judged, blocked) = (self.judged(), self.blocked());
        judged[place].verdict = verdict;
        *self = Decision::of(&judged, self.cost, self.at);
        self.set_blocked(blocked);
        if turn != 0 {
            (self.slo, self.key) = (judged[place].slo, judged[place].key);
            self.set_turn(turn);
        }
    }

    pub const fn is_let_through(&self) -> bool {
        self.ruling.verdict.is_let_through()
    }

    /// The ticket that the proxy returns when the request ends.
    ///
    /// `None` if the request was denied or costs nothing, or if no SLO counts it until it ends.
    pub fn ticket(&self) -> Option<Ticket> {
        self.details.as_ref()?.ticket(&self.ruling)
    }

    /// Whether the decision has a ticket, because an SLO counts the request until it ends.
    pub fn has_ticket(&self) -> bool {
        self.is_let_through() && self.details.as_ref().is_some_and(Details::is_until_end)
    }

    /// Numbers the request for its ticket. `number` returns the request's serial under one SLO.
    pub fn number(&mut self, mut number: impl FnMut(&Judged) -> u32) {
        let Some(details) = &mut self.details else { return };
        for place in 0..usize::from(details.judged_count) {
            if details.judged[place].is_until_end() {
                details.serials[place] = number(&details.judged[place]);
            }
        }
    }

    /// The judgements, each with its serial in the ticket, or 0.
    pub fn numbered(&self) -> impl Iterator<Item = (Judged, u32)> {
        let serials = self.details.map_or([0; JUDGED_MAX], |details| details.serials);
        self.judged().into_iter().zip(serials)
    }
}

/// A block in force for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocked {
    pub by: BlockedBy,
    /// The end of the block: the first moment at which it no longer applies.
    pub until: Timestamp,
}

/// The origin of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BlockedBy {
    /// An operator set the block with this number, which applies under every SLO.
    Operator(u32),
    /// The `block` option of an SLO blocked this key.
    Slo(Key),
}

impl Blocked {
    /// Whether the block still holds.
    pub fn holds_at(&self, now: Timestamp) -> bool {
        self.until > now
    }

    /// The remaining time of the block in whole seconds, rounded up, and at least 1: the `retry_after` of a
    /// request at `now`.
    ///
    /// ```
    /// use slowlane_core::base::{Blocked, BlockedBy};
    /// use slowlane_core::base::Timestamp;
    /// let blocked = Blocked { by: BlockedBy::Operator(1), until: Timestamp::from_millis(9_001) };
    /// let rest = |now_ms| blocked.rest_s(Timestamp::from_millis(now_ms));
    /// assert_eq!([rest(7_000), rest(9_000), rest(9_001)], [3, 1, 1]);
    /// ```
    pub fn rest_s(&self, now: Timestamp) -> u32 {
        let seconds = self.until.since(now).as_nanos().div_ceil(1_000_000_000).max(1);
        u32::try_from(seconds).unwrap_or(u32::MAX)
    }
}

/// The part of a decision that a proxy gets. It is kept small, because the agent remembers replies.
///
/// ```
/// # use slowlane_core::base::{Assurance, Ends, Judged, Key, SloId, Timestamp};
/// use slowlane_core::base::{Decision, Reply, Verdict};
/// # let (slo, key, assurance) = (SloId::DEFAULT, Key::from_bits(7), Assurance::NONE);
/// # let judged =
/// #     Judged { slo, key, verdict: Verdict::Pass, remaining: 9, cost: 1, is_dry_run: false, ends: Ends::InFlight, assurance };
/// let decision = Decision::of(&[judged], 1, Timestamp::from_millis(1));
/// let reply = Reply::to(&decision);
/// assert_eq!((reply.verdict, reply.remaining), (Verdict::Pass, 9));
/// assert_eq!(reply.ticket.as_deref(), decision.ticket().as_ref());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    pub verdict: Verdict,
    pub slo: SloId,
    /// How many more requests would pass at once.
    pub remaining: u32,
    /// Present if an SLO counts the request until it ends. Boxed, because few requests have a ticket.
    pub ticket: Option<Box<Ticket>>,
}

impl Reply {
    pub fn to(decision: &Decision) -> Reply {
        let Ruling { verdict, slo, remaining, .. } = **decision;
        Reply { verdict, slo, remaining, ticket: decision.ticket().map(Box::new) }
    }
}

/// The maximum number of decisions in a batch. A larger batch would delay its first answer.
pub const BATCH_MAX: usize = 32;

/// The decisions on a batch, in the order of its requests.
///
/// ```text
/// rulings   │ 0 │ 1 │ 2 │ …        detailed   one bit for each ruling, set if it has details
/// details   │ of 1 │ …
/// ```
#[derive(Clone, Debug, Default)]
pub struct Decisions {
    rulings: ArrayVec<Ruling, BATCH_MAX>,
    detailed: u32,
    details: ArrayVec<Details, BATCH_MAX>,
}

impl Decisions {
    pub fn new() -> Decisions {
        Decisions::default()
    }

    pub fn clear(&mut self) {
        self.rulings.clear();
        self.details.clear();
        self.detailed = 0;
    }

    #[inline]
    pub fn push(&mut self, Decision { ruling, details }: Decision) {
        if let Some(details) = details {
            self.detailed |= 1 << self.rulings.len();
            self.details.push(details);
        }
        self.rulings.push(ruling);
    }

    /// Adds a ruling without details.
    #[inline]
    pub fn push_ruling(&mut self, ruling: Ruling) {
        self.rulings.push(ruling);
    }

    /// Stores a law's answer in the ruling at this index.
    #[inline]
    pub fn rule(&mut self, place: usize, verdict: Verdict, remaining: u32, at: Timestamp) {
        let ruling = &mut self.rulings[place];
        (ruling.verdict, ruling.remaining, ruling.at) = (verdict, remaining, at);
    }

    /// Stores a decision at an index. No later decision may have details yet.
    pub fn put(&mut self, place: usize, Decision { ruling, details }: Decision) {
        if let Some(details) = details {
            debug_assert_eq!(self.detailed >> place, 0, "details are added in the order of their places");
            self.detailed |= 1 << place;
            self.details.push(details);
        }
        self.rulings[place] = ruling;
    }

    /// The number of decisions.
    pub fn count(&self) -> usize {
        self.rulings.len()
    }

    /// Each ruling, with its details if it has any.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (&Ruling, Option<&Details>)> {
        let (mut details, detailed) = (self.details.iter(), self.detailed);
        let with_details = move |(number, ruling): (usize, _)| {
            (ruling, if detailed & (1 << number) == 0 { None } else { details.next() })
        };
        self.rulings.iter().enumerate().map(with_details)
    }

    /// Copies of the decisions.
    pub fn copies(&self) -> impl Iterator<Item = Decision> {
        self.iter().map(|(ruling, details)| Decision::with(ruling, details))
    }

    /// The decision on the only request of a batch. Panics if the batch is empty.
    pub fn only(&self) -> Decision {
        self.copies().next().expect("a batch of one has one decision")
    }
}
