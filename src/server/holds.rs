//! Places for held answers, up to the configured limit.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "it waits: an alarm is set on the clock of the system"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use async_io::Timer;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use tokio::time::sleep_until;

use slowlane_core::base::HoldLimits;

/// The runtime's timers ring at whole milliseconds, up to so much late. A finer one waits for the rest.
const COARSE: Duration = Duration::from_millis(3);

/// Holds end at multiples of this time, so that very many of them do not wake very often.
const GRAIN: Duration = Duration::from_micros(500);

/// Counts the held answers of all connections.
#[derive(Debug)]
pub(crate) struct Holds {
    pub(crate) limits: HoldLimits,
    held: AtomicUsize,
    gauge: Gauge,
    refused: Counter,
    started: Instant,
}

impl Holds {
    pub(crate) fn new(limits: HoldLimits, gauge: Gauge, refused: Counter) -> Arc<Holds> {
        Arc::new(Holds { limits, held: AtomicUsize::new(0), gauge, refused, started: Instant::now() })
    }

    /// Returns when an answer is due, or up to half a millisecond later; never before it.
    pub(crate) async fn until(&self, due: Instant) {
        let due = self.rounded_up(due);
        if let Some(early) = due.checked_sub(COARSE).filter(|early| *early > Instant::now()) {
            sleep_until(early.into()).await;
        }
        Timer::at(due).await;
    }

    fn rounded_up(&self, due: Instant) -> Instant {
        let grains = due.saturating_duration_since(self.started).as_nanos().div_ceil(GRAIN.as_nanos());
        let since_start = Duration::from_nanos(u64::try_from(grains * GRAIN.as_nanos()).unwrap_or(u64::MAX));
        self.started.checked_add(since_start).unwrap_or(due)
    }

    /// The delay, cut to the longest hold.
    pub(crate) fn bounded(&self, delay: Duration) -> Duration {
        delay.min(self.limits.hold_max)
    }

    /// A place for one held answer, free again when it is dropped; `None` at the limit.
    pub(crate) fn place(self: &Arc<Holds>) -> Option<Place> {
        if self.held.fetch_add(1, Relaxed) >= self.limits.holds_max {
            self.held.fetch_sub(1, Relaxed);
            self.refused.inc();
            return None;
        }
        self.gauge.inc();
        Some(Place { holds: self.clone() })
    }
}

/// The place of one held answer.
#[derive(Debug)]
pub(crate) struct Place {
    holds: Arc<Holds>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.holds.held.fetch_sub(1, Relaxed);
        self.holds.gauge.dec();
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;
    use slowlane_core::base::WhenFull;

    const MS: Duration = Duration::from_millis(1);

    fn holds() -> Arc<Holds> {
        let limits =
            HoldLimits { holds_max: 2, hold_max: Duration::from_secs(60), when_full: WhenFull::Pass };
        Holds::new(limits, Gauge::default(), Counter::default())
    }

    #[tokio::test]
    async fn nobody_is_woken_early_and_each_is_woken() {
        let (holds, start) = (holds(), Instant::now());
        // In no order, some at the same time, and some that are over.
        for due in [7, 1, 5, 5, 0, 12, 3].map(|ms| start + MS * ms) {
            holds.until(due).await;
            assert!(Instant::now() >= due);
        }
        let [a, b, c, d] = [9, 2, 2, 4].map(|ms| holds.until(start + MS * (20 + ms)));
        timeout(Duration::from_secs(10), async { tokio::join!(a, b, c, d) }).await.unwrap();
    }

    #[test]
    fn waits_end_at_the_grain_after_their_time() {
        let (holds, micros) = (holds(), Duration::from_micros);
        for (due, rings) in
            [(0, 0), (1, 500), (499, 500), (500, 500), (501, 1_000), (123_456_789, 123_457_000)]
        {
            assert_eq!(holds.rounded_up(holds.started + micros(due)), holds.started + micros(rings));
        }
        assert_eq!(holds.rounded_up(holds.started - MS), holds.started, "it is over");
    }

    #[test]
    fn the_third_of_two_finds_no_place_until_one_is_left() {
        let limits =
            HoldLimits { holds_max: 2, hold_max: Duration::from_secs(60), when_full: WhenFull::Pass };
        let (gauge, refused) = (Gauge::default(), Counter::default());
        let holds = Holds::new(limits, gauge.clone(), refused.clone());
        let (first, _second) = (holds.place().unwrap(), holds.place().unwrap());
        assert!(holds.place().is_none());
        drop(first);
        let _third = holds.place().unwrap();
        assert_eq!((gauge.get(), refused.get()), (2, 1));
    }
}
