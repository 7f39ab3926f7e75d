//! Judgements with a table lookup, and whole decisions.

use std::hint::black_box;
use std::num::NonZeroU32;
use std::time::Duration;

use governor::Quota;
use governor::clock::FakeRelativeClock;
use slowlane_core::base::{Sample, Timestamp};
use slowlane_core::law::Arrival;
use slowlane_core::table::{Sizing, Table};
use slowlane_core::throttle::AuxStore;
use slowlane_core::throttle::Throttle;

use crate::law;
use crate::support::{Cost, five_maps, key, keyed};

const BATCH: usize = 64;

/// The virtual time of a batch: each of 100,000 keys is used about 13 times per second.
const BATCH_TIME: Duration = Duration::from_micros(50);

/// The burst of each key, as in the five maps.
const BURST: u32 = 1_000;
const RATE_PER_SECOND: u32 = 1_000;

/// The memory limit for auxiliary states, more than any law needs here.
const ANNEX_BYTES_MAX: usize = 1 << 30;

const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);

fn sizing(keys: u32) -> Sizing {
    Sizing { entries_max: keys + keys / 4, expire: Duration::from_secs(600) }
}

/// A judgement in the table, for a known law and key.
pub fn of_law(name: &str, keys: u32) -> impl FnMut(Duration) -> f64 {
    let law = law(name, BURST, RATE_PER_SECOND);
    let (table, aux_store) = (Table::new(sizing(keys)), AuxStore::new(ANNEX_BYTES_MAX));
    let judge = move |number: u32, now: Timestamp| {
        let (key, arrival) = (key(number), Arrival::at(now));
        let judgement = table.with(key, now, law.memory(), |entry| match law.has_aux() {
            false => law.judge(entry, None, &arrival),
            true => aux_store.with(key, &law, 1, now, |aux| law.judge(entry, aux, &arrival)),
        });
        black_box(judgement);
    };
    measure(keys, |_| {}, judge)
}

pub fn of_decision(name: &str, keys: u32) -> impl FnMut(Duration) -> f64 {
    let policy = five_maps::policy(name, keys, keys);
    let throttle = Throttle::new(policy, sizing(keys), ANNEX_BYTES_MAX);
    let decide = move |number: u32, now: Timestamp| {
        black_box(throttle.decide_one(&five_maps::request(number), now, Sample::MIDDLE));
    };
    measure(keys, |_| {}, decide)
}

pub fn of_governor(keys: u32) -> impl FnMut(Duration) -> f64 {
    let number = |number| NonZeroU32::new(number).expect("more than none");
    let quota = Quota::per_second(number(RATE_PER_SECOND)).allow_burst(number(BURST));
    let clock = FakeRelativeClock::default();
    let limiter = keyed::limiter(quota, clock.clone());
    let check = move |number: u32, _| {
        let _ = black_box(limiter.check_key(&key(number)));
    };
    measure(keys, move |time| clock.advance(time), check)
}

/// Uses every key once, and then random ones.
fn measure(
    keys: u32,
    mut pass: impl FnMut(Duration),
    mut ask: impl FnMut(u32, Timestamp),
) -> impl FnMut(Duration) -> f64 {
    let (mut rng, mut now) = (fastrand::Rng::with_seed(7), START);
    (0..keys).for_each(|number| ask(number, now));
    move |time| {
        let mut cost = Cost::within(time);
        while cost.has_time() {
            let numbers: [u32; BATCH] = std::array::from_fn(|_| rng.u32(0..keys));
            now = now + BATCH_TIME;
            pass(BATCH_TIME);
            cost.of(BATCH, || numbers.into_iter().for_each(|number| ask(number, now)));
        }
        cost.ns_each()
    }
}
