//! Who is throttled, noted beside the way of a request: a few nanoseconds for one that waits, nothing for one that passes.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::status::heavy_hitters::{HeavyHitters, Ranked};
use crate::status::label::Label;
use crate::time::Timestamp;
use crate::verdict::{Decision, Verdict};

/// So that threads seldom meet; who finds a shard locked goes on without a note.
const SHARDS: usize = 8;

/// As many requests are noted in a second, of more a sample: then all of it is a thousandth of a core.
const NOTES_PER_S_MAX: f64 = 10_000.0;

/// What was noted counts half as much after so many seconds.
const HALF_LIFE_S: f64 = 10.0;

/// Throttled keys, with what names them.
#[derive(Debug)]
pub struct Throttled {
    shards: [Shard; SHARDS],
    /// One in so many requests is noted.
    one_in: AtomicU32,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard(Mutex<HeavyHitters>);

impl Default for Throttled {
    fn default() -> Throttled {
        Throttled { shards: Default::default(), one_in: AtomicU32::new(1) }
    }
}

impl Throttled {
    /// Notes a request that is delayed or denied, or lets it be. `roll` is any number; `write` is asked for the label
    /// of a key that has none.
    pub fn note(&self, decision: &Decision, roll: u32, write: impl FnOnce(&mut Label)) {
        if matches!(decision.verdict, Verdict::Pass) {
            return;
        }
        let one_in = self.one_in.load(Relaxed);
        if !roll.is_multiple_of(one_in) {
            return;
        }
        let Ok(mut hitters) = self.shards[shard(decision)].0.try_lock() else { return };
        let hitter = hitters.add(decision.key, one_in as f32);
        match decision.verdict {
            Verdict::Pass => {}
            Verdict::Delay(_) => {
                hitter.delayed += u64::from(one_in);
                hitter.delay_ms = decision.verdict.delay_ms();
            }
            Verdict::Deny { .. } => hitter.denied += u64::from(one_in),
        }
        (hitter.slo, hitter.seen) = (Some(decision.slo), decision.at);
        if hitter.since == Timestamp::default() {
            hitter.since = decision.at;
            write(&mut hitter.label);
        }
    }

    /// Once in `seconds`: lets fade what was noted, and sets which part of so many throttled requests is noted from now on.
    pub fn tick(&self, throttled_per_s: f64, seconds: f64) {
        let one_in = (throttled_per_s / NOTES_PER_S_MAX).ceil().max(1.0);
        self.one_in.store(one_in as u32, Relaxed);
        let factor = (-seconds / HALF_LIFE_S).exp2() as f32;
        self.shards.iter().for_each(|shard| lock(shard).fade(factor));
    }

    /// One in so many of the throttled requests is noted.
    pub fn one_in(&self) -> u32 {
        self.one_in.load(Relaxed)
    }

    /// So many of the keys that are throttled most, the first of them first.
    pub fn top(&self, keys_max: usize) -> Vec<Ranked> {
        // Nobody is kept from noting for longer than it takes to copy one shard.
        let mut all: Vec<Ranked> = Vec::new();
        self.shards.iter().for_each(|shard| all.extend(lock(shard).ranked()));
        all.sort_by(|one, other| other.weight.total_cmp(&one.weight).then(one.key.cmp(&other.key)));
        all.truncate(keys_max);
        all
    }
}

/// How many requests per second have made up such a weight since `since`, if they were as many all the time.
pub(super) fn per_second(weight: f32, since: Timestamp, now: Timestamp) -> f64 {
    let seconds = now.since(since).as_secs_f64().max(1.0);
    let faded = |seconds: f64| (-seconds / HALF_LIFE_S).exp2();
    f64::from(weight) * (1.0 - faded(1.0)) / (1.0 - faded(seconds))
}

/// Not the bits that a table's shards are chosen by: who meets in one place need not meet in the other.
fn shard(decision: &Decision) -> usize {
    (decision.key.bits() >> 32) as usize % SHARDS
}

fn lock(shard: &Shard) -> MutexGuard<'_, HeavyHitters> {
    shard.0.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::key::Key;
    use crate::slo_id::SloId;
    use crate::verdict::Judged;

    fn decision(key: u64, verdict: Verdict) -> Decision {
        let judged = Judged {
            slo: SloId::DEFAULT,
            key: Key::from_bits(key),
            verdict,
            remaining: 0,
            is_dry_run: false,
            counts_end: false,
        };
        Decision::of_one(judged, 1, Timestamp::from_millis(1_000))
    }

    #[test]
    fn who_is_throttled_most_comes_first_and_who_passes_is_not_there() {
        let throttled = Throttled::default();
        let note = |key, verdict| throttled.note(&decision(key, verdict), 0, |_| {});
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
        throttled.tick(NOTES_PER_S_MAX * 4.0, 1.0);
        let denied = decision(1, Verdict::Deny { retry_after_s: 1 });
        (0..4_000).for_each(|roll| throttled.note(&denied, roll, |_| {}));
        assert_eq!((throttled.one_in(), throttled.top(1)[0].hitter.denied), (4, 4_000));
    }

    #[test]
    fn a_steady_rate_is_told_as_it_is_from_the_first_second() {
        let throttled = Throttled::default();
        for second in 1..100 {
            let denied = decision(1, Verdict::Deny { retry_after_s: 1 });
            (0..50).for_each(|_| throttled.note(&denied, 0, |_| {}));
            let top = &throttled.top(1)[0];
            let rate = per_second(top.weight, top.hitter.since, denied.at + Duration::from_secs(second));
            assert!((49.9..50.1).contains(&rate), "{rate} after {second} s");
            throttled.tick(50.0, 1.0);
        }
    }
}
