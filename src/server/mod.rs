//! The sockets: listeners, their connections, and everything that waits.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "sockets, timers and tasks are what this room is for"
)]

pub(crate) mod admin;
pub(crate) mod admin_socket;
pub(crate) mod entrance;
pub(crate) mod handed;
pub(crate) mod holds;
pub mod http;
mod http1;
mod inbox;
pub(crate) mod listener;
mod page;
mod patience;
mod repeats;
pub mod runtime_api;
pub(crate) mod shutdown;
pub mod spoe;
pub(crate) mod stream;

use std::sync::Arc;

use crate::base::hold::HoldLimits;
use crate::base::request::Value;
use crate::base::time::Timestamp;
use crate::base::verdict::{Decision, Verdict};
use crate::observe::clock::Clock;
use crate::observe::decision_log::DecisionLog;
use crate::observe::log::OncePerSecond;
use crate::observe::metrics::Metrics;
use crate::observe::status::Status;
use crate::server::holds::{Holds, Place};
use crate::throttle::Throttle;

/// What every connection works with.
#[derive(Debug)]
pub struct Agent {
    pub throttle: Arc<Throttle>,
    pub clock: Clock,
    pub metrics: Arc<Metrics>,
    pub status: Arc<Status>,
    holds: Arc<Holds>,
    holds_line: OncePerSecond,
    decision_log: Option<DecisionLog>,
}

impl Agent {
    pub fn new(
        throttle: Arc<Throttle>,
        clock: Clock,
        hold: HoldLimits,
        metrics: Arc<Metrics>,
        status: Arc<Status>,
    ) -> Agent {
        let holds = Holds::new(hold, metrics.holds.clone(), metrics.holds_refused.clone());
        let holds_line = OncePerSecond::default();
        Agent { throttle, clock, metrics, status, holds, holds_line, decision_log: None }
    }

    /// With a log of its decisions.
    pub fn with_decision_log(self, decision_log: Option<DecisionLog>) -> Agent {
        Agent { decision_log, ..self }
    }

    pub fn decision_log(&self) -> Option<&DecisionLog> {
        self.decision_log.as_ref()
    }

    /// Logs a decision, if there is a log that wants it.
    #[inline]
    fn log<'a, F>(&self, decision: &Decision, now: Timestamp, fields: impl FnOnce() -> F)
    where
        F: Iterator<Item = (&'a [u8], Value<'a>)>,
    {
        if let Some(log) = &self.decision_log
            && log.wants(decision, now, || fastrand::u64(..))
        {
            let entry = self.throttle.table().get(decision.key, now);
            let rate = entry.map_or(0, |(entry, _)| entry.gpc0_rate.read(now.ticks_ms()));
            log.write(decision, rate, fields());
        }
    }

    /// A place for one held answer; where there is none, the verdict that stands in for the hold.
    fn place(&self) -> Result<Place, Verdict> {
        self.holds.place().ok_or_else(|| {
            let verdict = self.holds.when_full().verdict();
            if let Some(unsaid) = self.holds_line.allow(self.clock.now()) {
                tracing::warn!(unsaid, "too many answers are held: {} at once", verdict.name());
            }
            verdict
        })
    }
}
