//! Rates and delays of the last minutes, second by second.

use std::collections::VecDeque;
use std::time::Duration;

use crate::observe::delays::DelayCounts;
use slowlane_core::base::slo_id::SloId;
use slowlane_core::base::time::Timestamp;

/// The number of seconds kept: five minutes.
const SECONDS_MAX: usize = 300;

/// The seconds that a current rate is averaged over.
const NOW_S: usize = 10;

/// All counts at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Totals {
    pub(super) at: Timestamp,
    /// Pass, delay and deny by SLO, sorted by id.
    pub(super) verdicts: Vec<(SloId, [u64; 3])>,
    /// The same for dry runs.
    pub(super) shadow: Vec<(SloId, [u64; 3])>,
    pub(super) delays: DelayCounts,
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
pub(super) struct History {
    seconds: VecDeque<Second>,
    /// The last `NOW_S` + 1 totals, newest last.
    totals: VecDeque<Totals>,
}

impl History {
    /// Adds the totals of this moment. Call it once a second.
    pub(super) fn tick(&mut self, totals: Totals) {
        if let Some(before) = self.totals.back() {
            let between = Between { before, after: &totals };
            let delays = between.delays();
            keep(
                &mut self.seconds,
                SECONDS_MAX,
                Second {
                    verdicts: between.verdicts(),
                    shadow: between.shadow(),
                    p50_ms: delays.quantile_ms(0.5),
                    p99_ms: delays.quantile_ms(0.99),
                },
            );
        }
        keep(&mut self.totals, NOW_S + 1, totals);
    }

    /// The seconds, oldest first.
    pub(super) fn seconds(&self) -> impl ExactSizeIterator<Item = &Second> {
        self.seconds.iter()
    }

    /// The difference over the last `NOW_S` seconds; `None` before the second tick.
    pub(super) fn now(&self) -> Option<Between<'_>> {
        let between = Between { before: self.totals.front()?, after: self.totals.back()? };
        (self.totals.len() > 1).then_some(between)
    }
}

fn keep<T>(queue: &mut VecDeque<T>, most: usize, newest: T) {
    if queue.len() == most {
        queue.pop_front();
    }
    queue.push_back(newest);
}

/// The difference between two moments.
#[derive(Clone, Copy, Debug)]
pub(super) struct Between<'h> {
    before: &'h Totals,
    after: &'h Totals,
}

impl Between<'_> {
    pub(super) fn time(&self) -> Duration {
        self.after.at.since(self.before.at)
    }

    /// Pass, delay and deny per second, for all SLOs.
    pub(super) fn verdicts(&self) -> [f64; 3] {
        self.sums(&self.before.verdicts, &self.after.verdicts)
    }

    /// The same for dry runs, for all SLOs.
    pub(super) fn shadow(&self) -> [f64; 3] {
        self.sums(&self.before.shadow, &self.after.shadow)
    }

    fn sums(&self, before: &[(SloId, [u64; 3])], after: &[(SloId, [u64; 3])]) -> [f64; 3] {
        let sum = |totals: &[(SloId, [u64; 3])], verdict: usize| -> u64 {
            totals.iter().map(|(_, counts)| counts[verdict]).sum()
        };
        std::array::from_fn(|verdict| self.per_second(sum(before, verdict), sum(after, verdict)))
    }

    /// Pass, delay and deny per second, for one SLO.
    pub(super) fn of(&self, slo: SloId) -> [f64; 3] {
        self.rates(&self.before.verdicts, &self.after.verdicts, slo)
    }

    /// The same for a dry run of one SLO.
    pub(super) fn shadow_of(&self, slo: SloId) -> [f64; 3] {
        self.rates(&self.before.shadow, &self.after.shadow, slo)
    }

    pub(super) fn delays(&self) -> DelayCounts {
        self.after.delays.since(&self.before.delays)
    }

    fn rates(&self, before: &[(SloId, [u64; 3])], after: &[(SloId, [u64; 3])], slo: SloId) -> [f64; 3] {
        let find = |counts: &[(SloId, [u64; 3])]| match counts.binary_search_by_key(&slo, |(id, _)| *id) {
            Ok(place) => counts[place].1,
            Err(_) => [0; 3],
        };
        let (before, after) = (find(before), find(after));
        std::array::from_fn(|verdict| self.per_second(before[verdict], after[verdict]))
    }

    fn per_second(&self, before: u64, after: u64) -> f64 {
        let seconds = self.time().as_secs_f64();
        if seconds > 0.0 { after.saturating_sub(before) as f64 / seconds } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::delays::Delays;

    fn totals(second: u64, count: u64, delays: &Delays) -> Totals {
        Totals {
            at: Timestamp::from_millis(1_000 * second),
            verdicts: vec![(SloId::DEFAULT, [0, 0, 1]), (SloId::new(2001).unwrap(), [count, count / 2, 0])],
            shadow: Vec::new(),
            delays: delays.counts(),
        }
    }

    #[test]
    fn a_second_holds_the_difference_from_the_one_before() {
        let (mut history, delays) = (History::default(), Delays::default());
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
        let now = history.now().unwrap();
        assert_eq!(now.time(), Duration::from_secs(3));
        assert_eq!(now.of(SloId::DEFAULT), [0.0; 3]);
        assert_eq!(now.of(SloId::new(2001).unwrap())[0], 70.0 / 3.0);
        assert_eq!(now.shadow_of(SloId::DEFAULT), [0.0; 3]);
    }

    #[test]
    fn it_remembers_five_minutes_and_no_more() {
        let (mut history, delays) = (History::default(), Delays::default());
        (0..1_000).for_each(|second| history.tick(totals(second, second * 10, &delays)));
        assert_eq!(history.seconds().len(), 300);
        assert_eq!(history.now().unwrap().time(), Duration::from_secs(10));
        assert_eq!(history.now().unwrap().verdicts(), [10.0, 5.0, 0.0]);
    }
}
