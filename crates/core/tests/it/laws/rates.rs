//! The rate of a stick table, against an independent implementation of HAProxy's counter.

use slowlane_core::table::FreqCtr;

/// HAProxy's `freq_ctr.c` in wide signed arithmetic, statement by statement.
#[derive(Clone, Copy, Default)]
pub struct Oracle {
    tick: i64,
    curr: i64,
    prev: i64,
}

const WRAP: i64 = 1 << 32;
const PERIOD: i64 = 1_000;

impl Oracle {
    pub fn update(&mut self, inc: i64, now: i64) {
        if (now - self.tick).rem_euclid(WRAP) < PERIOD {
            self.curr = (self.curr + inc) % WRAP;
            return;
        }
        self.prev = self.curr;
        self.curr = inc;
        self.tick = (self.tick + PERIOD) % WRAP;
        if (now - self.tick).rem_euclid(WRAP) >= PERIOD {
            self.prev = 0;
            self.tick = now;
        }
        self.tick -= self.tick % 2;
    }

    pub fn read(&self, now: i64) -> i64 {
        let (mut past, mut curr) = (self.prev, self.curr);
        let mut remain = (self.tick + PERIOD - now).rem_euclid(WRAP);
        if remain >= WRAP / 2 {
            remain -= WRAP;
        }
        if remain < 0 {
            remain += PERIOD;
            past = if remain >= 0 { curr } else { 0 };
            curr = 0;
        }
        if curr == 0 && past <= 1 {
            return past;
        }
        let total = i128::from(past) * i128::from(remain) + i128::from(curr) * i128::from(PERIOD);
        // It is returned as an unsigned int.
        (total / i128::from(PERIOD)) as i64 % WRAP
    }
}

#[test]
fn a_rate_is_haproxys_on_a_million_random_schedules() {
    let mut rng = fastrand::Rng::with_seed(1);
    for schedule in 0..1_000_000 {
        let (mut ours, mut theirs) = (FreqCtr::default(), Oracle::default());
        // Half of them begin just before the clock wraps.
        let mut now = if schedule % 2 == 0 { rng.u32(..) } else { u32::MAX - rng.u32(0..3_000) };
        let longest_pause = [3, 40, 700, 1_100, 5_000][schedule % 5];
        for _ in 0..rng.usize(1..24) {
            now = now.wrapping_add(rng.u32(0..longest_pause));
            if rng.bool() {
                let events = if rng.u8(..) == 0 { rng.u32(..) } else { rng.u32(0..5) };
                ours.add(events, now);
                theirs.update(i64::from(events), i64::from(now));
            }
            assert_eq!(
                i64::from(ours.read(now)),
                theirs.read(i64::from(now)),
                "{schedule}: {ours:?} at {now}"
            );
        }
    }
}

#[test]
fn a_lone_event_reads_one_for_two_periods() {
    let mut ctr = FreqCtr::default();
    ctr.add(1, 500_000);
    assert_eq!(ctr.read(500_999), 1);
    assert_eq!(ctr.read(501_999), 1);
    assert_eq!(ctr.read(502_001), 0);
}
