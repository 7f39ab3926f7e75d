//! The stores to compare: the table, the throttle, and those of other libraries.

use std::hint::black_box;
use std::num::NonZeroU32;
use std::ops::Range;
use std::time::Duration;

use dashmap::DashMap;
use governor::Quota;
use governor::clock::FakeRelativeClock;
use hashbrown::DefaultHashBuilder;
use pingora_limits::rate::Rate;
use slowlane_core::base::{Key, Sample, Timestamp};
use slowlane_core::table::{Entry, Sizing, Table};
use slowlane_core::throttle::Throttle;

use crate::support::keyed::{self, Keyed};
use crate::support::{five_maps, key};

/// Longer than any measurement, so that nothing expires.
const EXPIRE: Duration = Duration::from_secs(3_600);

/// As in the default config.
const ANNEX_BYTES_MAX: usize = 64 << 20;

pub const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);

/// A store that is written by the number of a key.
pub trait Store: Sync {
    fn write(&self, number: u32, now: Timestamp);

    /// Writes to `count` keys, drawn from `numbers`.
    fn write_many(&self, count: usize, numbers: &Range<u32>, rng: &mut fastrand::Rng, now: Timestamp) {
        for _ in 0..count {
            self.write(rng.u32(numbers.clone()), now);
        }
    }
}

pub fn table(entries_max: u32) -> Table {
    Table::new(Sizing { entries_max, expire: EXPIRE })
}

impl Store for Table {
    fn write(&self, number: u32, now: Timestamp) {
        self.with(key(number), now, Duration::ZERO, |entry| entry.ask(1, now));
    }
}

/// A throttle with a policy of one line, for the least cost above the table.
pub fn throttle(entries_max: u32) -> Throttle {
    throttle_under("0.0.0.0/0", "burst=1000 rate=1000/s", Sizing { entries_max, expire: EXPIRE })
}

/// A throttle in which each source of a network has its own key under one SLO.
pub fn throttle_under(network: &str, slo: &str, sizing: Sizing) -> Throttle {
    let slo_map = format!("0 burst=9 rate=9/s\n3001 {slo}\n");
    let policy = five_maps::parse(&[("slo.map", slo_map), ("source.map", format!("{network} 3001\n"))]);
    Throttle::new(policy, sizing, ANNEX_BYTES_MAX)
}

impl Store for Throttle {
    fn write(&self, number: u32, now: Timestamp) {
        self.decide_one(&five_maps::request(number), now, Sample::MIDDLE);
    }
}

/// The same keys and entries in a DashMap. The default hash of [`hashbrown`] is faster than that of dashmap.
pub type Dashmap = DashMap<Key, Entry, DefaultHashBuilder>;

impl Store for Dashmap {
    fn write(&self, number: u32, now: Timestamp) {
        self.entry(key(number)).or_default().ask(1, now);
    }
}

/// Governor with a quota that lets everything pass, because it does not write denied requests.
pub fn governor() -> Keyed {
    let quota = Quota::with_period(Duration::from_nanos(1)).expect("more than no time");
    keyed::limiter(quota.allow_burst(NonZeroU32::MAX), FakeRelativeClock::default())
}

impl Store for Keyed {
    fn write(&self, number: u32, _: Timestamp) {
        let is_let_through = self.check_key(&key(number)).is_ok();
        debug_assert!(is_let_through);
    }
}

/// An estimate in two fields of 4 x 1,024 counters, whatever the number of keys.
pub fn pingora() -> Rate {
    Rate::new(Duration::from_secs(1))
}

impl Store for Rate {
    fn write(&self, number: u32, _: Timestamp) {
        self.observe(&key(number).bits(), 1);
    }
}

/// Threads without shared data: the most that the machine can give to two threads.
pub struct Nothing;

impl Store for Nothing {
    fn write(&self, number: u32, now: Timestamp) {
        black_box((key(number), now));
    }
}
