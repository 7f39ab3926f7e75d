//! The keys throttled in the last day: minute by minute for an hour, hour by hour for a day.
//!
//! Each period keeps its most throttled keys, so the memory is bounded: 60 minutes of 50 keys and 24 hours of 100 take
//! about 1 MB, and 20 MB if all names have the maximum length.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::mem;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::observe::status::heavy_hitters::Hitter;
use crate::observe::status::{FieldLine, KeyCount};
use slowlane_core::base::{Key, SloId, Timestamp};
use slowlane_core::policy::Policy;
use slowlane_core::snapshot::NOTE_BYTES_MAX;

/// The longest time span of a query.
pub const DAY: Duration = Duration::from_secs(86_400);

/// The longest time span that is answered minute by minute.
const HOUR: Duration = Duration::from_secs(3_600);

/// The maximum number of keys in an open period. If there are more, the half with the fewest throttled requests is
/// removed.
const OPEN_KEYS_MAX: usize = 1_024;

/// The maximum number of keys listed.
const LISTED_MAX: usize = 100;

/// The answer from `/api/history`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HistoryLines {
    /// The current time and the start of the first period, in milliseconds since 1970.
    pub at_ms: u64,
    pub from_ms: u64,
    /// The length of a period in seconds: a minute or an hour.
    pub period_s: u64,
    /// The number of delayed requests in each period, oldest first. The last period is still open.
    pub delayed: Vec<u64>,
    pub denied: Vec<u64>,
    /// The most throttled keys, in descending order, including those that a dry run would have throttled.
    pub keys: Vec<PastKey>,
    /// The number of known keys, which is exact if each period has kept all its keys.
    pub keys_total: KeyCount,
}

/// A key that was throttled. For a dry run, the numbers are those that enforcing the dry run would have caused.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PastKey {
    pub key: String,
    pub slo: u32,
    pub dry_run: bool,
    /// Whether this is the key shared by all requests that cannot be looked up.
    pub refused: bool,
    pub fields: Vec<FieldLine>,
    /// The query for `/api/why`; `None` if its fields were too long to keep.
    pub why: Option<String>,
    pub delayed: u64,
    pub denied: u64,
    /// The longest known delay. Only the last delay of each second is read.
    pub delay_ms: u64,
    pub first_ms_ago: u64,
    pub last_ms_ago: u64,
}

/// A key, and whether only a dry run throttles it.
type Noted = (Key, bool);

/// Counts of delayed and denied requests.
type Throttlings = [u64; 2];

/// The keys throttled in each minute of the last hour, and in each hour of the last day.
#[derive(Debug)]
pub(super) struct History {
    /// Minutes, then hours.
    periods: [Periods; 2],
    last_totals: Throttlings,
}

/// The last periods of one length, oldest first. The newest period is open.
#[derive(Debug)]
struct Periods {
    length_s: u64,
    /// The number of closed periods that are kept.
    kept: usize,
    /// The maximum number of keys that a closed period keeps.
    keys: usize,
    list: VecDeque<Period>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Period {
    /// The number of periods from 1970 to this one.
    number: u64,
    totals: Throttlings,
    keys: HashMap<Noted, KeyTally>,
    /// Whether some keys were left out.
    is_cut: bool,
}

/// The counts and facts of a key in one period.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct KeyTally {
    counts: Throttlings,
    slo: SloId,
    delay_ms: u64,
    first: Timestamp,
    last: Timestamp,
    fields: Vec<FieldLine>,
    why: Option<String>,
}

/// A period in a snapshot, and its place in [`History::periods`].
type Note = (u8, Period);

impl Default for History {
    fn default() -> History {
        let periods = |length_s, kept, keys| Periods { length_s, kept, keys, list: VecDeque::new() };
        History { periods: [periods(60, 60, 50), periods(3_600, 24, 100)], last_totals: [0; 2] }
    }
}

impl History {
    /// Adds the counts since the last call. Call this once a second. `totals` count all delays and denials so far.
    pub(super) fn tick(&mut self, now: Timestamp, totals: Throttlings, hitters: &[(bool, Hitter)]) {
        let before = mem::replace(&mut self.last_totals, totals);
        let new_totals = [0, 1].map(|place| totals[place].saturating_sub(before[place]));
        for periods in &mut self.periods {
            let period = periods.open(now);
            period.totals = sum(period.totals, new_totals);
            for (is_dry_run, hitter) in hitters.iter().filter(|(_, hitter)| hitter.new != [0; 2]) {
                let noted = (hitter.key, *is_dry_run);
                if period.keys.len() >= OPEN_KEYS_MAX && !period.keys.contains_key(&noted) {
                    period.keep(OPEN_KEYS_MAX / 2);
                }
                period.add(noted, KeyTally::of(hitter));
            }
        }
    }

    /// The keys and requests throttled in the last `span`, at most a day, extended to the start of its first period.
    pub(super) fn since(&self, now: Timestamp, span: Duration, policy: &Policy) -> HistoryLines {
        let periods = &self.periods[usize::from(span > HOUR)];
        let (first, newest) = (periods.number(before(now, span.min(DAY))), periods.number(now));
        let mut all = Period::default();
        let mut totals = vec![[0; 2]; (newest - first + 1) as usize];
        for period in periods.list.iter().filter(|period| (first..=newest).contains(&period.number)) {
            totals[(period.number - first) as usize] = period.totals;
            all.merge(period.clone());
        }
        let keys_total = KeyCount { number: all.keys.len() as u64, is_exact: !all.is_cut };
        let listed = heaviest(all.keys, LISTED_MAX).into_iter();
        HistoryLines {
            at_ms: now.since_epoch().as_millis() as u64,
            from_ms: first * periods.length_s * 1_000,
            period_s: periods.length_s,
            delayed: totals.iter().map(|counts| counts[0]).collect(),
            denied: totals.iter().map(|counts| counts[1]).collect(),
            keys: listed.map(|(noted, tally)| tally.line(noted, now, policy)).collect(),
            keys_total,
        }
    }

    /// All periods, each as a note for a snapshot. Notes that are too long are left out.
    pub(super) fn notes(&self) -> Vec<Vec<u8>> {
        let notes = (0..)
            .zip(&self.periods)
            .flat_map(|(place, periods)| periods.closed().map(move |period| -> Note { (place, period) }));
        let encoded = notes.filter_map(|note| postcard::to_extend(&note, Vec::new()).ok());
        encoded.filter(|bytes| bytes.len() <= NOTE_BYTES_MAX).collect()
    }

    /// Restores the notes of an earlier process. Invalid notes are skipped.
    pub(super) fn put_back(&mut self, notes: &[Vec<u8>], now: Timestamp) {
        for (place, period) in notes.iter().filter_map(|note| postcard::from_bytes::<Note>(note).ok()) {
            if let Some(periods) = self.periods.get_mut(usize::from(place)) {
                periods.put_back(period, now);
            }
        }
    }
}

impl Periods {
    fn number(&self, at: Timestamp) -> u64 {
        at.since_epoch().as_secs() / self.length_s
    }

    /// The period that contains `now`. If this period is new, the previous one is closed.
    fn open(&mut self, now: Timestamp) -> &mut Period {
        let number = self.number(now);
        if self.list.back().is_none_or(|newest| newest.number < number) {
            if let Some(newest) = self.list.back_mut() {
                newest.keep(self.keys);
            }
            self.list.push_back(Period { number, ..Period::default() });
            if self.list.len() > self.kept + 1 {
                self.list.pop_front();
            }
        }
        self.list.back_mut().expect("a period was added if there was none")
    }

    /// Copies of all periods, with the keys that a closed period keeps.
    fn closed(&self) -> impl Iterator<Item = Period> {
        self.list.iter().cloned().map(|mut period| {
            period.keep(self.keys);
            period
        })
    }

    fn put_back(&mut self, mut period: Period, now: Timestamp) {
        let newest = self.number(now);
        if !(newest.saturating_sub(self.kept as u64)..=newest).contains(&period.number) {
            return;
        }
        period.keep(self.keys);
        match self.list.binary_search_by_key(&period.number, |kept| kept.number) {
            Ok(place) => {
                self.list[place].merge(period);
                self.list[place].keep(OPEN_KEYS_MAX);
            }
            Err(place) => self.list.insert(place, period),
        }
    }
}

impl Period {
    fn add(&mut self, noted: Noted, tally: KeyTally) {
        match self.keys.get_mut(&noted) {
            Some(known) => known.merge(tally),
            None => drop(self.keys.insert(noted, tally)),
        }
    }

    fn merge(&mut self, other: Period) {
        self.totals = sum(self.totals, other.totals);
        self.is_cut |= other.is_cut;
        other.keys.into_iter().for_each(|(noted, tally)| self.add(noted, tally));
    }

    fn keep(&mut self, keys_max: usize) {
        if self.keys.len() > keys_max {
            self.is_cut = true;
            self.keys = heaviest(mem::take(&mut self.keys), keys_max).into_iter().collect();
        }
    }
}

impl KeyTally {
    fn of(hitter: &Hitter) -> KeyTally {
        KeyTally {
            counts: hitter.new,
            slo: hitter.slo,
            delay_ms: hitter.delay_ms,
            first: hitter.seen,
            last: hitter.seen,
            fields: hitter.label.in_key(),
            why: hitter.label.query(),
        }
    }

    fn merge(&mut self, other: KeyTally) {
        let newest = if other.last >= self.last { &other } else { &*self };
        *self = KeyTally {
            counts: sum(self.counts, other.counts),
            delay_ms: self.delay_ms.max(other.delay_ms),
            first: self.first.min(other.first),
            ..newest.clone()
        };
    }

    fn weight(&self) -> u64 {
        self.counts[0].saturating_add(self.counts[1])
    }

    fn line(self, (key, dry_run): Noted, now: Timestamp, policy: &Policy) -> PastKey {
        let ago = |moment| now.since(moment).as_millis() as u64;
        PastKey {
            key: key.to_string(),
            slo: self.slo.number(),
            dry_run,
            refused: policy.is_refusal(key),
            delayed: self.counts[0],
            denied: self.counts[1],
            delay_ms: self.delay_ms,
            first_ms_ago: ago(self.first),
            last_ms_ago: ago(self.last),
            fields: self.fields,
            why: self.why,
        }
    }
}

/// The most throttled keys, in descending order.
fn heaviest(keys: HashMap<Noted, KeyTally>, keys_max: usize) -> Vec<(Noted, KeyTally)> {
    let mut keys: Vec<_> = keys.into_iter().collect();
    keys.sort_by_key(|(noted, tally)| (Reverse(tally.weight()), *noted));
    keys.truncate(keys_max);
    keys
}

fn before(now: Timestamp, span: Duration) -> Timestamp {
    Timestamp::default() + now.since_epoch().saturating_sub(span)
}

fn sum(one: Throttlings, other: Throttlings) -> Throttlings {
    [0, 1].map(|place| one[place].saturating_add(other[place]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::observe::status::Throttled;
    use slowlane_core::base::{Assurance, Decision, Ends, Judged, Value, Verdict};
    use slowlane_core::policy::Fact;

    const START_S: u64 = 1_700_000_000 / 3_600 * 3_600;

    fn at(second: u64) -> Timestamp {
        Timestamp::from_millis((START_S + second) * 1_000)
    }

    fn judged(key: u64, verdict: Verdict, is_dry_run: bool) -> Judged {
        Judged {
            slo: SloId::new(3001).unwrap(),
            key: Key::from_bits(key),
            verdict,
            remaining: 0,
            cost: 1,
            is_dry_run,
            ends: Ends::Never,
            assurance: Assurance::NONE,
        }
    }

    fn owner(text: &str) -> Fact<'_, '_> {
        Fact { name: "owner", value: Value::Text(text.as_bytes()), in_key: true, prefix: None }
    }

    /// A daemon's history with its throttled keys, second by second.
    #[derive(Default)]
    struct World {
        history: History,
        throttled: Throttled,
        totals: Throttlings,
    }

    impl World {
        fn note(&mut self, second: u64, key: u64, verdict: Verdict, is_dry_run: bool) {
            let decision = Decision::of(&[judged(key, verdict, is_dry_run)], 1, at(second));
            self.throttled.note(&decision, 0, |_, label| label.push(owner(&key.to_string())));
            let place = usize::from(matches!(verdict, Verdict::Deny { .. }));
            self.totals[place] += u64::from(!is_dry_run && verdict != Verdict::Pass);
        }

        fn deny(&mut self, second: u64, key: u64, count: u64) {
            (0..count).for_each(|_| self.note(second, key, Verdict::Deny { retry_after_s: 1 }, false));
        }

        fn tick(&mut self, second: u64) {
            self.throttled.tick(at(second), 0.0);
            let totals = sum(self.totals, self.throttled.elsewhere());
            self.history.tick(at(second), totals, &self.throttled.read());
        }

        fn since(&self, second: u64, span_s: u64) -> HistoryLines {
            self.history.since(at(second), Duration::from_secs(span_s), &Policy::builtin())
        }
    }

    /// The fields, delayed and denied of each key.
    fn told(lines: &HistoryLines) -> Vec<(&str, u64, u64)> {
        lines.keys.iter().map(|key| (&*key.fields[0].value, key.delayed, key.denied)).collect()
    }

    #[test]
    fn a_key_is_counted_in_its_minute_and_in_its_hour() {
        let mut world = World::default();
        for second in 0..150 {
            if second < 90 {
                world.deny(second, 1, 2);
                world.note(second, 2, Verdict::Delay(Duration::from_millis(second)), false);
            }
            world.tick(second);
        }
        let lines = world.since(149, 60);
        assert_eq!(told(&lines), [("1", 0, 60), ("2", 30, 0)], "the minute from 60 s on, and the open one");
        assert_eq!((lines.delayed, lines.denied), (vec![30, 0], vec![60, 0]));
        assert_eq!((lines.from_ms, lines.period_s), ((START_S + 60) * 1_000, 60));
        let key = &lines.keys[1];
        assert_eq!((key.slo, key.delay_ms, key.first_ms_ago, key.last_ms_ago), (3001, 89, 89_000, 60_000));
        assert_eq!(key.why.as_deref(), Some("owner=2"));
        assert_eq!(told(&world.since(149, 3_600)), [("1", 0, 180), ("2", 90, 0)]);
        let day = world.since(149, 86_400);
        assert_eq!((told(&day), day.period_s), (vec![("1", 0, 180), ("2", 90, 0)], 3_600));
        assert_eq!((day.delayed.len(), day.denied.last()), (25, Some(&180)));
        assert_eq!(day.keys_total, KeyCount { number: 2, is_exact: true });
    }

    #[test]
    fn a_key_that_lost_its_place_counts_on() {
        let mut world = World::default();
        world.deny(0, 1, 5);
        (0..200).for_each(|second| world.tick(second));
        assert!(world.throttled.read().is_empty(), "it has faded");
        world.deny(200, 1, 4);
        world.tick(200);
        world.tick(201);
        assert_eq!(told(&world.since(201, 600)), [("1", 0, 9)]);
    }

    /// The verdicts are counted a moment before the keys are noted.
    #[test]
    fn a_request_that_is_noted_after_the_second_counts_once() {
        let mut world = World { totals: [0, 1], ..World::default() };
        world.tick(0);
        world.totals = [0, 0];
        world.deny(1, 1, 1);
        world.tick(1);
        let lines = world.since(1, 60);
        assert_eq!((told(&lines), &lines.denied), (vec![("1", 0, 1)], &vec![0, 1]));
    }

    #[test]
    fn a_proxy_that_throttles_by_its_own_rules_counts_too() {
        let mut world = World::default();
        let judged = judged(1, Verdict::Delay(Duration::from_millis(40)), false);
        world
            .throttled
            .note_elsewhere(&Decision::of(&[judged], 1, at(0)), 0, |_, label| label.push(owner("1")));
        world.tick(0);
        world.tick(1);
        let lines = world.since(1, 60);
        assert_eq!((told(&lines), &lines.delayed), (vec![("1", 1, 0)], &vec![0, 1]));
    }

    #[test]
    fn dry_runs_are_told_apart_and_are_in_no_total() {
        let mut world = World::default();
        world.deny(0, 1, 3);
        (0..9).for_each(|_| world.note(0, 1, Verdict::Deny { retry_after_s: 1 }, true));
        world.tick(0);
        let lines = world.since(0, 60);
        assert_eq!(told(&lines), [("1", 0, 9), ("1", 0, 3)]);
        assert_eq!([lines.keys[0].dry_run, lines.keys[1].dry_run], [true, false]);
        assert_eq!(lines.denied, [0, 3]);
    }

    #[test]
    fn it_keeps_an_hour_of_minutes_and_a_day_of_hours_of_the_most_throttled_keys() {
        let mut world = World::default();
        for minute in 0..26 * 60 {
            let number = minute % 4 * 100;
            (0..100).for_each(|key| world.deny(minute * 60, 1_000 + number + key, 1 + u64::from(key == 7)));
            world.tick(minute * 60);
            world.tick(minute * 60 + 59);
        }
        let [minutes, hours] = &world.history.periods;
        assert_eq!((minutes.list.len(), hours.list.len()), (61, 25));
        assert!(minutes.list.iter().take(60).all(|minute| minute.keys.len() == 50 && minute.is_cut));
        assert!(hours.list.iter().take(24).all(|hour| hour.keys.len() == 100));
        let lines = world.since(26 * 3_600 - 1, 86_400);
        assert_eq!((lines.keys.len(), lines.keys_total.is_exact), (100, false));
        assert!(lines.keys[..4].iter().all(|key| key.fields[0].value.ends_with("07")));
        assert!(lines.denied.iter().all(|&denied| denied == 60 * 101));
        let notes = world.history.notes();
        assert_eq!(notes.len(), 86);
        assert!(notes.iter().map(Vec::len).sum::<usize>() < 1 << 20);
    }

    #[test]
    fn an_open_period_takes_heavy_keys_however_many_light_ones_there_are() {
        let mut world = World::default();
        for second in 0..50 {
            (0..100).for_each(|key| world.deny(second, 1_000 * (second + 1) + key, 1));
            world.deny(second, 7, if second > 40 { 2 } else { 0 });
            world.tick(second);
        }
        let open = &world.history.periods[0].list[0];
        assert!(open.keys.len() <= OPEN_KEYS_MAX);
        assert_eq!(told(&world.since(50, 60))[0], ("7", 0, 18));
    }

    #[test]
    fn a_restart_forgets_nothing_and_goes_on() {
        let (mut old, mut new) = (World::default(), World::default());
        old.deny(0, 1, 5);
        old.tick(0);
        new.history.put_back(&old.history.notes(), at(10));
        new.deny(10, 1, 2);
        new.tick(10);
        assert_eq!(told(&new.since(10, 60)), [("1", 0, 7)]);
        assert_eq!(new.since(10, 60).denied, [0, 7]);
        // After an hour, its minutes are not put back.
        let mut late = World::default();
        late.history.put_back(&old.history.notes(), at(3_700));
        assert_eq!(late.history.periods[0].list.len(), 0);
        assert_eq!(told(&late.since(3_700, 7_200)), [("1", 0, 5)]);
    }

    proptest! {
        #[test]
        fn notes_that_make_no_sense_are_left_out_and_the_others_are_bounded(
            garbage in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..9),
            hours in prop::collection::vec((0u64..60, 1u64..200), 0..40),
        ) {
            let mut world = World::default();
            let now = START_S / 3_600;
            let tally = |key| {
                let last = Timestamp::from_nanos(u64::MAX);
                let (counts, delay_ms, key) = ([u64::MAX; 2], u64::MAX, Key::from_bits(key));
                ((key, false), KeyTally { counts, delay_ms, last, ..KeyTally::of(&Hitter::new(key, 0.0)) })
            };
            let note = |&(ahead, keys): &(u64, u64)| {
                let keys = (0..keys).map(|key| tally(key + ahead * 1_000)).collect();
                let period = Period { number: now - 30 + ahead, totals: [u64::MAX; 2], keys, is_cut: false };
                postcard::to_extend(&(1u8, period), Vec::new()).unwrap()
            };
            world.history.put_back(&garbage, at(0));
            world.history.put_back(&hours.iter().map(note).collect::<Vec<_>>(), at(0));
            world.deny(0, 1, 1);
            world.tick(0);
            let Periods { list, .. } = &world.history.periods[1];
            prop_assert!(list.iter().all(|hour| (now - 24..=now).contains(&hour.number)));
            prop_assert!(list.iter().is_sorted_by_key(|hour| hour.number));
            prop_assert!(list.iter().all(|hour| hour.keys.len() <= OPEN_KEYS_MAX));
            let is_kept = |&(ahead, _): &(u64, u64)| (6..=30).contains(&ahead);
            prop_assert_eq!(list.len() > 1, hours.iter().any(|hour| is_kept(hour) && hour.0 < 30));
            prop_assert!(world.since(0, 86_400).keys.len() <= LISTED_MAX);
        }

        /// No count is lost and none is made up, however the requests fall.
        #[test]
        fn the_counts_of_all_keys_are_the_requests(asked in prop::collection::vec((0u64..40, 0u64..5), 1..200)) {
            let mut world = World::default();
            let mut second = 0;
            for &(key, pause) in &asked {
                world.deny(second, key, 1);
                (0..=pause).for_each(|_| {
                    world.tick(second);
                    second += 1;
                });
            }
            let lines = world.since(second, 86_400);
            prop_assert_eq!(lines.keys.iter().map(|key| key.denied).sum::<u64>(), asked.len() as u64);
            prop_assert_eq!(lines.denied.iter().sum::<u64>(), asked.len() as u64);
        }
    }
}
