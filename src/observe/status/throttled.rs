//! The throttled keys. A note takes a few nanoseconds; only requests that an SLO or its dry run throttles are noted.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::observe::status::Label;
use crate::observe::status::heavy_hitters::{HeavyHitters, Hitter, PLACES};
use slowlane_core::base::{Blocked, Decision, Judged, Ruling, SloId, Timestamp, Verdict};

/// The number of shards, which reduce contention. A thread skips its note if the shard is locked.
const SHARDS: usize = 8;

/// The maximum number of notes per second (about 0.1 % of a core). If more requests are throttled, a sample is noted.
const NOTES_PER_S_MAX: f64 = 10_000.0;

/// The half-life of a note, in seconds.
const HALF_LIFE_S: f64 = 10.0;

/// Throttled keys with their fields.
#[derive(Debug, Default)]
pub struct Throttled {
    pub keys: SharedHitters,
    /// Keys that a dry run would throttle, kept apart so that they do not displace throttled keys.
    pub dry_runs: SharedHitters,
    /// The numbers of requests that proxies delayed and denied by their own rules, which counts of verdicts leave out.
    elsewhere: [AtomicU64; 2],
    /// For each request that is noted, this many throttled requests are skipped on average.
    skipped: AtomicU32,
    /// The moment of the last decay, in nanoseconds.
    faded_at: AtomicU64,
}

impl Throttled {
    /// Notes a request that is delayed or denied, or that would be if a dry run were enforced.
    ///
    /// `roll` is a random number for the sample. `write` fills the label of a new key, for the SLO that throttles it.
    pub fn note(&self, decision: &Decision, roll: u32, mut write: impl FnMut(SloId, &mut Label)) {
        let one_in = self.one_in();
        if !roll.is_multiple_of(one_in) {
            return;
        }
        self.keys.note(decision, decision.blocked(), one_in, &mut write);
        for &Judged { slo, key, verdict, .. } in decision.dry_runs() {
            self.dry_runs.note(&Ruling { slo, key, verdict, ..**decision }, None, one_in, &mut write);
        }
    }

    /// Notes a request that a proxy has throttled by its own rules.
    pub fn note_elsewhere(&self, decision: &Decision, roll: u32, write: impl FnMut(SloId, &mut Label)) {
        match decision.verdict {
            Verdict::Pass => {}
            Verdict::Delay(_) => drop(self.elsewhere[0].fetch_add(1, Relaxed)),
            Verdict::Deny { .. } => drop(self.elsewhere[1].fetch_add(1, Relaxed)),
        }
        self.note(decision, roll, write);
    }

    /// The numbers of requests that proxies have delayed and denied by their own rules.
    pub(super) fn elsewhere(&self) -> [u64; 2] {
        self.elsewhere.each_ref().map(|count| count.load(Relaxed))
    }

    /// Lets all notes decay, and adapts the sample to `throttled_per_s`, in requests per second. Call it once a second.
    pub fn tick(&self, now: Timestamp, throttled_per_s: f64) {
        let one_in = (throttled_per_s / NOTES_PER_S_MAX).ceil().max(1.0);
        self.skipped.store(one_in as u32 - 1, Relaxed);
        // Nothing decays at the first tick.
        let faded_at = if self.faded_at() == Timestamp::default() { now } else { self.faded_at() };
        let seconds = now.since(faded_at).as_secs_f64();
        self.keys.fade(faded(seconds) as f32);
        self.dry_runs.fade(faded(seconds) as f32);
        self.faded_at.store(now.as_nanos(), Relaxed);
    }

    fn faded_at(&self) -> Timestamp {
        Timestamp::from_nanos(self.faded_at.load(Relaxed))
    }

    /// One in this many throttled requests is noted.
    pub fn one_in(&self) -> u32 {
        self.skipped.load(Relaxed) + 1
    }

    /// All known keys with their facts, and whether only a dry run throttles them. Call this once a second, because it
    /// resets the numbers of new requests.
    pub(super) fn read(&self) -> Vec<(bool, Hitter)> {
        let of = |sketch: &SharedHitters, is_dry_run| {
            let read = |hitter: &mut Hitter| {
                let read = hitter.clone();
                hitter.new = [0; 2];
                (is_dry_run, read)
            };
            sketch.each(read)
        };
        [of(&self.keys, false), of(&self.dry_runs, true)].concat()
    }

    /// The constant rate, in requests per second, that explains the weight of a key since it got its place.
    pub fn per_second(&self, hitter: &Hitter, now: Timestamp) -> f64 {
        let (since, faded_at) = (hitter.since, self.faded_at());
        let newest_s = now.since(since.max(faded_at)).as_secs_f64();
        let (second, older) = (faded(1.0), faded(faded_at.since(since).as_secs_f64()));
        // The weight of one request per second: a geometric series over the full seconds, and the newest part of a
        // second.
        let one = second * (1.0 - older) / (1.0 - second) + newest_s;
        f64::from(hitter.weight_min()) / one.max(second)
    }
}

/// The fraction of a weight that remains after some seconds: 2^(-seconds / half-life).
fn faded(seconds: f64) -> f64 {
    (-seconds / HALF_LIFE_S).exp2()
}

/// A number of keys. If it is not exact, there may be more keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyCount {
    pub number: u64,
    pub is_exact: bool,
}

/// Heavy hitters in shards, for concurrent writers.
#[derive(Debug, Default)]
pub struct SharedHitters {
    shards: [SketchShard; SHARDS],
}

/// One shard of a sketch. The alignment gives each shard its own cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
struct SketchShard(Mutex<HeavyHitters>);

impl SharedHitters {
    /// The number of keys. It is exact if every key has a place.
    pub fn counted(&self) -> KeyCount {
        let places = self.shards.each_ref().map(|shard| shard.0.lock().len());
        KeyCount {
            number: places.iter().sum::<usize>() as u64,
            is_exact: places.iter().all(|&keys| keys < PLACES),
        }
    }

    /// Notes the verdict of one SLO. The note stands for `one_in` requests.
    fn note(
        &self,
        ruling: &Ruling,
        blocked: Option<Blocked>,
        one_in: u32,
        write: impl FnOnce(SloId, &mut Label),
    ) {
        let &Ruling { slo, key, verdict, at, .. } = ruling;
        if verdict == Verdict::Pass {
            return;
        }
        // The table chooses shards by other bits, so keys of one table shard are spread over all shards here.
        let shard = &self.shards[(key.bits() >> 32) as usize % SHARDS];
        let Some(mut hitters) = shard.0.try_lock() else { return };
        let hitter = hitters.add(key, one_in as f32);
        match verdict {
            Verdict::Pass => {}
            Verdict::Delay(_) => {
                hitter.delayed += u64::from(one_in);
                hitter.new[0] += u64::from(one_in);
                hitter.delay_ms = verdict.delay_ms();
            }
            Verdict::Deny { .. } => {
                hitter.denied += u64::from(one_in);
                hitter.new[1] += u64::from(one_in);
            }
        }
        (hitter.slo, hitter.seen, hitter.blocked) = (slo, at, blocked);
        if hitter.since == Timestamp::default() {
            hitter.since = at;
            write(slo, &mut hitter.label);
        }
    }

    fn fade(&self, factor: f32) {
        self.shards.iter().for_each(|shard| shard.0.lock().fade(factor));
    }

    /// The most throttled keys, in descending order.
    pub fn top(&self, keys_max: usize) -> Vec<Hitter> {
        let mut all = self.each(|hitter| hitter.clone());
        all.sort_by(|one, other| {
            other.weight_min().total_cmp(&one.weight_min()).then(one.key.cmp(&other.key))
        });
        all.truncate(keys_max);
        all
    }

    /// Reads all keys, in no particular order. Shards are locked one by one, so at most one shard is locked at a time.
    fn each<T>(&self, read: impl Fn(&mut Hitter) -> T) -> Vec<T> {
        let of = |shard: &SketchShard| -> Vec<T> { shard.0.lock().all().iter_mut().map(&read).collect() };
        self.shards.iter().flat_map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use slowlane_core::base::{Assurance, Ends, Key};

    fn judged(key: u64, verdict: Verdict) -> Judged {
        let (slo, key) = (SloId::DEFAULT, Key::from_bits(key));
        Judged {
            slo,
            key,
            verdict,
            remaining: 0,
            cost: 1,
            is_dry_run: false,
            ends: Ends::Never,
            assurance: Assurance::NONE,
        }
    }

    fn decision(key: u64, verdict: Verdict) -> Decision {
        Decision::of_one(judged(key, verdict), 1, Timestamp::from_millis(1_000))
    }

    #[test]
    fn keys_of_dry_runs_are_kept_apart_from_throttled_keys() {
        let throttled = Throttled::default();
        let dry_run = |key, verdict| Judged { is_dry_run: true, ..judged(key, verdict) };
        let (denied, delayed) =
            (Verdict::Deny { retry_after_s: 1 }, Verdict::Delay(Duration::from_millis(40)));
        let at = Timestamp::from_millis(1_000);
        for judged in [
            &[dry_run(1, denied)][..],
            &[dry_run(2, Verdict::Pass)],
            &[judged(3, delayed), dry_run(1, delayed)],
            &[judged(4, Verdict::Pass), dry_run(1, denied)],
        ] {
            let decision = Decision::of(judged, 1, at);
            assert_eq!(decision.is_throttled(), judged[0].key != Key::from_bits(2));
            throttled.note(&decision, 0, |_, _| {});
        }
        let counts = |top: Vec<Hitter>| -> Vec<_> {
            top.iter().map(|at| (at.key.bits(), at.delayed, at.denied)).collect()
        };
        assert_eq!(counts(throttled.keys.top(10)), [(3, 1, 0)]);
        assert_eq!(counts(throttled.dry_runs.top(10)), [(1, 1, 2)]);
    }

    #[test]
    fn the_most_throttled_key_comes_first_and_passes_are_not_noted() {
        let throttled = Throttled::default();
        let note = |key, verdict| throttled.note(&decision(key, verdict), 0, |_, _| {});
        note(1, Verdict::Pass);
        (0..3).for_each(|_| note(2, Verdict::Delay(Duration::from_millis(40))));
        (0..5).for_each(|_| note(1 << 33, Verdict::Deny { retry_after_s: 1 }));
        let top = throttled.keys.top(10);
        let seen: Vec<_> = top.iter().map(|at| (at.key.bits(), at.delayed, at.denied, at.delay_ms)).collect();
        assert_eq!(seen, [(1 << 33, 0, 5, 0), (2, 3, 0, 40)]);
        assert_eq!(throttled.keys.top(1).len(), 1);
    }

    #[test]
    fn of_very_many_a_sample_is_noted_that_stands_for_all() {
        let throttled = Throttled::default();
        throttled.tick(Timestamp::from_millis(1_000), NOTES_PER_S_MAX * 4.0);
        let denied = decision(1, Verdict::Deny { retry_after_s: 1 });
        (0..4_000).for_each(|roll| throttled.note(&denied, roll, |_, _| {}));
        assert_eq!((throttled.one_in(), throttled.keys.top(1)[0].denied), (4, 4_000));
    }

    #[test]
    fn notes_before_the_first_tick_are_kept() {
        let throttled = Throttled::default();
        throttled.note(&decision(1, Verdict::Deny { retry_after_s: 1 }), 0, |_, _| {});
        throttled.tick(Timestamp::from_millis(2_000), 0.0);
        assert_eq!(throttled.keys.top(1)[0].weight_min(), 1.0);
    }

    #[test]
    fn a_steady_rate_is_shown_exactly_at_any_moment() {
        let throttled = Throttled::default();
        let denied = decision(1, Verdict::Deny { retry_after_s: 1 });
        let assert_rate = |now| {
            let rate = throttled.per_second(&throttled.keys.top(1)[0], now);
            assert!((49.9..50.1).contains(&rate), "{rate} at {now:?}");
        };
        throttled.tick(denied.at, 0.0);
        for half in 1..200 {
            (0..25).for_each(|_| throttled.note(&denied, 0, |_, _| {}));
            let now = denied.at + Duration::from_millis(500 * half);
            if half > 1 {
                assert_rate(now);
            }
            if half % 2 == 0 {
                throttled.tick(now, 50.0);
                assert_rate(now);
            }
        }
    }
}
