//! Who is throttled, noted beside the way of a request: a few nanoseconds for one that waits, nothing for one that passes.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::base::key::Key;
use crate::base::slo_id::SloId;
use crate::base::time::Timestamp;
use crate::base::verdict::{Decision, Verdict};
use crate::observe::status::heavy_hitters::{HeavyHitters, Ranked};
use crate::observe::status::label::Label;

/// So that threads seldom meet; who finds a shard locked goes on without a note.
const SHARDS: usize = 8;

/// As many requests are noted in a second, of more a sample: then all of it is a thousandth of a core.
const NOTES_PER_S_MAX: f64 = 10_000.0;

/// What was noted counts half as much after so many seconds.
const HALF_LIFE_S: f64 = 10.0;

/// Throttled keys, with what names them.
#[derive(Debug)]
pub struct Throttled {
    keys: Sketch,
    /// Keys that would be throttled if it were no dry run. They take no place from those that are.
    dry_runs: Sketch,
    /// One in so many requests is noted.
    one_in: AtomicU32,
    /// When all of it faded last, in nanoseconds.
    faded_at: AtomicU64,
}

impl Default for Throttled {
    fn default() -> Throttled {
        Throttled {
            keys: Sketch::default(),
            dry_runs: Sketch::default(),
            one_in: AtomicU32::new(1),
            faded_at: AtomicU64::new(0),
        }
    }
}

impl Throttled {
    /// Notes a request that is delayed or denied, or would be, or lets it be. `roll` is any number; `write` is asked for
    /// the label of a key that has none, by the SLO that throttles it.
    pub fn note(&self, decision: &Decision, roll: u32, mut write: impl FnMut(SloId, &mut Label)) {
        let one_in = self.one_in.load(Relaxed);
        if !roll.is_multiple_of(one_in) {
            return;
        }
        let &Decision { slo, key, verdict, at, .. } = decision;
        self.keys.note(Note { slo, key, verdict, at, one_in }, &mut write);
        for judged in decision.judged().iter().filter(|judged| judged.is_dry_run) {
            let note = Note { slo: judged.slo, key: judged.key, verdict: judged.verdict, at, one_in };
            self.dry_runs.note(note, &mut write);
        }
    }

    /// Once a second: lets fade what was noted, and sets which part of so many throttled requests is noted from now on.
    pub fn tick(&self, now: Timestamp, throttled_per_s: f64) {
        let one_in = (throttled_per_s / NOTES_PER_S_MAX).ceil().max(1.0);
        self.one_in.store(one_in as u32, Relaxed);
        // Before the first time nothing has begun to fade.
        let faded_at = if self.faded_at() == Timestamp::default() { now } else { self.faded_at() };
        let seconds = now.since(faded_at).as_secs_f64();
        self.keys.fade(faded(seconds) as f32);
        self.dry_runs.fade(faded(seconds) as f32);
        self.faded_at.store(now.as_nanos(), Relaxed);
    }

    fn faded_at(&self) -> Timestamp {
        Timestamp::from_nanos(self.faded_at.load(Relaxed))
    }

    /// One in so many of the throttled requests is noted.
    pub fn one_in(&self) -> u32 {
        self.one_in.load(Relaxed)
    }

    /// So many of the keys that are throttled most, the first of them first.
    pub fn top(&self, keys_max: usize) -> Vec<Ranked> {
        self.keys.top(keys_max)
    }

    /// The same of those that would be, if it were no dry run.
    pub fn dry_runs(&self, keys_max: usize) -> Vec<Ranked> {
        self.dry_runs.top(keys_max)
    }

    /// All that are known, those of dry runs as well.
    pub(super) fn keys(&self) -> Vec<Key> {
        let mut keys = Vec::new();
        for shard in self.keys.0.iter().chain(&self.dry_runs.0) {
            keys.extend_from_slice(lock(shard).keys());
        }
        keys
    }

    /// How many requests per second have made up the weight of a key, if they were as many since it is there.
    pub fn per_second(&self, ranked: &Ranked, now: Timestamp) -> f64 {
        let (since, faded_at) = (ranked.hitter.since, self.faded_at());
        let newest_s = now.since(since.max(faded_at)).as_secs_f64();
        let (second, older) = (faded(1.0), faded(faded_at.since(since).as_secs_f64()));
        // What one request per second would weigh: of the seconds that have faded once, twice, …, and of the newest part.
        let one = second * (1.0 - older) / (1.0 - second) + newest_s;
        f64::from(ranked.weight) / one.max(second)
    }
}

/// What is left after so many seconds.
fn faded(seconds: f64) -> f64 {
    (-seconds / HALF_LIFE_S).exp2()
}

/// A request, as one SLO judged it.
#[derive(Clone, Copy)]
struct Note {
    slo: SloId,
    key: Key,
    verdict: Verdict,
    at: Timestamp,
    /// It stands for so many.
    one_in: u32,
}

/// Heavy hitters that several threads write to.
#[derive(Debug, Default)]
struct Sketch([Shard; SHARDS]);

#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard(Mutex<HeavyHitters>);

impl Sketch {
    fn note(&self, note: Note, write: impl FnOnce(SloId, &mut Label)) {
        let Note { slo, key, verdict, at, one_in } = note;
        if verdict == Verdict::Pass {
            return;
        }
        // Not the bits that a table's shards are chosen by: who meets in one place need not meet in the other.
        let shard = &self.0[(key.bits() >> 32) as usize % SHARDS];
        let Ok(mut hitters) = shard.0.try_lock() else { return };
        let hitter = hitters.add(key, one_in as f32);
        match verdict {
            Verdict::Pass => {}
            Verdict::Delay(_) => {
                hitter.delayed += u64::from(one_in);
                hitter.delay_ms = verdict.delay_ms();
            }
            Verdict::Deny { .. } => hitter.denied += u64::from(one_in),
        }
        (hitter.slo, hitter.seen) = (Some(slo), at);
        if hitter.since == Timestamp::default() {
            hitter.since = at;
            write(slo, &mut hitter.label);
        }
    }

    fn fade(&self, factor: f32) {
        self.0.iter().for_each(|shard| lock(shard).fade(factor));
    }

    fn top(&self, keys_max: usize) -> Vec<Ranked> {
        // Nobody is kept from noting for longer than it takes to copy one shard.
        let mut all: Vec<Ranked> = Vec::new();
        self.0.iter().for_each(|shard| all.extend(lock(shard).ranked()));
        all.sort_by(|one, other| other.weight.total_cmp(&one.weight).then(one.key.cmp(&other.key)));
        all.truncate(keys_max);
        all
    }
}

fn lock(shard: &Shard) -> MutexGuard<'_, HeavyHitters> {
    shard.0.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::base::verdict::Judged;

    fn judged(key: u64, verdict: Verdict) -> Judged {
        let (slo, key) = (SloId::DEFAULT, Key::from_bits(key));
        Judged { slo, key, verdict, remaining: 0, is_dry_run: false, counts_end: false }
    }

    fn decision(key: u64, verdict: Verdict) -> Decision {
        Decision::of_one(judged(key, verdict), 1, Timestamp::from_millis(1_000))
    }

    #[test]
    fn who_would_be_throttled_by_a_dry_run_is_known_apart_from_those_who_are() {
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
        let counts = |top: Vec<Ranked>| -> Vec<_> {
            top.iter().map(|at| (at.key.bits(), at.hitter.delayed, at.hitter.denied)).collect()
        };
        assert_eq!(counts(throttled.top(10)), [(3, 1, 0)]);
        assert_eq!(counts(throttled.dry_runs(10)), [(1, 1, 2)]);
    }

    #[test]
    fn who_is_throttled_most_comes_first_and_who_passes_is_not_there() {
        let throttled = Throttled::default();
        let note = |key, verdict| throttled.note(&decision(key, verdict), 0, |_, _| {});
        note(1, Verdict::Pass);
        (0..3).for_each(|_| note(2, Verdict::Delay(Duration::from_millis(40))));
        (0..5).for_each(|_| note(1 << 33, Verdict::Deny { retry_after_s: 1 }));
        let top = throttled.top(10);
        let seen: Vec<_> = top
            .iter()
            .map(|at| (at.key.bits(), at.hitter.delayed, at.hitter.denied, at.hitter.delay_ms))
            .collect();
        assert_eq!(seen, [(1 << 33, 0, 5, 0), (2, 3, 0, 40)]);
        assert_eq!(throttled.top(1).len(), 1);
    }

    #[test]
    fn of_very_many_a_sample_is_noted_that_stands_for_all() {
        let throttled = Throttled::default();
        throttled.tick(Timestamp::from_millis(1_000), NOTES_PER_S_MAX * 4.0);
        let denied = decision(1, Verdict::Deny { retry_after_s: 1 });
        (0..4_000).for_each(|roll| throttled.note(&denied, roll, |_, _| {}));
        assert_eq!((throttled.one_in(), throttled.top(1)[0].hitter.denied), (4, 4_000));
    }

    #[test]
    fn what_was_noted_before_the_first_tick_is_kept() {
        let throttled = Throttled::default();
        throttled.note(&decision(1, Verdict::Deny { retry_after_s: 1 }), 0, |_, _| {});
        throttled.tick(Timestamp::from_millis(2_000), 0.0);
        assert_eq!(throttled.top(1)[0].weight, 1.0);
    }

    #[test]
    fn a_steady_rate_is_told_as_it_is_after_any_second_and_within_it() {
        let throttled = Throttled::default();
        let denied = decision(1, Verdict::Deny { retry_after_s: 1 });
        let assert_rate = |now| {
            let rate = throttled.per_second(&throttled.top(1)[0], now);
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
