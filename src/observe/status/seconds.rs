//! Rates and delays of the last minutes, second by second.

use std::array;
use std::collections::VecDeque;

use crate::observe::delays::DelayCounts;
use slowlane_core::base::{SloId, Timestamp};

/// The number of seconds kept: five minutes.
const SECONDS_MAX: usize = 300;

/// The seconds that a current rate is averaged over.
const NOW_S: usize = 10;

/// All counts at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Totals {
    pub(super) at: Timestamp,
    pub(super) verdicts: SecondCounts,
    /// The same for dry runs.
    pub(super) shadow: SecondCounts,
    pub(super) delays: DelayCounts,
}

/// Pass, delay and deny by SLO, sorted by id.
#[derive(Clone, Debug, Default)]
pub(super) struct SecondCounts(pub(super) Vec<(SloId, [u64; 3])>);

impl SecondCounts {
    /// Of all SLOs.
    pub(super) fn all(&self) -> [u64; 3] {
        array::from_fn(|verdict| self.0.iter().map(|(_, counts)| counts[verdict]).sum())
    }

    pub(super) fn of(&self, slo: SloId) -> [u64; 3] {
        self.0.binary_search_by_key(&slo, |(id, _)| *id).map_or([0; 3], |place| self.0[place].1)
    }
}

/// The rates and delays of one second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Second {
    /// Requests per second: pass, delay, deny.
    pub(super) verdicts: [f64; 3],
    /// Verdicts that dry runs would have given.
    pub(super) shadow: [f64; 3],
    pub(super) p50_ms: Option<u64>,
    pub(super) p99_ms: Option<u64>,
}

/// The last seconds, and the last totals, needed to compute the next second.
#[derive(Debug, Default)]
pub(super) struct Seconds {
    seconds: VecDeque<Second>,
    /// The last `NOW_S` + 1 totals, newest last.
    totals: VecDeque<Totals>,
}

impl Seconds {
    /// Adds the totals of this moment. Call it once a second.
    pub(super) fn tick(&mut self, totals: Totals) {
        if let Some(before) = self.totals.back() {
            let delays = totals.delays.since(&before.delays);
            let second = Second {
                verdicts: rates(before, &totals, |totals| totals.verdicts.all()),
                shadow: rates(before, &totals, |totals| totals.shadow.all()),
                p50_ms: delays.quantile_ms(0.5),
                p99_ms: delays.quantile_ms(0.99),
            };
            keep(&mut self.seconds, SECONDS_MAX, second);
        }
        keep(&mut self.totals, NOW_S + 1, totals);
    }

    /// The seconds, oldest first.
    pub(super) fn seconds(&self) -> impl ExactSizeIterator<Item = &Second> {
        self.seconds.iter()
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
        assert!(history.now().is_none() && history.seconds().len() == 0);
        delays.count(Duration::from_millis(20));
        history.tick(totals(11, 150, &delays));
        // After a late tick, rates use the real time between the ticks.
        history.tick(totals(13, 170, &delays));
        let seconds: Vec<_> = history.seconds().copied().collect();
        let first =
            Second { verdicts: [50.0, 25.0, 0.0], shadow: [0.0; 3], p50_ms: Some(20), p99_ms: Some(20) };
        let second = Second { verdicts: [10.0, 5.0, 0.0], shadow: [0.0; 3], p50_ms: None, p99_ms: None };
        assert_eq!(seconds, [first, second]);
        assert_eq!(time(&history), Duration::from_secs(3));
        assert_eq!(history.rates(|totals| totals.verdicts.of(SloId::DEFAULT)), [0.0; 3]);
        assert_eq!(history.rates(|totals| totals.verdicts.of(SloId::new(2001).unwrap()))[0], 70.0 / 3.0);
        assert_eq!(history.rates(|totals| totals.shadow.of(SloId::DEFAULT)), [0.0; 3]);
    }

    #[test]
    fn it_remembers_five_minutes_and_no_more() {
        let (mut history, delays) = (Seconds::default(), Delays::default());
        (0..1_000).for_each(|second| history.tick(totals(second, second * 10, &delays)));
        assert_eq!(history.seconds().len(), 300);
        assert_eq!(time(&history), Duration::from_secs(10));
        assert_eq!(history.rates(|totals| totals.verdicts.all()), [10.0, 5.0, 0.0]);
    }
}
