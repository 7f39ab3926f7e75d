//! Request rates of the noted keys over the last minute: requests received and requests admitted.

use std::collections::{HashMap, VecDeque};
use std::mem;
use std::time::Duration;

use slowlane_core::base::{Key, Timestamp};
use slowlane_core::table::{FreqCtr, PERIOD_MS, Table};

/// A minute of differences needs 61 samples.
const SAMPLES_MAX: usize = 61;

/// The totals of the noted keys, second by second.
#[derive(Debug, Default)]
pub(super) struct Busy(HashMap<Key, Meters>);

impl Busy {
    /// Reads the entries of all noted keys. Call this once a second.
    pub(super) fn tick(&mut self, now: Timestamp, keys: impl IntoIterator<Item = Key>, table: &Table) {
        let mut before = mem::take(&mut self.0);
        for key in keys {
            let Some((entry, _)) = table.get(key, now) else { continue };
            let rates = [entry.gpc0_rate, entry.gpc1_rate];
            let new = || Meters { last: rates, totals: [0; 2], samples: VecDeque::new() };
            let mut meters = before.remove(&key).unwrap_or_else(new);
            meters.read(now, rates);
            self.0.insert(key, meters);
        }
    }

    /// Requests per second of a key, received and admitted, over the time `over` or over the part of it that is known.
    ///
    /// `None` if less than a second is known.
    pub(super) fn per_second(&self, key: Key, over: Duration) -> Option<[f64; 2]> {
        let samples = &self.0.get(&key)?.samples;
        let &(at, totals) = samples.back()?;
        let &(since, before) = samples.iter().find(|(then, _)| at.since(*then) <= over + SLACK)?;
        let seconds = at.since(since).as_secs_f64();
        (seconds > 0.5).then(|| [0, 1].map(|rate| (totals[rate] - before[rate]) as f64 / seconds))
    }
}

/// The tolerance for late ticks.
const SLACK: Duration = Duration::from_millis(500);

/// The total requests of one key, received and admitted, from which the key's rates are calculated.
#[derive(Debug)]
struct Meters {
    last: [FreqCtr; 2],
    totals: [u64; 2],
    /// The totals of each second, newest last.
    samples: VecDeque<(Timestamp, [u64; 2])>,
}

impl Meters {
    fn read(&mut self, now: Timestamp, rates: [FreqCtr; 2]) {
        let last = mem::replace(&mut self.last, rates);
        for (total, (last, rate)) in self.totals.iter_mut().zip(last.into_iter().zip(rates)) {
            *total += u64::from(added(last, rate));
        }
        if self.samples.len() == SAMPLES_MAX {
            self.samples.pop_front();
        }
        self.samples.push_back((now, self.totals));
    }
}

/// The number of requests between two reads of a rate. Windows do not overlap, so one read per window is enough.
fn added(last: FreqCtr, now: FreqCtr) -> u32 {
    if now.curr_tick == last.curr_tick {
        now.curr_ctr.saturating_sub(last.curr_ctr)
    } else if now.curr_tick == last.curr_tick.wrapping_add(PERIOD_MS) {
        now.prev_ctr.saturating_sub(last.curr_ctr).saturating_add(now.curr_ctr)
    } else {
        now.prev_ctr.saturating_add(now.curr_ctr)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use slowlane_core::table::Sizing;

    const KEY: Key = Key::from_bits(7);

    /// The rate shown after some seconds of evenly spaced requests.
    fn shown(every_ms: u64, first_ms: u64, look_ms: u64, seconds: u64, over_s: u64) -> f64 {
        let table = Table::new(Sizing { entries_max: 10, expire: Duration::from_secs(90) });
        let mut busy = Busy::default();
        let start = 1_000_000;
        let mut next = start + first_ms;
        for second in 0..seconds {
            let look = start + 1_000 * second + look_ms;
            while next <= look {
                let now = Timestamp::from_millis(next);
                table.with(KEY, now, Duration::ZERO, |entry| entry.let_through(1, now));
                next += every_ms;
            }
            busy.tick(Timestamp::from_millis(look), vec![KEY], &table);
        }
        let [asked, let_through] = busy.per_second(KEY, Duration::from_secs(over_s)).unwrap();
        assert_eq!(asked, 0.0);
        let_through
    }

    proptest! {
        /// For any start of the requests, and any moment of reading.
        #[test]
        fn a_steady_rate_is_shown_exactly(first_ms in 0u64..2_000, look_ms in 0u64..1_000) {
            prop_assert_eq!(shown(2_000, first_ms, look_ms, 80, 60), 0.5);
            prop_assert_eq!(shown(2_000, first_ms, look_ms, 80, 10), 0.5);
            prop_assert_eq!(shown(20, first_ms, look_ms, 30, 10), 50.0);
            prop_assert_eq!(shown(1_000, first_ms, look_ms, 30, 10), 1.0);
            prop_assert_eq!(shown(6_000, first_ms, look_ms, 80, 60), 1.0 / 6.0);
        }
    }

    #[test]
    fn a_key_no_longer_noted_is_forgotten_and_a_new_key_waits_a_second() {
        let table = Table::new(Sizing { entries_max: 10, expire: Duration::from_secs(90) });
        let mut busy = Busy::default();
        let now = |second: u64| Timestamp::from_millis(1_000_000 + 1_000 * second);
        table.with(KEY, now(0), Duration::ZERO, |entry| entry.let_through(9, now(0)));
        busy.tick(now(0), vec![KEY], &table);
        assert_eq!(busy.per_second(KEY, Duration::from_secs(10)), None);
        busy.tick(now(1), vec![KEY], &table);
        assert_eq!(busy.per_second(KEY, Duration::from_secs(10)), Some([0.0, 0.0]));
        busy.tick(now(2), vec![], &table);
        assert_eq!(busy.per_second(KEY, Duration::from_secs(10)), None);
    }
}
