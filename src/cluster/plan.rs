//! The numbers of an SLO that nodes share.

use std::time::Duration;

/// The numbers of a shared SLO, and of the cluster.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// The rate of all nodes together, in requests per second.
    pub rate_per_s: f64,
    /// The burst of all nodes together, in requests.
    pub burst: f64,
    /// The longest delay. Zero: the law never delays, it refuses.
    pub max_delay: Duration,
    /// How often a node talks to the store.
    pub period: Duration,
    /// Without an answer for this long, the store counts as silent.
    pub silent_after: Duration,
    /// The number of nodes, for the time before the first reply.
    pub nodes: u32,
}

/// The band below the longest delay in which nodes divide the rate by their demand.
const BAND_S: f64 = 0.2;

/// The demand of the last seconds, for the share while the store is silent.
pub(super) const SLOW_MEMORY_S: f64 = 5.0;

impl Plan {
    /// The time of one request.
    pub(super) fn slot_s(&self) -> f64 {
        1.0 / self.rate_per_s
    }

    /// The time of a full burst.
    pub(super) fn burst_s(&self) -> f64 {
        self.burst / self.rate_per_s
    }

    /// How far ahead of now the TAT may lie.
    pub(super) fn cap_s(&self) -> f64 {
        if self.refuses() { BAND_S } else { self.max_delay.as_secs_f64() }
    }

    pub(super) fn band_s(&self) -> f64 {
        BAND_S
    }

    pub(super) fn refuses(&self) -> bool {
        self.max_delay.is_zero()
    }

    /// The memory of a demand: some hundred requests, between a quarter of a second and five.
    pub(super) fn memory_s(&self) -> f64 {
        (200.0 / self.rate_per_s).clamp(0.25, SLOW_MEMORY_S)
    }

    pub(super) fn period_s(&self) -> f64 {
        self.period.as_secs_f64()
    }

    pub(super) fn equal_share(&self) -> f64 {
        1.0 / f64::from(self.nodes.max(1))
    }
}
