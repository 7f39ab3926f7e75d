//! What nodes share of an SLO: its mode, and the numbers of its law.

use std::time::Duration;

use crate::base::sharing::Sharing;
use crate::cluster::plan::Plan;
use crate::cluster::quota::QuotaPlan;
use crate::cluster::settings::Settings;
use crate::law::{Law, Pacing, Windowed};

/// What nodes share of an SLO: its mode, and the numbers of its law.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Terms {
    /// One theoretical arrival time.
    Rate(Pacing),
    /// The counts of a window.
    Count(Windowed),
    /// Parts of a window's quota.
    Lease(Windowed),
}

/// The numbers of terms, and of the cluster at this moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Numbers {
    Rate(Plan),
    Quota(QuotaPlan),
}

impl Terms {
    /// None if each node has a part or all of the SLO for itself.
    pub fn new(sharing: Sharing, law: &Law) -> Option<Terms> {
        match sharing {
            Sharing::Rate => law.pacing().map(Terms::Rate),
            Sharing::Count => law.windowed().map(Terms::Count),
            Sharing::Lease => law.windowed().map(Terms::Lease),
            Sharing::Split | Sharing::Local => None,
        }
    }

    pub(super) fn numbers(&self, settings: &Settings, nodes: u32, round_trip: Duration) -> Numbers {
        match self {
            Terms::Rate(pacing) => Numbers::Rate(Plan::new(pacing, settings, nodes)),
            Terms::Count(Windowed { limit, window, is_sliding, calendar })
            | Terms::Lease(Windowed { limit, window, is_sliding, calendar }) => Numbers::Quota(QuotaPlan {
                limit: f64::from(*limit),
                window_s: window.as_secs_f64(),
                period: settings.period,
                round_trip_s: round_trip.as_secs_f64(),
                nodes,
                is_sliding: *is_sliding,
                calendar: *calendar,
            }),
        }
    }

    /// How long a view without requests matters.
    pub(super) fn memory(&self) -> Duration {
        match self {
            Terms::Rate(pacing) => pacing.burst().saturating_add(pacing.max_delay),
            Terms::Count(windowed) | Terms::Lease(windowed) => windowed.window,
        }
    }

    /// The requests that may be let through at once.
    pub(super) fn limit(&self) -> u32 {
        match self {
            Terms::Rate(pacing) => pacing.burst_requests(),
            Terms::Count(windowed) | Terms::Lease(windowed) => windowed.limit,
        }
    }

    /// The clients that a delay stands for, in thousandths.
    pub(super) fn milli_clients(&self, delay: Duration) -> u32 {
        match self {
            Terms::Rate(pacing) => pacing.milli_clients(delay),
            Terms::Count(_) | Terms::Lease(_) => 1_000,
        }
    }

    /// The time in which one request comes back, and that of all that may be used at once. None: not one request may
    /// be let through untold.
    pub(super) fn slot_and_room(&self) -> Option<(Duration, Duration)> {
        match self {
            Terms::Rate(pacing) => Some((pacing.slot(), pacing.burst())),
            Terms::Count(Windowed { limit, window, .. }) => Some((*window / (*limit).max(1), *window)),
            Terms::Lease(_) => None,
        }
    }
}

impl Numbers {
    /// Whether a request of this cost is never let through.
    pub(super) fn is_beyond(&self, cost: f64) -> bool {
        match self {
            Numbers::Rate(plan) => cost * plan.slot_s() > plan.burst_s() + plan.cap_s(),
            Numbers::Quota(plan) => cost > plan.limit,
        }
    }
}
