//! The modes in which nodes share an SLO, and the types that differ between them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::Sharing;
use crate::cluster::{
    CountMessage, CountRecord, CountReply, CountView, LeaseMessage, LeaseRecord, LeaseReply, LeaseView,
    Message, Plan, QuotaPlan, Record, Reply, Settings, View,
};
use crate::law::{Gcra, Law, Window};

/// The types of which each mode has its own version: the [`Share`] of an SLO, a node's state for a key, its
/// [`Arguments`], the store's record, and its [`Answer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ByMode<R, C, L> {
    /// One theoretical arrival time.
    Rate(R),
    /// The counts of a window.
    Count(C),
    /// Parts of a window's quota.
    Lease(L),
}

/// How nodes share an SLO: its mode, and the numbers of its law.
pub type Share<'l> = ByMode<&'l Gcra, &'l Window, &'l Window>;

/// A node's state for a shared key, with the numbers of its law.
pub(super) type LocalView = ByMode<(Gcra, View), (Window, CountView), (Window, LeaseView)>;

/// A node's report about a key.
pub type Arguments = ByMode<Message, CountMessage, LeaseMessage>;

/// The store's record of a key.
pub(super) type KeptRecord = ByMode<Record, CountRecord, LeaseRecord>;

/// The store's answer about a key.
pub type Answer = ByMode<Reply, CountReply, LeaseReply>;

/// The cluster at this moment. It makes numbers of terms.
#[derive(Clone, Copy, Debug)]
pub(super) struct Situation<'s> {
    pub(super) settings: &'s Settings,
    pub(super) nodes: u32,
    pub(super) phase: f64,
    pub(super) round_trip: Duration,
}

impl Situation<'_> {
    pub(super) fn plan(&self, gcra: &Gcra) -> Plan {
        Plan::new(gcra, self.settings, self.nodes, self.phase, self.round_trip)
    }

    pub(super) fn quota(&self, window: &Window) -> QuotaPlan {
        QuotaPlan {
            limit: f64::from(window.limit),
            window_s: window.longest().as_secs_f64(),
            period: self.settings.period,
            round_trip_s: self.round_trip.as_secs_f64(),
            nodes: self.nodes,
            is_sliding: window.is_sliding,
            calendar: window.calendar,
            is_work: window.is_work,
        }
    }
}

impl<'l> Share<'l> {
    /// None if each node has a part or all of the SLO for itself.
    pub fn new(sharing: Sharing, law: &'l Law) -> Option<Share<'l>> {
        match sharing {
            Sharing::Rate => law.gcra().map(Share::Rate),
            Sharing::Count => law.shared_window().map(Share::Count),
            Sharing::Lease => law.shared_window().map(Share::Lease),
            Sharing::Split | Sharing::Local => None,
        }
    }

    /// How long a view without requests matters.
    pub(super) fn memory(&self) -> Duration {
        match self {
            Share::Rate(gcra) => gcra.burst().saturating_add(gcra.delay_max()),
            Share::Count(window) | Share::Lease(window) => window.longest(),
        }
    }

    /// The requests that may be admitted at once.
    pub(super) fn limit(&self) -> u32 {
        match self {
            Share::Rate(gcra) => gcra.burst_requests(),
            Share::Count(window) | Share::Lease(window) => window.limit,
        }
    }

    /// The clients that a delay stands for, in thousandths.
    pub(super) fn milli_clients(&self, delay: Duration, cost: u32) -> u32 {
        match self {
            Share::Rate(gcra) => gcra.milli_clients(delay, cost),
            Share::Count(_) | Share::Lease(_) => 1_000,
        }
    }

    /// The time in which one request's budget refills, and that of the whole budget. None: every request must be
    /// reported.
    pub(super) fn slot_and_room(&self) -> Option<(Duration, Duration)> {
        match self {
            Share::Rate(gcra) => Some((gcra.slot(), gcra.burst())),
            Share::Count(window) => Some((window.longest() / window.limit.max(1), window.longest())),
            Share::Lease(_) => None,
        }
    }
}
