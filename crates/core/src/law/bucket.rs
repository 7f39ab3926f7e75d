//! A bucket of requests, measured in the time that it takes to fill.

use std::time::Duration;

use crate::law::Objective;

/// The default `max_delay`. Few clients wait longer, and the slot of a client that has disconnected is lost.
pub(super) const MAX_DELAY_DEFAULT: Duration = Duration::from_secs(5);

/// The maximum debt of work beyond the longest delay: of requests whose cost exceeds what was reserved.
pub(super) const WORK_DEBT_MAX: Duration = Duration::from_secs(600);

/// The arithmetic of the bucket laws. All times are nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bucket {
    /// The time of one request: `1 / rate`, to the nearest nanosecond.
    pub(super) slot_ns: u64,
    /// The time in which an empty bucket fills: `burst / rate`.
    pub(super) burst_ns: u64,
}

impl Bucket {
    pub(super) fn new(objective: Objective) -> Bucket {
        let slot_ns = objective.rate.slot().as_nanos() as u64;
        Bucket { slot_ns, burst_ns: slot_ns.saturating_mul(u64::from(objective.burst)) }
    }

    /// The bucket of one of `nodes` nodes: it fills at a part of the rate, and holds the whole burst.
    pub(super) fn split(&self, nodes: u32) -> Bucket {
        let slower = |ns: u64| ns.saturating_mul(u64::from(nodes.max(1)));
        Bucket { slot_ns: slower(self.slot_ns), burst_ns: slower(self.burst_ns) }
    }

    /// The time of a request of this cost.
    pub(super) fn time(&self, cost: u32) -> u64 {
        self.slot_ns.saturating_mul(u64::from(cost))
    }

    /// How many whole requests fit into a time.
    pub(super) fn requests(&self, ns: u64) -> u32 {
        u32::try_from(ns / self.slot_ns.max(1)).unwrap_or(u32::MAX)
    }

    /// How many requests fit into a time, with fractions.
    pub(super) fn parts(&self, ns: u64) -> f64 {
        ns as f64 / self.slot_ns.max(1) as f64
    }

    /// The number of clients that would cause this delay, if each sends its next request after the answer, and a
    /// request takes `one_ns`.
    pub(super) fn milli_clients(&self, delay_ns: u64, one_ns: u64) -> u32 {
        if delay_ns <= one_ns {
            return 1_000;
        }
        let milli_clients = u128::from(delay_ns) * 1_000 / u128::from(one_ns.max(1));
        u32::try_from(milli_clients).unwrap_or(u32::MAX).max(1_000)
    }
}
