//! The answer to a proxy: pass, delay, or deny.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::{Blocked, COUNTED_MAX, Counted, Ends, Key, Kind, SloId, Ticket, Timestamp};

/// The result of a law for one request, ordered by strictness.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Verdict {
    /// Let it through at once.
    Pass,
    /// Let it through after this time, which is never zero.
    Delay(Duration),
    /// Refuse it with status 429. `retry_after_s` is at least 1 second.
    Deny { retry_after_s: u32 },
}

impl Verdict {
    /// The `retry_after_s` of a request that can never pass: the rate is 0, or its cost exceeds the burst.
    /// It is a day: the SLO may have changed by then.
    pub const NEVER_S: u32 = 86_400;

    /// `Delay(wait)`, or `Pass` if `wait` is zero.
    pub fn after(wait: Duration) -> Verdict {
        if wait.is_zero() { Verdict::Pass } else { Verdict::Delay(wait) }
    }

    /// Whether the request passes, at once or after a delay.
    pub const fn is_let_through(self) -> bool {
        !matches!(self, Verdict::Deny { .. })
    }

    /// The delay; zero without one.
    pub const fn wait(self) -> Duration {
        match self {
            Verdict::Delay(wait) => wait,
            Verdict::Pass | Verdict::Deny { .. } => Duration::ZERO,
        }
    }

    pub const fn kind(self) -> Kind {
        match self {
            Verdict::Pass => Kind::Pass,
            Verdict::Delay(_) => Kind::Delay,
            Verdict::Deny { .. } => Kind::Deny,
        }
    }

    /// Its name in variables, headers and metrics.
    pub const fn name(self) -> &'static str {
        self.kind().name()
    }

    /// The delay in milliseconds, rounded up so that no request is early; 0 without one.
    ///
    /// ```
    /// use std::time::Duration;
    /// use slowlane_core::base::Verdict;
    /// assert_eq!(Verdict::Delay(Duration::from_micros(19_400)).delay_ms(), 20);
    /// assert_eq!(Verdict::Pass.delay_ms(), 0);
    /// ```
    pub fn delay_ms(self) -> u64 {
        self.wait().as_nanos().div_ceil(1_000_000) as u64
    }
}

/// The `remaining` of an SLO that did not count the request: any number would pass at once.
pub const UNCOUNTED: u32 = u32::MAX;

/// The number of remaining requests to display. None without a limit.
///
/// ```
/// use slowlane_core::base::{UNCOUNTED, counted};
/// assert_eq!((counted(4), counted(UNCOUNTED)), (Some(4), None));
/// ```
#[inline]
pub fn counted(remaining: u32) -> Option<u32> {
    (remaining != UNCOUNTED).then_some(remaining)
}

/// The verdict of one SLO on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judged {
    pub slo: SloId,
    /// The key that counted the request.
    pub key: Key,
    pub verdict: Verdict,
    /// The number of further requests that would pass at once, or whole units of work, or [`UNCOUNTED`].
    pub remaining: u32,
    /// What the SLO charges: a number of requests, or grains of work.
    pub cost: u32,
    /// The SLO is a dry run: its verdict is counted, but does not affect the decision.
    pub is_dry_run: bool,
    pub ends: Ends,
    pub assurance: Assurance,
}

/// The part of assured rates in a verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assurance {
    /// The assured rate of this SLO is charged, because an SLO after it would delay or refuse the request.
    pub carries: bool,
    /// An earlier SLO overrules this verdict by its assured rate. The verdict is counted, but does not decide.
    pub is_carried: bool,
}

impl Assurance {
    pub const NONE: Assurance = Assurance { carries: false, is_carried: false };
}

impl Judged {
    /// Whether the entry counts the request. If another SLO refuses the request, it must be taken back.
    pub const fn is_counted(&self) -> bool {
        self.verdict.is_let_through() || self.assurance.is_carried
    }

    /// The verdict, without those that an assured rate overrules.
    pub const fn in_force(&self) -> Verdict {
        if self.assurance.is_carried { Verdict::Pass } else { self.verdict }
    }

    /// Whether the entry counts the request until its end.
    const fn is_until_end(&self) -> bool {
        !matches!(self.ends, Ends::Never) && self.cost > 0 && self.is_counted()
    }

    /// The moment at which a request that arrived at `at` leaves under this verdict.
    pub fn due(&self, at: Timestamp) -> Timestamp {
        at + self.verdict.wait()
    }
}

/// The maximum number of SLOs for one request: its own, and two that `also=` adds.
pub const JUDGED_MAX: usize = COUNTED_MAX;

/// The answer to the proxy: the strictest verdict, and the SLO that gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    pub verdict: Verdict,
    pub slo: SloId,
    pub key: Key,
    /// The number of further requests that would pass at once: the minimum over all SLOs, or [`UNCOUNTED`]. If an SLO
    /// in work decides, it is the work that is left under it.
    pub remaining: u32,
    /// The number of requests that this one counts for.
    pub cost: u32,
    /// The moment of the decision.
    pub at: Timestamp,
    /// The number of the request in the queue of its key, if its turn may still move. 0: the delay is final.
    pub turn: u64,
    /// The block that refuses the request, if one does.
    pub blocked: Option<Blocked>,
    judged: [Judged; JUDGED_MAX],
    judged_count: u8,
    /// For each judgement: the number of the request in the key's open tickets, or 0.
    serials: [u32; JUDGED_MAX],
}

impl Decision {
    /// Combines one to [`JUDGED_MAX`] verdicts, the request's own SLO first; panics outside this range.
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

    /// The decision under a single SLO, the usual case.
    pub const fn of_one(judged: Judged, cost: u32, at: Timestamp) -> Decision {
        let Judged { slo, key, verdict, remaining, is_dry_run, .. } = judged;
        let verdict = if is_dry_run { Verdict::Pass } else { verdict };
        Decision {
            verdict,
            slo,
            key,
            remaining,
            cost,
            at,
            turn: 0,
            blocked: None,
            judged: [judged; JUDGED_MAX],
            judged_count: 1,
            serials: [0; JUDGED_MAX],
        }
    }

    fn add(&mut self, other: Judged) {
        let is_first_to_count = self.judged().iter().all(|judged| judged.is_dry_run);
        let verdict = other.in_force();
        self.judged[usize::from(self.judged_count)] = other;
        self.judged_count += 1;
        if other.is_dry_run {
            return;
        }
        if is_first_to_count || verdict > self.verdict {
            (self.verdict, self.slo, self.key) = (verdict, other.slo, other.key);
        }
        let decides = |judged: &&Judged| (judged.slo, judged.key) == (self.slo, self.key);
        let deciding = self.judged().iter().find(decides).expect("one of them decides");
        let alike = self.judged().iter().filter(|judged| !judged.is_dry_run && !judged.ends.is_work());
        self.remaining = match deciding.ends.is_work() {
            true => deciding.remaining,
            false => alike.map(|judged| judged.remaining).min().unwrap_or(UNCOUNTED),
        };
    }

    /// The verdicts of all its SLOs.
    pub fn judged(&self) -> &[Judged] {
        &self.judged[..usize::from(self.judged_count)]
    }

    pub const fn is_let_through(&self) -> bool {
        self.verdict.is_let_through()
    }

    /// Whether one of its SLOs delays or denies the request, dry runs included.
    pub fn is_throttled(&self) -> bool {
        self.judged().iter().any(|judged| judged.in_force() != Verdict::Pass)
    }

    /// The ticket that the proxy returns when the request ends.
    ///
    /// `None` if the request was denied, if it costs nothing, or if no SLO counts it until its end.
    pub fn ticket(&self) -> Option<Ticket> {
        if !self.has_ticket() {
            return None;
        }
        let counted = self.judged().iter().zip(self.serials).filter(|(judged, _)| judged.is_until_end());
        let counted =
            counted.map(|(&Judged { slo, key, cost, .. }, serial)| Counted { slo, key, serial, cost });
        Some(Ticket::new(self.at, counted))
    }

    /// Whether an SLO counts the request until its end.
    #[inline]
    pub fn has_ticket(&self) -> bool {
        self.is_let_through() && self.judged().iter().any(Judged::is_until_end)
    }

    /// Whether no SLO counts the request until its response begins, but one until the response has been sent.
    pub fn ends_with_stream(&self) -> bool {
        let mut ends = self.judged().iter().filter(|judged| judged.is_until_end()).peekable();
        ends.peek().is_some() && ends.all(|judged| judged.ends == Ends::WithStream)
    }

    /// Numbers the request for its ticket. `number` gives the serial under one SLO.
    pub fn number(&mut self, mut number: impl FnMut(&Judged) -> u32) {
        for place in 0..usize::from(self.judged_count) {
            if self.judged[place].is_until_end() {
                self.serials[place] = number(&self.judged[place]);
            }
        }
    }

    /// The judgements, each with its serial in the ticket, or 0.
    pub fn numbered(&self) -> impl Iterator<Item = (&Judged, u32)> {
        self.judged().iter().zip(self.serials)
    }
}
