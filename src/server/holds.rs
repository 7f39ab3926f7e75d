//! Places for held answers, up to the configured limit.

#![expect(clippy::disallowed_types, reason = "an answer is due at a moment of the system's clock")]

use std::sync::Arc;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use crate::server::alarm::Alarm;
use slowlane_core::base::HoldLimits;

/// Counts the held answers of all connections.
#[derive(Debug)]
pub(crate) struct Holds {
    pub(crate) limits: HoldLimits,
    held: Gauge,
    refused: Counter,
    /// Its thread starts with the first hold.
    alarm: OnceLock<Arc<Alarm>>,
}

impl Holds {
    pub(crate) fn new(limits: HoldLimits, held: Gauge, refused: Counter) -> Arc<Holds> {
        Arc::new(Holds { limits, held, refused, alarm: OnceLock::new() })
    }

    /// Returns when an answer is due, or up to half a millisecond later; never before it.
    pub(crate) async fn until(&self, due: Instant) {
        self.alarm.get_or_init(Alarm::start).until(due).await;
    }

    /// The delay, cut to the longest hold.
    pub(crate) fn bounded(&self, delay: Duration) -> Duration {
        delay.min(self.limits.hold_max)
    }

    /// A place for one held answer, free again when it is dropped; `None` at the limit.
    pub(crate) fn place(self: &Arc<Holds>) -> Option<HoldPlace> {
        if self.held.inc() as usize >= self.limits.holds_max {
            self.held.dec();
            self.refused.inc();
            return None;
        }
        Some(HoldPlace { holds: self.clone() })
    }
}

/// The place of one held answer.
#[derive(Debug)]
pub(crate) struct HoldPlace {
    holds: Arc<Holds>,
}

impl Drop for HoldPlace {
    fn drop(&mut self) {
        self.holds.held.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slowlane_core::base::WhenFull;

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
