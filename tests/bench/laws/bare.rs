//! Judgements without a table lookup.

use std::hint::black_box;
use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::FakeRelativeClock;
use governor::{Quota, RateLimiter};
use slowlane_core::base::Timestamp;
use slowlane_core::law::{Admission, Arrival, AuxState, Law};
use slowlane_core::table::Entry;

use crate::law;
use crate::support::Cost;

/// The number of keys. Each is used once per round.
const KEYS: usize = 1_000;

/// The burst of each key.
const BURST: u32 = 100;
const RATE_PER_SECOND: u32 = 100;

/// The time between rounds at half the rate of a key.
pub const HALF: Duration = Duration::from_millis(20);
/// The time between rounds at twice the rate of a key.
pub const TWICE: Duration = Duration::from_millis(5);

/// The warm-up: after it, no bucket is full, and delays have reached their maximum.
const WARM_UP: Duration = Duration::from_secs(8);

/// The number of sources that share a key.
const SHARERS: u64 = 4;

pub fn of_law(name: &str, round: Duration) -> impl FnMut(Duration) -> f64 {
    let mut keys = Keys::new(law(name, BURST, RATE_PER_SECOND));
    let ends = round == HALF;
    for _ in 0..WARM_UP.div_duration_f64(round) as u32 {
        keys.pass(round);
        keys.judge();
        keys.end(ends);
    }
    move |time| {
        let mut cost = Cost::within(time);
        while cost.has_time() {
            keys.pass(round);
            cost.of(KEYS, || keys.judge());
            keys.end(ends);
        }
        cost.ns_each()
    }
}

struct Keys {
    law: Law,
    entries: Vec<(Entry, Option<AuxState>)>,
    round: u64,
    now: Timestamp,
}

impl Keys {
    fn new(law: Law) -> Keys {
        let entries = (0..KEYS).map(|_| (Entry::default(), law.aux())).collect();
        Keys { law, entries, round: 0, now: Timestamp::from_millis(1_700_000_000_000) }
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        self.round += 1;
    }

    fn judge(&mut self) {
        let sharer = self.round % SHARERS;
        for (entry, aux) in &mut self.entries {
            let arrival = Arrival { sharer, ..Arrival::at(self.now) };
            black_box(self.law.judge(entry, aux.as_mut(), &arrival));
        }
    }

    /// Ends a request that was let through. Otherwise `concurrency` would soon deny everything.
    fn end(&mut self, is_wanted: bool) {
        if is_wanted && self.law.counts_ends() {
            for (entry, _) in &mut self.entries {
                self.law.end(entry, &Admission { cost: 1, due: self.now, now: self.now });
            }
        }
    }
}

/// Governor's direct rate limiter, one per key.
pub fn of_governor(round: Duration) -> impl FnMut(Duration) -> f64 {
    let clock = FakeRelativeClock::default();
    let number = |number| NonZeroU32::new(number).expect("more than none");
    let quota = Quota::per_second(number(RATE_PER_SECOND)).allow_burst(number(BURST));
    let keys: Vec<_> = (0..KEYS).map(|_| RateLimiter::direct_with_clock(quota, clock.clone())).collect();
    let check = move || {
        for limiter in &keys {
            let _ = black_box(limiter.check());
        }
    };
    for _ in 0..WARM_UP.div_duration_f64(round) as u32 {
        clock.advance(round);
        check();
    }
    move |time| {
        let mut cost = Cost::within(time);
        while cost.has_time() {
            clock.advance(round);
            cost.of(KEYS, &check);
        }
        cost.ns_each()
    }
}
