//! A node of a cluster: its part of every shared SLO.

use std::collections::HashMap;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;

use crate::base::{Key, Timestamp, Turn, Verdict, plural};
use crate::cluster::local_budget::{self, LocalBudget};
use crate::cluster::{
    Answer, Arguments, HINTS_MAX, Hint, KeyUpdate, LocalView, Message, OnSilence, Plan, Settings, Share,
    Situation, View,
};
use crate::law::{Admission, Arrival, Judgement, Used};
use crate::table::{BoundedMap, Entry, Expiring};

/// The maximum number of crowded keys that a heartbeat names. Any other crowded keys are left out.
const CROWDED_MAX: usize = 1_000;

/// The phase of a node is a multiple of this ratio, modulo 1. Such multiples are evenly spread, however many there are.
const GOLDEN_RATIO: f64 = 0.618_034;

/// A view used within this time is not evicted: its requests may not have been reported yet, because a node takes up to
/// a second to report a key.
const IN_USE: Duration = Duration::from_secs(1);

/// A view without requests is kept for its window, or for its burst and its longest delay, plus this time: twice the
/// longest memory of a demand.
const IDLE: Duration = Duration::from_secs(10);

/// A node of a cluster: its part of every shared SLO.
#[derive(Debug)]
pub struct Cluster {
    settings: Settings,
    nodes: AtomicU32,
    /// The place of this node among all nodes, from 0.
    place: AtomicU32,
    /// Identifies the run of this process: no two runs have the same number.
    run: AtomicU64,
    round_trip_us: AtomicU32,
    is_silent: AtomicBool,
    is_used: AtomicBool,
    /// This node's views of shared keys. The number is bounded: if there is no room for another key, an idle view is
    /// dropped. A decision locks one shard of the map at a time, and so does the task that talks to the store.
    views: BoundedMap<Kept>,
    /// The keys about which there is something to report, either now or later.
    to_tell: Mutex<Vec<Key>>,
    /// The state of crowded keys, as of the last heartbeat.
    hints: ArcSwap<HashMap<Key, Hint>>,
}

/// A node's state for a shared key.
#[derive(Debug)]
struct Kept {
    local_view: LocalView,
    used: Timestamp,
    is_listed: bool,
    /// Whether the key has so many requests that every node must share it.
    is_crowded: bool,
}

impl Expiring for Kept {
    /// Whether everything has been reported and the law has forgotten the key.
    fn is_over(&self, now: Timestamp) -> bool {
        self.local_view.is_settled(now)
            && now.since(self.used) > self.local_view.share().memory().saturating_add(IDLE)
    }

    fn idle(&self, now: Timestamp) -> Option<Duration> {
        let holds = matches!(&self.local_view, LocalView::Rate((_, view)) if view.holds());
        Some(now.since(self.used)).filter(|&idle| idle > IN_USE && !holds)
    }
}

impl Cluster {
    pub fn new(settings: Settings) -> Cluster {
        Cluster {
            settings,
            nodes: settings.nodes.max(1).into(),
            place: 0.into(),
            run: 0.into(),
            round_trip_us: 0.into(),
            is_silent: true.into(),
            is_used: false.into(),
            views: BoundedMap::new(settings.keys_max),
            to_tell: Mutex::default(),
            hints: ArcSwap::default(),
        }
    }

    /// Whether this node has had a request under a shared SLO.
    pub fn is_used(&self) -> bool {
        self.is_used.load(Relaxed)
    }

    /// Notes a request under a shared SLO.
    #[inline]
    pub fn note_use(&self) {
        if !self.is_used() {
            self.is_used.store(true, Relaxed);
        }
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The number of nodes, as last known.
    pub fn nodes(&self) -> u32 {
        self.nodes.load(Relaxed)
    }

    /// Sets the number of nodes, and the place of this node among them, from 0.
    pub fn set_nodes(&self, nodes: u32, place: u32) {
        self.nodes.store(nodes.max(1), Relaxed);
        self.place.store(place, Relaxed);
    }

    /// Sets the number of this process's run, of which only 48 bits are used, because the store's scripts keep no more.
    pub fn set_run(&self, run: u64) {
        self.run.store(run & 0xFFFF_FFFF_FFFF, Relaxed);
    }

    /// Judges a request under a shared SLO, and writes the result to the entry and the key's state. None if there is no
    /// room for the key, or if the store is silent and the mode is `count`.
    pub fn judge(
        &self,
        key: Key,
        share: &Share<'_>,
        entry: &mut Entry,
        arrival: &Arrival,
    ) -> Option<Judgement> {
        self.judge_or_foresee(key, share, entry, arrival, true)
    }

    /// The judgement that [`judge`](Cluster::judge) would give. Like `judge`, this method writes to the entry, but
    /// nowhere else.
    pub fn foresee(
        &self,
        key: Key,
        share: &Share<'_>,
        entry: &mut Entry,
        arrival: &Arrival,
    ) -> Option<Judgement> {
        self.judge_or_foresee(key, share, entry, arrival, false)
    }

    #[inline]
    fn judge_or_foresee(
        &self,
        key: Key,
        share: &Share<'_>,
        entry: &mut Entry,
        arrival: &Arrival,
        is_charged: bool,
    ) -> Option<Judgement> {
        let &Arrival { now, cost, sample, may_hold, .. } = arrival;
        if self.is_closed(share) {
            entry.ask(cost, now);
            return Some(Judgement::deny(self.settings.silent_after.as_nanos() as u64, 0));
        }
        let local_budget = LocalBudget::new(share, self.nodes());
        let hint = if local_budget::is_shared(entry) { None } else { self.hint(key) };
        if hint.is_some() {
            local_budget::mark(entry);
        }
        let is_within_budget = !local_budget::is_shared(entry)
            && local_budget.is_some_and(|local_budget| local_budget.charge(entry, cost.into(), now));
        let unreported = || local_budget.map_or(0.0, |local_budget| local_budget.unreported(entry, now));
        let judgement = if is_within_budget {
            Judgement::new(Verdict::Pass, (f64::from(share.limit()) - unreported().ceil()).max(0.0) as u32)
        } else {
            // While the store is silent, the counts of the other nodes are unknown.
            if self.is_silent() && matches!(share, Share::Count(_)) {
                return None;
            }
            let situation = self.situation(now);
            let begin = || {
                let mut local_view = LocalView::new(share, &situation, unreported());
                if let Some(hint) = hint.or_else(|| self.hint(key))
                    && let Some((view, plan)) = local_view.of_rate(&situation)
                {
                    view.hint(&plan, &hint, now);
                }
                local_view
            };
            let judgement = if is_charged {
                let hold = (may_hold && cost == 1).then_some(sample);
                self.with(key, share, now, begin, |local_view| local_view.judge(&situation, cost, hold))?
            } else {
                self.copy(key, share).unwrap_or_else(begin).judge(&situation, cost, None)
            };
            local_budget::mark(entry);
            judgement
        };
        entry.ask(cost, now);
        entry.gpt0 = share.milli_clients(judgement.verdict.wait(), cost);
        if judgement.verdict.is_let_through() {
            entry.let_through(cost, now);
        }
        Some(judgement)
    }

    /// The state of a crowded key in the store, as of the last heartbeat.
    fn hint(&self, key: Key) -> Option<Hint> {
        self.hints.load().get(&key).copied()
    }

    /// Applies the hints of a heartbeat, which replace the previous hints. A hint with unusable numbers is ignored.
    pub fn set_hints(&self, hints: &[(Key, Hint)], round_trip: Duration, now: Timestamp) {
        if hints.is_empty() && self.hints.load().is_empty() {
            return;
        }
        let received = |hint| Hint { at: now, half_trip: round_trip / 2, ..hint };
        let usable = hints.iter().filter(|(_, hint)| hint.is_within_bounds()).take(HINTS_MAX);
        let hints: HashMap<Key, Hint> = usable.map(|&(key, hint)| (key, received(hint))).collect();
        for (&key, hint) in &hints {
            self.with_rate(key, now, |view, plan| view.hint(plan, hint, now));
        }
        self.hints.store(Arc::new(hints));
    }

    /// The turn of a held request. None if the request is not in the queue of its key.
    pub fn turn(&self, key: Key, number: u64) -> Option<Arc<Turn>> {
        self.with_known(key, |local_view| match local_view {
            LocalView::Rate((_, view)) => view.turn(number),
            LocalView::Count(_) | LocalView::Lease(_) => None,
        })?
    }

    /// Notes that a held request has passed.
    pub fn pass(&self, key: Key, number: u64, now: Timestamp) {
        self.with_rate(key, now, |view, plan| view.pass(plan, number, now));
    }

    /// Whether every request is refused because the store is silent, even for hardly used keys. A lease already belongs
    /// to this node, so the lease stays usable.
    pub fn is_closed(&self, share: &Share<'_>) -> bool {
        self.is_silent() && self.settings.on_silence == OnSilence::Closed && !matches!(share, Share::Lease(_))
    }

    /// The law's formula with the numbers of a request. None if the key is shared and this node has no state for it.
    pub fn explain(&self, key: Key, share: &Share<'_>, entry: &Entry, arrival: &Arrival) -> Option<String> {
        if self.is_closed(share) {
            return Some("refused: the store is silent, and [cluster] on_silence is \"closed\"".to_owned());
        }
        if let Some(local_budget) = LocalBudget::new(share, self.nodes())
            && !local_budget::is_shared(entry)
            && local_budget.charge(&mut { *entry }, arrival.cost.into(), arrival.now)
        {
            let unreported = plural(local_budget.unreported(entry, arrival.now).ceil(), "unreported request");
            return Some(format!("the key is rarely used, so the local budget covers its {unreported}"));
        }
        Some(self.copy(key, share)?.explain(&self.situation(arrival.now), arrival.cost))
    }

    /// How much of the shared quota all nodes have used. None without a state for the key, or in the `rate` mode.
    pub fn used(&self, key: Key, share: &Share<'_>, now: Timestamp) -> Option<Used> {
        self.copy(key, share)?.used(&self.situation(now))
    }

    /// How long the table must keep the row of a key.
    pub fn memory(&self, share: &Share<'_>) -> Duration {
        LocalBudget::new(share, self.nodes()).map_or(Duration::ZERO, |local_budget| local_budget.memory())
    }

    /// Charges a request that passes though refused. Returns false if [`judge`](Cluster::judge) returns `None`.
    pub fn add_debt(&self, key: Key, share: &Share<'_>, entry: &mut Entry, arrival: &Arrival) -> bool {
        self.note_use();
        let Some(judgement) = self.judge(key, share, entry, arrival) else { return false };
        if !judgement.verdict.is_let_through() {
            let (cost, now) = (arrival.cost.into(), arrival.now);
            self.with_rate(key, now, |view, plan| view.go_into_debt(plan, cost, now));
            entry.let_through(arrival.cost, arrival.now);
        }
        true
    }

    /// The theoretical arrival time of a shared key in this node's view. None if there is no view in the `rate` mode.
    pub fn tat(&self, key: Key, share: &Share<'_>, now: Timestamp) -> Option<Timestamp> {
        let LocalView::Rate((gcra, view)) = self.copy(key, share)? else { return None };
        let plan = self.situation(now).plan(&gcra);
        let ahead_s = view.stats(&plan, now).ahead_s + plan.burst_s();
        Some(now + Duration::try_from_secs_f64(ahead_s.max(0.0)).ok()?)
    }

    /// Takes back the charge for a request whose client disconnected before its turn.
    ///
    /// `turn` is the request's number in the queue, or 0 if the request was not held. A request with an unknown number
    /// has passed already, or belongs to another process.
    pub fn take_back(&self, key: Key, cost: u32, turn: u64, now: Timestamp) {
        match turn {
            0 => drop(self.with_known(key, |known| known.take_back(&self.situation(now), cost.into()))),
            number => drop(self.with_rate(key, now, |view, plan| view.leave(plan, number, now))),
        }
    }

    /// Passes a key's state to `judge`, and first creates the state with `begin` if needed. None if there is no room.
    fn with<R>(
        &self,
        key: Key,
        share: &Share<'_>,
        now: Timestamp,
        begin: impl Fn() -> LocalView,
        judge: impl FnOnce(&mut LocalView) -> R,
    ) -> Option<R> {
        let mut place = self.views.at(key);
        if place.get().is_none() {
            let kept = Kept { local_view: begin(), used: now, is_listed: false, is_crowded: false };
            place.put(kept, now);
        }
        let kept = place.get()?;
        if !kept.local_view.follow(share) {
            kept.local_view = begin();
        }
        kept.used = now;
        if !mem::replace(&mut kept.is_listed, true) {
            self.to_tell().push(key);
        }
        Some(judge(&mut kept.local_view))
    }

    /// Passes a key's state to `read`, if the key has any.
    fn with_known<R>(&self, key: Key, read: impl FnOnce(&mut LocalView) -> R) -> Option<R> {
        self.views.at(key).get().map(|kept| read(&mut kept.local_view))
    }

    /// Passes a key's view to `work`, with its plan. None if there is no view, or if the mode is not `rate`.
    fn with_rate<R>(&self, key: Key, now: Timestamp, work: impl FnOnce(&mut View, &Plan) -> R) -> Option<R> {
        self.with_known(key, |local_view| {
            let (view, plan) = local_view.of_rate(&self.situation(now))?;
            Some(work(view, &plan))
        })?
    }

    /// A copy of a key's state under this share. None if there is no state, or if the share has a different mode.
    fn copy(&self, key: Key, share: &Share<'_>) -> Option<LocalView> {
        let mut local_view = self.with_known(key, |local_view| local_view.clone())?;
        local_view.follow(share).then_some(local_view)
    }

    fn to_tell(&self) -> MutexGuard<'_, Vec<Key>> {
        self.to_tell.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds `more`, which may be negative, to the charge of a judged request. A hardly used key becomes a shared key if
    /// its local budget has no room. Returns false if the node judges the key alone.
    pub fn settle(
        &self,
        key: Key,
        share: &Share<'_>,
        entry: &mut Entry,
        more: f64,
        gone: &Admission,
    ) -> bool {
        let (situation, now) = (self.situation(gone.now), gone.now);
        if self.is_silent() && matches!(share, Share::Count(_)) {
            return false;
        }
        let local_budget = LocalBudget::new(share, self.nodes()).filter(|_| !local_budget::is_shared(entry));
        if local_budget.is_some_and(|local_budget| local_budget.charge(entry, more, now)) {
            return true;
        }
        let unreported = local_budget.map_or(0.0, |local_budget| local_budget.unreported(entry, now));
        let begin = || LocalView::new(share, &situation, unreported);
        let settled =
            self.with(key, share, now, begin, |local_view| local_view.settle(&situation, more, gone));
        if settled.is_some() {
            local_budget::mark(entry);
        }
        settled.is_some()
    }

    /// Whether the store is silent, as determined by the task that talks to it.
    pub fn is_silent(&self) -> bool {
        self.is_silent.load(Relaxed)
    }

    pub fn set_silent(&self, is_silent: bool) {
        self.is_silent.store(is_silent, Relaxed);
    }

    /// Sets the time from a message to its answer, as measured for the last answer.
    pub fn set_round_trip(&self, round_trip: Duration) {
        self.round_trip_us.store(u32::try_from(round_trip.as_micros()).unwrap_or(u32::MAX), Relaxed);
    }

    /// The key updates that are due now. A key stays listed until everything about it has been reported.
    pub fn collect(&self, now: Timestamp, updates_max: usize) -> Vec<KeyUpdate> {
        let situation = self.situation(now);
        let (mut listed, mut updates) = (mem::take(&mut *self.to_tell()), Vec::new());
        listed.retain(|&key| {
            let mut place = self.views.at(key);
            let Some(kept) = place.get() else { return false };
            if updates.len() < updates_max
                && let Some(mut arguments) = kept.local_view.arguments(&situation)
            {
                if let Arguments::Rate(Message { wants: Some(wants), .. }) = &mut arguments {
                    wants.run = self.run.load(Relaxed);
                }
                updates.push(KeyUpdate { key, arguments });
            }
            kept.is_listed = !kept.local_view.is_settled(now);
            kept.is_listed
        });
        self.to_tell().append(&mut listed);
        updates
    }

    /// Drops views that have been fully reported and have had no requests for a long time.
    pub fn sweep(&self, now: Timestamp) {
        self.views.sweep(now);
    }

    /// Applies the answer to a key update.
    pub fn reply(&self, update: &KeyUpdate, answer: &Answer, round_trip: Duration, now: Timestamp) {
        let situation = Situation { round_trip, ..self.situation(now) };
        if let Some(kept) = self.views.at(update.key).get() {
            kept.is_crowded = kept.local_view.reply(&situation, &update.arguments, answer);
        }
    }

    /// Notes that a key update did not reach the store.
    pub fn lost(&self, update: &KeyUpdate) {
        self.with_known(update.key, |local_view| local_view.lost(&update.arguments));
    }

    /// Keys with so many requests that all nodes must share them from now on.
    pub fn crowded(&self, now: Timestamp) -> Vec<Key> {
        let is_it = |kept: &Kept| kept.is_crowded && kept.idle(now).is_none();
        let crowded = self.views.pick(|key, kept| is_it(kept).then_some(key)).flatten();
        crowded.take(CROWDED_MAX).collect()
    }

    /// The number of keys shared now.
    pub fn keys(&self) -> usize {
        self.views.taken()
    }

    /// The number of requests since startup that found no room for a view of their key.
    pub fn refused(&self) -> u64 {
        self.views.refused()
    }

    /// The number of requests admitted but not yet reported, over all keys.
    pub fn debt(&self) -> f64 {
        // An empty sum of floats is -0.
        0.0 + self.views.pick(|_, kept| Some(kept.local_view.debt())).flatten().sum::<f64>()
    }

    /// Makes the nodes share a row's key from its next request on, however few requests this node receives for the key.
    pub fn share(entry: &mut Entry) {
        local_budget::mark(entry);
    }

    fn situation(&self, now: Timestamp) -> Situation<'_> {
        let round_trip = Duration::from_micros(self.round_trip_us.load(Relaxed).into());
        let phase = (GOLDEN_RATIO * f64::from(self.place.load(Relaxed))).fract();
        Situation { settings: &self.settings, nodes: self.nodes(), phase, round_trip, now }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Records;
    use crate::law::{Law, Objective, Options};

    const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);
    const KEY: Key = Key::from_bits(7);

    fn cluster(keys_max: usize) -> Cluster {
        let cluster = Cluster::new(Settings { keys_max, ..Settings::default() });
        cluster.set_silent(false);
        cluster
    }

    fn at(ms: u64) -> Arrival {
        Arrival::at(START + Duration::from_millis(ms))
    }

    fn law(name: &str, burst: u32, rate: &str) -> &'static Law {
        let objective = Objective { burst, rate: rate.parse().unwrap() };
        Box::leak(Box::new(Law::new(name, objective, Options::default()).unwrap()))
    }

    /// At 10/s with a burst of 20: half of the rate may be used unreported, and ten requests of the burst.
    fn rate() -> Share<'static> {
        Share::Rate(law("pace", 20, "10/s").gcra().unwrap())
    }

    /// A hundred requests in a minute: a node alone has one on credit.
    fn quota() -> Share<'static> {
        Share::Lease(law("fixed-window", 0, "100/m").shared_window().unwrap())
    }

    /// One request is within the local budget, and 23 more are not: they wait for four tenths of a second.
    #[test]
    fn requests_count_from_the_first_on_and_are_owed_until_they_are_taken_back() {
        let (cluster, mut entry) = (cluster(10), Entry::default());
        let mut judge = |cost| {
            let arrival = Arrival { cost, ..at(0) };
            let judgement = cluster.judge(KEY, &rate(), &mut entry, &arrival).unwrap();
            (judgement.verdict.wait().as_secs_f64(), judgement.remaining, entry.gpt0)
        };
        assert_eq!(judge(1), (0.0, 19, 1_000));
        assert_eq!((cluster.keys(), cluster.debt()), (0, 0.0), "nobody needs to know");
        let (wait_s, remaining, milli_clients) = judge(23);
        assert!((wait_s - 0.4).abs() < 1e-5 && remaining == 0 && (3_999..=4_000).contains(&milli_clients));
        assert_eq!((cluster.keys(), cluster.debt()), (1, 24.0));
        cluster.take_back(KEY, 23, 0, at(0).now);
        assert_eq!(cluster.debt(), 1.0);
        // Without them, there are nineteen tokens again, and one more request of twenty waits for a tenth of a second.
        assert!((judge(20).0 - 0.1).abs() < 1e-5);
    }

    #[test]
    fn a_view_is_explained_by_what_is_left_of_it() {
        let count = Share::Count(law("fixed-window", 0, "100/m").shared_window().unwrap());
        for (share, left, explanation) in [
            (quota(), 0, "this node may admit 0 more of the 100 in the window"),
            (count, 99, "room for 99 of 100 in the window, as last reported by all nodes"),
        ] {
            let (cluster, mut entry) = (cluster(10), Entry::default());
            Cluster::share(&mut entry);
            let judgement = cluster.judge(KEY, &share, &mut entry, &at(0)).unwrap();
            assert_eq!((judgement.remaining, entry.gpt0), (left, 1_000));
            assert_eq!(cluster.explain(KEY, &share, &entry, &at(0)).unwrap(), explanation);
        }
    }

    #[test]
    fn a_view_gives_its_place_to_another_key_once_it_was_not_used_for_over_a_second() {
        let cluster = cluster(1);
        let is_judged =
            |key, ms| cluster.judge(Key::from_bits(key), &quota(), &mut Entry::default(), &at(ms)).is_some();
        assert!(is_judged(1, 0));
        assert!(!is_judged(2, 1_000) && is_judged(2, 1_001));
        assert!(!is_judged(1, 1_002));
        assert_eq!((cluster.keys(), cluster.refused()), (1, 2));
    }

    /// A burst of two seconds, a longest delay of five, and ten seconds.
    #[test]
    fn a_view_is_forgotten_when_all_is_reported_and_its_law_has_forgotten_it() {
        let (cluster, mut records, mut entry) = (cluster(10), Records::new(10), Entry::default());
        Cluster::share(&mut entry);
        let sweep = |ms| {
            cluster.sweep(at(ms).now);
            cluster.keys()
        };
        cluster.judge(KEY, &rate(), &mut entry, &at(0)).unwrap();
        assert_eq!(sweep(60_000), 1, "a request is not reported yet");
        for update in cluster.collect(at(0).now, 10) {
            let answer = records.post(update.key, &update.arguments, at(0).now);
            cluster.reply(&update, &answer, Duration::ZERO, at(0).now);
        }
        assert_eq!([sweep(17_000), sweep(17_001)], [1, 0]);
    }

    /// The manual and the config speak of 300 to 600 bytes a key. The list and the hash table may have room for as many
    /// keys again.
    #[test]
    fn a_shared_key_takes_three_hundred_bytes() {
        let least = size_of::<(Key, Kept)>() + 1 + size_of::<Key>();
        assert!((250..=300).contains(&least), "{least}");
    }
}
