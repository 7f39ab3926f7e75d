//! The `protect` law lets in as many requests at once as the application can serve; other requests wait and take turns.
//!
//! ```text
//! arrive ─▶ inside < limit and none waits: released ────────────────────────────▶ inside ─▶ end
//!        ─▶ waits ─▶ its turn, once a place is free ────────────────────────────▶   │
//!        ─▶ refused: it would wait longer than max_delay          its lease is over ┘
//! ```
//! The law needs no rate. The limit follows the slow-down: how much longer a page (a kind of request) takes inside than
//! when nothing queues. A probe measures the times without a queue. Members with waiting requests take turns by the
//! work that they have used, in a tree of groups; a member that has used little has credit. A request whose end is not
//! reported gives its place back when its lease is over. A request that would wait too long is refused on arrival.
//!
//! The state has no clock of its own: the caller passes the time as `now`, and the calls that release requests append
//! the requests' ids to the caller's list. Until an end is reported, every request passes.

mod credit;
mod lease;
mod limit;
mod page;
mod probe;
mod request;
mod slab;
mod turns;

pub use limit::{LEAST as LIMIT_LEAST, START as LIMIT_START};
pub use request::Id;

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::time::Duration;

use crate::base::{Key, Timestamp};
use crate::law::protect::lease::Leases;
use crate::law::protect::limit::Limit;
use crate::law::protect::page::Pages;
use crate::law::protect::probe::Probed;
use crate::law::protect::request::{Backlog, InFlight, Position, Requests, Stage};
use crate::law::protect::turns::Turns;

/// After this long without an end, the law assumes that ends are no longer reported.
const SILENCE: Duration = Duration::from_secs(30);

/// A request is overdue once it has waited for this part of the longest delay.
const OVERDUE: (u32, u32) = (4, 5);

/// Every third release may go to the oldest overdue request of the group whose turn it is. If every release did, a
/// client in the same group as crawlers would wait as long as the crawlers do.
const OVERDUE_OF_GROUP: u32 = 3;

/// Every second release may go to the oldest overdue request of all, but only if each group's share of the last few
/// seconds was less than `CROWDED` requests: with so many groups, taking turns does not help.
const OVERDUE_OF_ALL: u32 = 2;
const CROWDED: i64 = 3;

/// The settings that an operator may change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProtectSettings {
    /// The limit shrinks above this slow-down. At 1.7, pages take 1.7 times as long as when nothing queues.
    pub slow_down: f64,
    /// A request that would wait longer than this is refused.
    pub delay_max: Duration,
    pub waiting_max: usize,
    /// The maximum number of groups and members that are known at a time.
    pub members_max: usize,
}

impl Default for ProtectSettings {
    fn default() -> ProtectSettings {
        ProtectSettings {
            slow_down: 1.7,
            delay_max: Duration::from_secs(5),
            waiting_max: 10_000,
            members_max: 65_536,
        }
    }
}

/// A request as the law sees it.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    pub means: Means,
    /// The page, which groups requests that take about the same time: the method and the first segment of the path.
    pub page: Key,
    /// The groups to which the request belongs, outermost first, and the request's source.
    pub path: &'a [Key],
}

/// The ways to treat a request for which there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Means {
    /// The request can be held.
    Hold,
    /// The request cannot be held. With credit, the request goes inside anyway, beyond the limit; without credit, the
    /// request is refused, because a client must not skip its turn with requests that cannot be held.
    Refuse,
    /// The request goes inside in any case, because of a dry run or an assured rate.
    Watch,
}

/// The outcome of an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrived {
    Released(Id),
    /// The request waits for about this long.
    Waits(Id, Duration),
    /// The request is refused, and may come back after this time.
    Refused(Duration),
    /// The request goes inside, although it should wait for about this long.
    Unheld(Id, Duration),
}

/// The state as status and metrics show it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProtectView {
    pub limit: usize,
    pub inside: usize,
    pub waiting: usize,
    /// How long the last of all waiting requests would wait.
    pub queue: Duration,
    pub slow_down: f64,
    pub is_probing: bool,
    /// The number of known groups and members.
    pub members: usize,
    /// Whether ends are reported. If not, everything passes.
    pub sees_ends: bool,
}

/// The state of one protected application.
///
/// ```
/// use slowlane_core::base::{Key, Timestamp};
/// use slowlane_core::law::protect::{Arrival, Arrived, Means, Protect, ProtectSettings};
///
/// let (mut protect, mut released) = (Protect::new(ProtectSettings::default()), Vec::new());
/// let (page, crawler, customer) = (Key::from_bits(1), [Key::from_bits(2)], [Key::from_bits(3)]);
/// let mut at = |ms, protect: &mut Protect, path: &[Key]| {
///     protect.arrive(Timestamp::from_millis(ms), Arrival { means: Means::Hold, page, path }, &mut released)
/// };
/// // The first end shows that ends are reported. From then on, 16 are inside at most.
/// let Arrived::Released(first) = at(1_000, &mut protect, &crawler) else { panic!() };
/// assert!(protect.end(first, Timestamp::from_millis(1_060), None, &mut Vec::new()));
/// let inside: Vec<Arrived> = (0..16).map(|_| at(1_070, &mut protect, &crawler)).collect();
/// let Arrived::Released(ends) = inside[0] else { panic!() };
/// // The crawler's next request came first, but the customer has used nothing yet.
/// assert!(matches!(at(1_080, &mut protect, &crawler), Arrived::Waits(..)));
/// let Arrived::Waits(waits, _) = at(1_090, &mut protect, &customer) else { panic!() };
/// assert!(protect.end(ends, Timestamp::from_millis(1_100), None, &mut released));
/// assert_eq!(released, [waits]);
/// ```
#[derive(Clone, Debug)]
pub struct Protect {
    settings: ProtectSettings,
    limit: Limit,
    pages: Pages,
    turns: Turns,
    requests: Requests,
    leases: Leases,
    /// No lease ends before this time.
    expiry: Timestamp,
    backlog: Backlog,
    /// The waiting requests by age.
    oldest: BTreeSet<(Timestamp, u32)>,
    /// The waiting requests, by outermost group and then by age.
    oldest_of: BTreeSet<(u32, Timestamp, u32)>,
    releases: u32,
    inside: usize,
    waiting: usize,
    sees_ends: bool,
    /// Whether a request of a page with a base has ended. Until then, no member is charged for the time inside: in an
    /// application that is overloaded from the start, each request would look like seconds of work.
    knows_times: bool,
    last_end: Timestamp,
    /// The number of leases that have run out since the last reported end.
    silent: usize,
}

impl Protect {
    pub fn new(settings: ProtectSettings) -> Protect {
        Protect {
            settings,
            limit: Limit::new(settings.slow_down),
            pages: Pages::new(),
            turns: Turns::new(settings.members_max),
            requests: Requests::new(),
            leases: Leases::new(),
            expiry: NEVER,
            backlog: Backlog::default(),
            oldest: BTreeSet::new(),
            oldest_of: BTreeSet::new(),
            releases: 0,
            inside: 0,
            waiting: 0,
            sees_ends: false,
            knows_times: false,
            last_end: Timestamp::default(),
            silent: 0,
        }
    }

    /// Decides on a new request: the request goes inside, waits or is refused.
    pub fn arrive(&mut self, now: Timestamp, arrival: Arrival<'_>, released: &mut Vec<Id>) -> Arrived {
        self.wake(now, released);
        let has_room = self.waiting == 0 && self.inside < self.places();
        if has_room && self.inside >= limit::MOST {
            return Arrived::Released(Id::UNCOUNTED);
        }
        let mut request = self.enter(now, arrival);
        if has_room {
            self.turns.pass(request.leaf, request.work_ns, now);
            let id = self.requests.insert(request);
            self.begin(id, now);
            self.limit.note(self.inside, false);
            return Arrived::Released(id);
        }
        self.limit.note(self.inside, arrival.means != Means::Watch);
        request.position = self.turns.position(request.leaf, request.work_ns);
        let limit = self.limit.places();
        let wait = self.backlog.expected(request.position, limit, self.turns.shares().0);
        let is_unheld = match arrival.means {
            Means::Hold => false,
            Means::Refuse => request.position.has_credit,
            Means::Watch => true,
        };
        if is_unheld {
            if self.inside >= limit::MOST {
                self.leave(&request);
                return Arrived::Unheld(Id::UNCOUNTED, wait);
            }
            self.turns.pass(request.leaf, request.work_ns, now);
            let id = self.requests.insert(request);
            self.begin(id, now);
            return Arrived::Unheld(id, wait);
        }
        let is_too_long = wait > self.settings.delay_max || arrival.means == Means::Refuse;
        if is_too_long || self.waiting >= self.settings.waiting_max {
            self.leave(&request);
            return Arrived::Refused(wait);
        }
        let id = self.requests.insert(request);
        self.waiting += 1;
        self.oldest.insert((now, id.place()));
        self.oldest_of.insert((self.turns.outermost(request.leaf), now, id.place()));
        self.backlog.add(request.position, request.work_ns);
        self.turns.queue(request.leaf, id.place(), &mut self.requests);
        Arrived::Waits(id, wait)
    }

    /// Applies these settings from now on.
    pub fn set(&mut self, settings: ProtectSettings) {
        if self.settings != settings {
            self.settings = settings;
            self.limit.aim_at(settings.slow_down);
        }
    }

    /// Lets a waiting request inside before its turn, because its proxy does not hold it.
    pub fn admit(&mut self, id: Id, now: Timestamp) {
        let Some(place) = self.requests.find(id) else { return };
        if self.requests.slab[place].stage == Stage::Waiting {
            self.turns.take(place, &mut self.requests, now);
            self.dequeued(place);
            self.begin(id, now);
        }
    }

    /// Records the end of a request. `took` is the time that the request took, or `None` for the time since its
    /// release. Returns false if the request is not inside: it has ended already, its lease is over, or it was never
    /// counted. Even an end after the lease shows that ends are reported again.
    pub fn end(&mut self, id: Id, now: Timestamp, took: Option<Duration>, released: &mut Vec<Id>) -> bool {
        let place = self.inside_at(id);
        if place.is_some() || !self.sees_ends {
            (self.sees_ends, self.silent, self.last_end) = (true, 0, now);
        }
        let Some(place) = place else { return false };
        let request = self.requests.slab[place];
        let inside = now.since(request.since).min(Leases::LONGEST);
        self.measure(&request, now, took.unwrap_or(inside));
        self.finish(place, Some(inside.as_nanos() as i64));
        self.wake(now, released);
        true
    }

    /// Refuses a request that has waited for the longest delay, and returns that request's id. Call this method until
    /// it returns `None` after every call to another method.
    pub fn overdue(&mut self, now: Timestamp) -> Option<Id> {
        let &(since, place) = self.oldest.first()?;
        (now >= since + self.settings.delay_max).then(|| {
            let id = self.requests.id(place);
            self.drop_waiting(place);
            id
        })
    }

    /// Removes a request whose end says nothing about the application: its client left while it waited, it was answered
    /// with an error, or it has become a stream. Returns false if the request is unknown.
    pub fn abandon(&mut self, id: Id, now: Timestamp, released: &mut Vec<Id>) -> bool {
        let Some(place) = self.requests.find(id) else { return false };
        match self.requests.slab[place].stage {
            Stage::Waiting => self.drop_waiting(place),
            _ => self.finish(place, None),
        }
        self.wake(now, released);
        true
    }

    /// Lets time pass: leases may end, the limit may move, a probe may begin or end, and waiting requests may be
    /// released. Call this method at the [next moment](Protect::next_moment).
    pub fn wake(&mut self, now: Timestamp, released: &mut Vec<Id>) {
        if self.expiry <= now {
            self.expire(now);
        }
        if self.limit.due() <= now {
            match self.limit.close(now, self.inside, self.waiting > 0, || self.pages.fall()) {
                Probed::Nothing => {}
                Probed::Stage => self.pages.next_stage(),
                Probed::All => self.pages.learn_probe(),
            }
        }
        while self.waiting > 0 && self.inside < self.places() {
            let Some(place) = self.next(now) else { return };
            self.dequeued(place);
            let id = self.requests.id(place);
            self.begin(id, now);
            released.push(id);
        }
        self.limit.note(self.inside, self.waiting > 0);
    }

    /// When to call [`wake`](Protect::wake) and then [`overdue`](Protect::overdue) if nothing else happens before.
    pub fn next_moment(&self) -> Option<Timestamp> {
        let window = (self.waiting > 0).then(|| self.limit.due());
        let lease = (self.inside > 0).then_some(self.expiry);
        let overdue = self.oldest.first().map(|first| first.0 + self.settings.delay_max);
        window.into_iter().chain(lease).chain(overdue).min()
    }

    /// How long a request would wait if it arrived now. The request is not counted.
    pub fn foresee(&mut self, now: Timestamp, page: Key, path: &[Key]) -> Duration {
        let request = self.enter(now, Arrival { means: Means::Watch, page, path });
        let position = self.turns.position(request.leaf, request.work_ns);
        self.leave(&request);
        self.backlog.expected(position, self.limit.places(), self.turns.shares().0)
    }

    /// The outermost groups with waiting requests, largest first: each with the number of its requests that wait or are
    /// inside.
    pub fn waiting_groups(&self) -> Vec<(Key, u32)> {
        let mut groups: Vec<(Key, u32)> = self.turns.waiting_groups().collect();
        groups.sort_unstable_by_key(|&(key, requests)| (Reverse(requests), key));
        groups
    }

    pub fn view(&self) -> ProtectView {
        ProtectView {
            limit: self.limit.places(),
            inside: self.inside,
            waiting: self.waiting,
            queue: self.backlog.queue(self.limit.places()),
            slow_down: self.limit.slow_down(),
            is_probing: self.limit.probe.is_running(),
            members: self.turns.len(),
            sees_ends: self.sees_ends,
        }
    }

    /// Takes the next request to release out of the waiting requests, and returns the place of that request.
    fn next(&mut self, now: Timestamp) -> Option<u32> {
        self.releases = self.releases.wrapping_add(1);
        let Some(place) = self.next_overdue(now) else { return self.turns.next(&mut self.requests, now) };
        self.turns.take(place, &mut self.requests, now);
        Some(place)
    }

    /// The overdue request to release out of turn, if any: the oldest of the group whose turn it is, or the oldest of
    /// all if there are so many groups that taking turns does not help.
    fn next_overdue(&self, now: Timestamp) -> Option<u32> {
        let overdue = self.settings.delay_max * OVERDUE.0 / OVERDUE.1;
        let is_overdue = |since: Timestamp| now.since(since) > overdue;
        let (since, oldest) = *self.oldest.first()?;
        if !is_overdue(since) {
            return None;
        }
        if self.releases.is_multiple_of(OVERDUE_OF_ALL) && self.is_crowded() {
            return Some(oldest);
        }
        let group =
            self.releases.is_multiple_of(OVERDUE_OF_GROUP).then(|| self.turns.next_group()).flatten()?;
        let (of, since, place) = *self.oldest_of.range((group, Timestamp::default(), 0)..).next()?;
        (of == group && is_overdue(since)).then_some(place)
    }

    /// Whether each group's share has lately been less than `CROWDED` requests of average work.
    fn is_crowded(&self) -> bool {
        let request_ns = self.backlog.work_ns() / self.waiting.max(1) as i64;
        self.turns.shares().1 < CROWDED * request_ns
    }

    fn places(&self) -> usize {
        if self.sees_ends { self.limit.places() } else { usize::MAX }
    }

    /// Counts a new request for its page and its member.
    fn enter(&mut self, now: Timestamp, arrival: Arrival<'_>) -> InFlight {
        let page = self.pages.enter(arrival.page);
        let known = self.pages.at(page);
        InFlight {
            stage: Stage::Waiting,
            position: Position::default(),
            class: Leases::class(known.base_ns()),
            page,
            serial: 0,
            work_ns: known.work_ns(),
            leaf: self.turns.enter(arrival.path, now),
            since: now,
        }
    }

    fn leave(&mut self, request: &InFlight) {
        self.pages.leave(request.page);
        self.turns.leave(request.leaf);
    }

    fn drop_waiting(&mut self, place: u32) {
        let request = self.requests.slab[place];
        self.turns.unqueue(request.leaf, place, &mut self.requests);
        self.dequeued(place);
        self.leave(&request);
        self.requests.remove(place);
    }

    fn dequeued(&mut self, place: u32) {
        let request = &self.requests.slab[place];
        self.waiting -= 1;
        self.oldest.remove(&(request.since, place));
        self.oldest_of.remove(&(self.turns.outermost(request.leaf), request.since, place));
        self.backlog.remove(request.position, request.work_ns);
    }

    /// Lets a request inside. The request must be in no list.
    fn begin(&mut self, id: Id, now: Timestamp) {
        let request = &mut self.requests.slab[id.place()];
        (request.stage, request.since) = (Stage::Inside, now);
        self.expiry = self.expiry.min(Leases::end_of(request));
        self.leases.begin(id.place(), &mut self.requests);
        self.inside += 1;
    }

    /// Removes a request that is inside, and charges its member for the work done, if the work is known.
    fn finish(&mut self, place: u32, work_ns: Option<i64>) {
        let request = self.requests.slab[place];
        self.leases.end(place, &mut self.requests);
        self.knows_times |= self.pages.at(request.page).base_ns().is_some();
        if let Some(work_ns) = work_ns.filter(|_| self.knows_times) {
            self.pages.at(request.page).learn_work(work_ns);
            self.turns.charge(request.leaf, work_ns - request.work_ns, &self.requests);
        }
        self.leave(&request);
        self.requests.remove(place);
        self.inside -= 1;
    }

    /// Updates the page and the limit after a request has ended.
    fn measure(&mut self, request: &InFlight, now: Timestamp, took: Duration) {
        let log_ns = (took.as_nanos().max(1_000) as f64).ln();
        let page = self.pages.at(request.page);
        if self.limit.probe.counts(request.since, now, self.inside <= self.limit.places()) {
            page.probe(log_ns);
        }
        if self.limit.is_idle() {
            page.learn_idle(log_ns);
        }
        self.limit.end(page.excess(log_ns));
    }

    /// Ends the leases that are over. After many of these and a long silence, the law assumes that ends go unreported.
    fn expire(&mut self, now: Timestamp) {
        self.expiry = NEVER;
        while let Some((end, place)) = self.leases.first(&self.requests) {
            if now < end {
                self.expiry = end;
                break;
            }
            self.finish(place, None);
            self.silent += 1;
        }
        if self.silent > self.limit.places() && now.since(self.last_end) > SILENCE {
            self.sees_ends = false;
        }
    }

    fn inside_at(&self, id: Id) -> Option<u32> {
        self.requests.find(id).filter(|&place| self.requests.slab[place].stage == Stage::Inside)
    }
}

const NEVER: Timestamp = Timestamp::from_nanos(u64::MAX);

#[cfg(test)]
mod tests;
