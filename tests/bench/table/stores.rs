//! Who remembers something of each key: the table, the throttle that it is a part of, and their rivals.

use std::hint::black_box;
use std::num::NonZeroU32;
use std::ops::Range;
use std::time::Duration;

use dashmap::DashMap;
use governor::Quota;
use governor::clock::FakeRelativeClock;
use hashbrown::DefaultHashBuilder;
use pingora_limits::rate::Rate;
use slowlane::base::draw::Draw;
use slowlane::base::key::Key;
use slowlane::base::time::Timestamp;
use slowlane::table::{Entry, Sizing, Table};
use slowlane::throttle::Throttle;

use crate::support::keyed::{self, Keyed};
use crate::support::{five_maps, key};

/// Nothing expires while it is measured.
const EXPIRE: Duration = Duration::from_secs(3_600);

pub const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);

/// One writes to it by the number of a key.
pub trait Store: Sync {
    fn write(&self, number: u32, now: Timestamp);

    /// Writes to so many keys, drawn from these.
    fn write_many(&self, count: usize, numbers: &Range<u32>, dice: &mut fastrand::Rng, now: Timestamp) {
        for _ in 0..count {
            self.write(dice.u32(numbers.clone()), now);
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

/// With a policy of one line: what is above the table is as little as can be.
pub fn throttle(entries_max: u32) -> Throttle {
    throttle_under("0.0.0.0/0", "burst=1000 rate=1000/s", Sizing { entries_max, expire: EXPIRE })
}

/// Each source of a network has an SLO of its own.
pub fn throttle_under(network: &str, slo: &str, sizing: Sizing) -> Throttle {
    let slo_map = format!("0 burst=9 rate=9/s\n3001 {slo}\n");
    let policy = five_maps::parse(&[("slo.map", slo_map), ("source.map", format!("{network} 3001\n"))]);
    Throttle::new(policy, sizing, 0)
}

impl Store for Throttle {
    fn write(&self, number: u32, now: Timestamp) {
        self.decide_one(&five_maps::request(number), now, Draw::MIDDLE);
    }
}

/// The same entries by the same keys. Keys are hashed as [`hashbrown`] does by default, which costs less than dashmap's
/// own default.
pub type Dashmap = DashMap<Key, Entry, DefaultHashBuilder>;

impl Store for Dashmap {
    fn write(&self, number: u32, now: Timestamp) {
        self.entry(key(number)).or_default().ask(1, now);
    }
}

/// It lets everything pass, for what it refuses it does not write.
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

/// What a machine gives to two threads that have nothing in common: others may use it too.
pub struct Nothing;

impl Store for Nothing {
    fn write(&self, number: u32, now: Timestamp) {
        black_box((key(number), now));
    }
}
