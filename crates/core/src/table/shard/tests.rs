//! Tests of a shard: expiry, eviction, floods, and the keys that are tracked.

use proptest::prelude::*;

use super::*;

const EXPIRE: Duration = Duration::from_secs(30);

const SPREAD: Spread = Spread::of(7, 0x9E37_79B9_7F4A_7C15);

/// A second of these tests is 63 whole units of expiry.
fn at(second: u64) -> Timestamp {
    Timestamp::from_millis(63 * EXPIRY_UNIT_MS * (1_000 + second))
}

impl Shard {
    fn count(&mut self, key: u64, second: u64) -> u32 {
        let entry = self.entry(Key::from_bits(key), at(second), Duration::ZERO);
        entry.http_req_cnt += 1;
        entry.http_req_cnt
    }

    /// Keys and counts, page by page.
    fn walked(&self, now: Timestamp) -> Vec<(u64, u32)> {
        let (mut found, mut next) = (Vec::new(), Some(0));
        while let Some(from) = next {
            next = self.page(from, 3, now, |row| found.push((row.key.bits(), row.entry.http_req_cnt)));
        }
        found.sort_unstable();
        found
    }

    fn has(&self, key: u64, second: u64) -> bool {
        self.row(Key::from_bits(key), at(second)).is_some()
    }
}

#[test]
fn a_write_re_arms_the_expiry_and_a_read_does_not() {
    let mut shard = Shard::new(8, EXPIRE, SPREAD);
    shard.count(1, 0);
    shard.count(1, 20);
    assert!(shard.has(1, 49));
    assert!(!shard.has(1, 50));
    assert_eq!(shard.count(1, 50), 1, "what comes back after its expiry is new");
}

#[test]
fn a_full_shard_gives_up_the_nearest_expiry() {
    let mut shard = Shard::new(2, EXPIRE, SPREAD);
    shard.count(1, 0);
    shard.count(2, 1);
    shard.count(1, 2);
    shard.count(3, 3);
    assert!(shard.has(1, 3) && !shard.has(2, 3) && shard.has(3, 3));
    assert_eq!(shard.usage(), Usage { entries: 2, evictions: 1 });
}

#[test]
fn a_key_asked_for_again_outlives_a_flood() {
    for requests_of_each_new in 1..=3 {
        let mut shard = Shard::new(1_000, EXPIRE, SPREAD);
        for asked in 1..=500 {
            assert_eq!(shard.count(0, 0), asked);
            for new in 0..100 * requests_of_each_new {
                shard.count(u64::from(asked * 100 + new / requests_of_each_new), 0);
            }
        }
        assert_eq!(shard.usage().evictions, 500 * 100 + 1 - 1_000);
    }
}

#[test]
fn a_longer_lifetime_outlives_later_writes() {
    let mut shard = Shard::new(2, EXPIRE, SPREAD);
    shard.entry(Key::from_bits(1), at(0), Duration::from_secs(100));
    shard.count(2, 5);
    shard.count(3, 6);
    assert!(shard.has(1, 6) && !shard.has(2, 6) && shard.has(3, 6));
    assert!(shard.has(1, 99) && !shard.has(1, 120), "rounded up to 4 x 30 s");
}

#[test]
fn an_expired_row_is_used_again_and_counts_as_no_eviction() {
    let mut shard = Shard::new(2, EXPIRE, SPREAD);
    shard.count(1, 0);
    shard.count(2, 0);
    shard.count(3, 40);
    assert_eq!(shard.usage(), Usage { entries: 1, evictions: 0 });
    assert_eq!(shard.rows.len(), CLASSES + 2);
}

#[test]
fn a_flood_needs_more_new_keys_than_so_many_in_less_than_a_stretch() {
    let (mut flood, stretch) = (Flood::default(), Duration::from_secs(1));
    let ms = Timestamp::from_millis;
    let mut add = |now_ms: [u64; 3]| {
        now_ms.into_iter().for_each(|now_ms| flood.add(ms(now_ms), 2, stretch));
        flood
    };
    assert!(!add([10_000, 10_000, 10_000]).is_on(ms(10_000)), "nobody knows when it began");
    assert!(!add([10_000, 10_500, 11_000]).is_on(ms(11_000)), "they took a whole stretch");
    let flood = add([11_000, 11_500, 11_999]);
    assert!(flood.is_on(ms(11_999)) && flood.is_on(ms(13_998)), "it lasts two stretches");
    assert!(!flood.is_on(ms(13_999)));
}

/// In units of 16 ms: 1,875 ms have 117, and the largest power of two among them is 64.
#[test]
fn a_stretch_is_the_largest_power_of_two_within_a_sixteenth() {
    let bits = |expire_ms| stretch_bits(Duration::from_millis(expire_ms));
    assert_eq!([bits(30_000), bits(4_096), bits(4_095), bits(10)], [6, 4, 3, 0]);
}

/// Written 5 ms after a unit began, for 30 s: rounded up to the next unit, that is 30,011 ms.
#[test]
fn what_is_left_of_a_lifetime_is_exact_within_a_unit() {
    let (mut shard, key) = (Shard::new(8, EXPIRE, SPREAD), Key::from_bits(1));
    let after = |ms| at(0) + Duration::from_millis(ms);
    shard.entry(key, after(5), Duration::ZERO);
    let left = |ms| shard.row(key, after(ms)).map(|found| found.left.as_millis());
    assert_eq!([left(5), left(12), left(10_005), left(30_015)], [30_011, 30_004, 20_011, 1].map(Some));
    assert_eq!(left(30_016), None);
}

/// Classes of 1 s, 4 s and so on: the twelfth has 4^11 s, more than 48 days.
#[test]
fn no_lifetime_is_beyond_the_last_class() {
    let mut shard = Shard::new(8, Duration::from_secs(1), SPREAD);
    for days in [40, 60, 300] {
        shard.entry(Key::from_bits(days), at(0), Duration::from_secs(days * 86_400));
        let Found { left, .. } = shard.row(Key::from_bits(days), at(0)).unwrap();
        assert_eq!(left, Duration::from_secs(1 << 22), "{days}");
    }
    assert_eq!(shard.walked(at(0)).len(), 3);
}

#[test]
fn an_entry_that_is_put_back_has_its_counts_and_the_rest_of_its_life() {
    let (mut shard, key) = (Shard::new(8, EXPIRE, SPREAD), Key::from_bits(1));
    let (left, entry) = (Duration::from_secs(10), Entry { http_req_cnt: 7, ..Entry::default() });
    shard.put_back(key, entry, left, at(0));
    assert_eq!(shard.row(key, at(0)).map(|found| (found.entry, found.left)), Some((entry, left)));
    assert!(shard.row(key, at(0) + Duration::from_millis(9_999)).is_some());
    assert!(shard.row(key, at(0) + left).is_none());
}

#[test]
fn keys_that_are_written_or_removed_are_tracked_until_it_ends() {
    let mut shard = Shard::new(8, EXPIRE, SPREAD);
    let sorted = |keys: HashSet<Key>| {
        let mut bits: Vec<u64> = keys.into_iter().map(Key::bits).collect();
        bits.sort_unstable();
        bits
    };
    shard.count(1, 0);
    assert_eq!(sorted(shard.track()), [0; 0], "it was not tracked yet");
    shard.count(2, 0);
    assert_eq!(sorted(shard.track()), [2]);
    shard.count(3, 0);
    shard.remove(Key::from_bits(1), |_| true);
    assert_eq!(sorted(shard.tracked()), [1, 3]);
    shard.count(4, 0);
    assert_eq!(sorted(shard.tracked()), [0; 0], "it has ended");
}

proptest! {
    /// Compares with a plain list of (key, expiry): same rows, same counts, never more than the bound. An
    /// evicted row is the next to expire, or within one stretch of it.
    #[test]
    fn it_behaves_like_a_list(writes in prop::collection::vec((0u64..12, 0u64..2_000, 0u64..3), 1..200)) {
        let mut shard = Shard::new(5, EXPIRE, SPREAD);
        let stretch = Duration::from_millis(EXPIRY_UNIT_MS << shard.stretch_bits);
        let mut list: Vec<(u64, Timestamp, u32)> = Vec::new();
        let mut now = at(0);
        for (key, pause, keep) in writes {
            // Up to 20 seconds, and often much less.
            now = now + Duration::from_millis(EXPIRY_UNIT_MS * (pause * pause / 3_200));
            let keep = Duration::from_secs(keep * 40);
            let lifetime = if keep > EXPIRE { EXPIRE * 4 } else { EXPIRE };
            list.retain(|row| row.1 > now);
            let old = list.iter().position(|row| row.0 == key).map(|at| list.remove(at));
            let count = old.map_or(0, |row| row.2) + 1;
            let was_full = old.is_none() && shard.index.len() == 5;

            let entry = shard.entry(Key::from_bits(key), now, keep);
            entry.http_req_cnt += 1;
            prop_assert_eq!(entry.http_req_cnt, count);
            prop_assert!(shard.index.len() <= 5);
            let is_gone = |row: &(u64, Timestamp, u32)| shard.row(Key::from_bits(row.0), now).is_none();
            if let Some(gone) = list.iter().position(is_gone) {
                let nearest = list.iter().map(|row| row.1).min().unwrap();
                let (_, expires, _) = list.remove(gone);
                prop_assert!(was_full && expires.since(nearest) < stretch);
            }
            list.push((key, now + lifetime, count));
            prop_assert!(list.len() <= 5);
            for key in 0..12 {
                let want = list.iter().find(|row| row.0 == key).map(|row| row.2);
                let have = shard.row(Key::from_bits(key), now).map(|found| found.entry.http_req_cnt);
                prop_assert_eq!(have, want, "key {}", key);
            }
            let mut live: Vec<(u64, u32)> = list.iter().map(|row| (row.0, row.2)).collect();
            live.sort_unstable();
            prop_assert_eq!(shard.walked(now), live);
        }
    }

    /// A removed key is gone, no other key is, and its row is used again.
    #[test]
    fn a_removed_key_is_gone(steps in prop::collection::vec((0u64..12, any::<bool>()), 1..200)) {
        let mut shard = Shard::new(12, EXPIRE, SPREAD);
        let mut live = std::collections::BTreeMap::new();
        for (key, is_write) in steps {
            if is_write {
                *live.entry(key).or_insert(0) += 1;
                shard.count(key, 0);
            } else {
                prop_assert!(!shard.remove(Key::from_bits(key), |_| false));
                prop_assert_eq!(shard.remove(Key::from_bits(key), |_| true), live.remove(&key).is_some());
            }
            prop_assert_eq!(shard.walked(at(0)), live.iter().map(|(&key, &count)| (key, count)).collect::<Vec<_>>());
            prop_assert_eq!(shard.usage().entries, live.len() as u64);
            prop_assert!(shard.rows.len() <= CLASSES + 12);
        }
    }
}
