//! Rates and delays of the last minutes, second by second.

use std::array;
use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::observe::delays::DelayCounts;
use crate::observe::status::snapshot::round;
use slowlane_core::base::{SloId, Timestamp};

/// The number of seconds to keep: five minutes.
const SECONDS_MAX: usize = 300;

/// The number of seconds over which a current rate is averaged.
const NOW_S: usize = 10;

/// All counts up to one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Totals {
    pub(super) at: Timestamp,
    pub(super) verdicts: SecondCounts,
    /// The verdicts that dry runs would have given.
    pub(super) shadow: SecondCounts,
    pub(super) delays: DelayCounts,
}

/// Pass, delay and deny by SLO, sorted by id.
#[derive(Clone, Debug, Default)]
pub(super) struct SecondCounts(pub(super) Vec<(SloId, [u64; 3])>);

impl SecondCounts {
    /// The sums over all SLOs.
    pub(super) fn all(&self) -> [u64; 3] {
        array::from_fn(|verdict| self.0.iter().map(|(_, counts)| counts[verdict]).sum())
    }

    pub(super) fn of(&self, slo: SloId) -> [u64; 3] {
        self.0.binary_search_by_key(&slo, |(id, _)| *id).map_or([0; 3], |place| self.0[place].1)
    }
}

/// The rates and delays of the last minutes, one value per second, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Minutes {
    pub pass: VecDeque<f64>,
    pub delay: VecDeque<f64>,
    pub deny: VecDeque<f64>,
    pub p50_ms: VecDeque<Option<u64>>,
    pub p99_ms: VecDeque<Option<u64>>,
}

/// The last seconds, and the last totals, which are needed to compute the next second.
#[derive(Debug, Default)]
pub(super) struct Seconds {
    pub(super) minutes: Minutes,
    /// The last `NOW_S` + 1 totals, newest last.
    totals: VecDeque<Totals>,
}

impl Seconds {
    /// Adds the totals of this moment. Call this once a second. Returns the rates of the verdicts since the last call,
    /// and of the verdicts that dry runs would have given.
    pub(super) fn tick(&mut self, totals: Totals) -> [[f64; 3]; 2] {
        let mut new = [[0.0; 3]; 2];
        if let Some(before) = self.totals.back() {
            new = [
                rates(before, &totals, |totals| totals.verdicts.all()),
                rates(before, &totals, |totals| totals.shadow.all()),
            ];
            let delays = totals.delays.since(&before.delays);
            let Minutes { pass, delay, deny, p50_ms, p99_ms } = &mut self.minutes;
            for (minutes, rate) in [pass, delay, deny].into_iter().zip(new[0]) {
                keep(minutes, SECONDS_MAX, round(rate));
            }
            for (minutes, quantile) in [(p50_ms, 0.5), (p99_ms, 0.99)] {
                keep(minutes, SECONDS_MAX, delays.quantile_ms(quantile));
            }
        }
        keep(&mut self.totals, NOW_S + 1, totals);
        new
    }

    /// Counts per second over the last `NOW_S` seconds: pass, delay, deny. Zeros before the second tick.
    pub(super) fn rates(&self, counts: impl Fn(&Totals) -> [u64; 3]) -> [f64; 3] {
        self.now().map(|(before, after)| rates(before, after, counts)).unwrap_or_default()
    }

    /// The delays over the last `NOW_S` seconds.
    pub(super) fn delays(&self) -> DelayCounts {
        self.now().map(|(before, after)| after.delays.since(&before.delays)).unwrap_or_default()
    }

    /// The totals at the start and at the end of the last `NOW_S` seconds; `None` before the second tick.
    fn now(&self) -> Option<(&Totals, &Totals)> {
        Some((self.totals.front()?, self.totals.back()?)).filter(|_| self.totals.len() > 1)
    }
}

fn keep<T>(queue: &mut VecDeque<T>, most: usize, newest: T) {
    if queue.len() == most {
        queue.pop_front();
    }
    queue.push_back(newest);
}

/// Counts per second between two moments: pass, delay, deny.
fn rates(before: &Totals, after: &Totals, counts: impl Fn(&Totals) -> [u64; 3]) -> [f64; 3] {
    let seconds = after.at.since(before.at).as_secs_f64();
    let (before, after) = (counts(before), counts(after));
    let rate = |new: u64| if seconds > 0.0 { new as f64 / seconds } else { 0.0 };
    array::from_fn(|verdict| rate(after[verdict].saturating_sub(before[verdict])))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::observe::delays::Delays;

    fn time(history: &Seconds) -> Duration {
        let (before, after) = history.now().unwrap();
        after.at.since(before.at)
    }

    fn totals(second: u64, count: u64, delays: &Delays) -> Totals {
        Totals {
            at: Timestamp::from_millis(1_000 * second),
            verdicts: SecondCounts(vec![
                (SloId::DEFAULT, [0, 0, 1]),
                (SloId::new(2001).unwrap(), [count, count / 2, 0]),
            ]),
            shadow: SecondCounts::default(),
            delays: delays.counts(),
        }
    }

    #[test]
    fn a_second_holds_the_difference_from_the_one_before() {
        let (mut history, delays) = (Seconds::default(), Delays::default());
        history.tick(totals(10, 100, &delays));
        assert!(history.now().is_none() && history.minutes == Minutes::default());
        delays.count(Duration::from_millis(20));
        assert_eq!(history.tick(totals(11, 150, &delays)), [[50.0, 25.0, 0.0], [0.0; 3]]);
        // After a late tick, rates use the real time between the ticks.
        assert_eq!(history.tick(totals(13, 170, &delays)), [[10.0, 5.0, 0.0], [0.0; 3]]);
        let expected = Minutes {
            pass: [50.0, 10.0].into(),
            delay: [25.0, 5.0].into(),
            deny: [0.0; 2].into(),
            p50_ms: [Some(20), None].into(),
            p99_ms: [Some(20), None].into(),
        };
        assert_eq!(history.minutes, expected);
        assert_eq!(time(&history), Duration::from_secs(3));
        assert_eq!(history.rates(|totals| totals.verdicts.of(SloId::DEFAULT)), [0.0; 3]);
        assert_eq!(history.rates(|totals| totals.verdicts.of(SloId::new(2001).unwrap()))[0], 70.0 / 3.0);
        assert_eq!(history.rates(|totals| totals.shadow.of(SloId::DEFAULT)), [0.0; 3]);
    }

    #[test]
    fn it_remembers_five_minutes_and_no_more() {
        let (mut history, delays) = (Seconds::default(), Delays::default());
        (0..1_000).for_each(|second| _ = history.tick(totals(second, second * 10, &delays)));
        assert_eq!((history.minutes.pass.len(), history.minutes.p99_ms.len()), (300, 300));
        assert_eq!(time(&history), Duration::from_secs(10));
        assert_eq!(history.rates(|totals| totals.verdicts.all()), [10.0, 5.0, 0.0]);
    }
}
