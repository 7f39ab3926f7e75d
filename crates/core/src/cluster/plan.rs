//! The numbers of an SLO that nodes share, and the settings of their cluster.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::date::Calendar;
use crate::law::Gcra;

/// The settings of a cluster that are the same for all of its SLOs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How often a node exchanges messages with the store about a key.
    pub period: Duration,
    /// The store counts as silent after this long without an answer.
    pub silent_after: Duration,
    pub on_silence: OnSilence,
    /// The maximum number of keys that a node shares at a time.
    pub keys_max: usize,
    /// The number of nodes to assume until the store has reported the actual number.
    pub nodes: u32,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            period: Duration::from_millis(100),
            silent_after: Duration::from_millis(500),
            on_silence: OnSilence::Share,
            keys_max: 50_000,
            nodes: 1,
        }
    }
}

/// The behaviour of a node while the store is silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OnSilence {
    /// The node admits its recent share of the rate or, if it has had no reply, an equal share.
    Share,
    /// The node admits the full rate.
    Open,
    /// The node refuses every request under a shared SLO, except requests that its lease covers.
    Closed,
}

impl OnSilence {
    /// The behaviour in words, for the log.
    pub const fn response(self) -> &'static str {
        match self {
            OnSilence::Share => "admits its recent share of each rate",
            OnSilence::Open => "admits each rate in full",
            OnSilence::Closed => "refuses requests for shared keys, except under a lease",
        }
    }
}

/// The numbers of a shared SLO, and of the cluster.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// The rate of all nodes together in requests per second.
    pub rate_per_s: f64,
    /// The burst of all nodes together, in requests.
    pub burst: f64,
    /// The longest delay, or zero if the law refuses requests instead of delaying them.
    pub max_delay: Duration,
    /// How often a node talks to the store.
    pub period: Duration,
    /// The store counts as silent after this long without an answer.
    pub silent_after: Duration,
    /// The behaviour of a node while the store is silent.
    pub on_silence: OnSilence,
    /// The number of nodes, as last known.
    pub nodes: u32,
    /// The place of this node among the nodes, from 0 to 1.
    pub phase: f64,
    /// The time from a message to its answer, as last measured for any key.
    pub round_trip: Duration,
    /// Whether charges may be taken back. If so, the highest known TAT is not always the latest.
    pub is_work: bool,
}

/// The band below the longest delay in which nodes divide the rate in proportion to their demand. The band is twice the
/// usual period, so that each node gets a reply while the TAT is in the band. In the runs of `view`, with 0.05, 0.2 and
/// 0.8 s at 50 ms, a law that refuses errs by 0.25, 0.08 and 0.11 %; the worst second of a load that moves each second
/// is +26, +22 and +26 %.
pub(super) const BAND_S: f64 = 0.2;

/// The memory of a demand in requests, and the shortest memory in seconds: see [`Plan::memory_s`].
const MEMORY_REQUESTS: f64 = 200.0;
const MEMORY_MIN_S: f64 = 0.25;

/// The memory of the demand that determines a node's share while the store is silent. A node that pauses for some
/// seconds loses only a part of its share.
pub(super) const SLOW_MEMORY_S: f64 = 5.0;

/// The part of the rate that all nodes together may use unreported. The other half remains for reported requests; if
/// their demand exceeds it, the key counts as *crowded*. Runs at 50/s with 0, 1/4 and 1/2 have the same errors; of 480
/// requests at 8/s, 0, 20 and 64 are never reported to the store.
pub(super) const UNREPORTED: f64 = 0.5;

/// Nodes ask for slots if the rate allows fewer than this many requests for each node and period. With three nodes and
/// 5 requests in each period, as at 50/s, the worst second of a load whose requests may reach any node is +40 % without
/// slots, and +0 % with them.
const TICKETS_MAX: f64 = 2.0;

impl Plan {
    /// How far a TAT may exceed its cap, because nodes charge in arrears. The excess is twice the usual longest delay:
    /// once for the charges that the store knows, and once for the charges that it learns of late.
    pub const AHEAD_MAX_S: f64 = 10.0;

    /// How long the record of a key outlives its burst and its longest delay: until the key's demand is forgotten.
    /// After six times the longest memory, one four-hundredth of the demand is left.
    pub const KEPT_S: f64 = 30.0;

    /// The plan of a law that this many nodes share.
    pub fn new(gcra: &Gcra, settings: &Settings, nodes: u32, phase: f64, round_trip: Duration) -> Plan {
        let slot_s = gcra.slot().as_secs_f64();
        let &Settings { period, silent_after, on_silence, .. } = settings;
        Plan {
            rate_per_s: 1.0 / slot_s,
            burst: gcra.burst().as_secs_f64() / slot_s,
            max_delay: gcra.delay_max(),
            period,
            silent_after,
            on_silence,
            nodes,
            phase,
            round_trip,
            is_work: gcra.is_work(),
        }
    }

    /// The time in which the rate allows one request.
    pub fn slot_s(&self) -> f64 {
        1.0 / self.rate_per_s
    }

    /// The time in which the rate allows a full burst.
    pub fn burst_s(&self) -> f64 {
        self.burst / self.rate_per_s
    }

    /// How far ahead of now the TAT may lie.
    pub fn cap_s(&self) -> f64 {
        if self.refuses() { BAND_S } else { self.max_delay.as_secs_f64() }
    }

    /// Whether a node asks the store for a slot for each request that it holds. At a higher rate, the node's other
    /// messages are frequent enough.
    pub(super) fn has_tickets(&self) -> bool {
        self.nodes > 1
            && !self.refuses()
            && self.rate_per_s * self.period_s() < TICKETS_MAX * f64::from(self.nodes)
    }

    /// Whether a node that admits this many requests per second admits at least one in each period, so that its
    /// estimates are good enough.
    pub(super) fn is_frequent(&self, admitted_per_s: f64) -> bool {
        admitted_per_s * self.period_s() >= 1.0
    }

    /// Whether a request of this cost is never admitted.
    pub(super) fn is_beyond(&self, cost: f64) -> bool {
        cost * self.slot_s() > self.burst_s() + self.cap_s()
    }

    pub(super) fn refuses(&self) -> bool {
        self.max_delay.is_zero()
    }

    /// The memory of a demand: the time of 200 requests, so that the demand errs by 5 %, but at least a quarter of a
    /// second and at most five seconds.
    ///
    /// In the runs of `view`, with 50, 200 and 400 requests, the errors at 50/s are 0.4, 0.1 and 0.2 %. With a least
    /// memory of 0.1, 0.25 and 1 s, the worst second of steady loads is +2.9, +1.1 and +1.0 %; for a load that moves
    /// each second, at 50 ms, the worst second is +23, +22 and +31 %.
    pub fn memory_s(&self) -> f64 {
        (MEMORY_REQUESTS / self.rate_per_s).clamp(MEMORY_MIN_S, SLOW_MEMORY_S)
    }

    pub(super) fn period_s(&self) -> f64 {
        self.period.as_secs_f64()
    }

    pub(super) fn equal_share(&self) -> f64 {
        1.0 / f64::from(self.nodes.max(1))
    }
}

/// The numbers of a quota that nodes share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QuotaPlan {
    /// The maximum number of requests of all nodes together, in one window.
    pub limit: f64,
    pub window_s: f64,
    /// How often a node talks to the store.
    pub period_s: f64,
    pub round_trip_s: f64,
    pub nodes: u32,
    /// Whether the previous window also counts, in proportion to the part that is left of it.
    pub is_sliding: bool,
    /// If set, windows are the periods of this calendar, and `window_s` is the length of the longest period.
    pub calendar: Option<Calendar>,
    /// Whether counts may be taken back. If so, the highest known count is not always the latest.
    pub is_work: bool,
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Two nodes, and a longest delay of five seconds.
    pub(in crate::cluster) fn plan(rate_per_s: f64, burst: f64) -> Plan {
        let Settings { period, silent_after, on_silence, .. } = Settings::default();
        let (max_delay, round_trip) = (Duration::from_secs(5), Duration::ZERO);
        let (nodes, phase) = (2, 0.0);
        Plan {
            rate_per_s,
            burst,
            max_delay,
            period,
            silent_after,
            on_silence,
            nodes,
            phase,
            round_trip,
            is_work: false,
        }
    }

    /// At 4/s, a burst of 4 and a longest delay of 5 s are six seconds, and 24 requests.
    #[test]
    fn a_request_beyond_the_burst_and_the_longest_delay_is_never_let_through() {
        let plan = plan(4.0, 4.0);
        assert!(!plan.is_beyond(24.0) && plan.is_beyond(25.0));
    }
}
