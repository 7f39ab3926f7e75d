//! The status: rates, throttled keys and reloads of the last minutes, and the history of the last day.

use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::observe::metrics::Verdicts;
use crate::observe::status::history::{History, HistoryLines};
use crate::observe::status::origins::Origins;
use crate::observe::status::seconds::{SecondCounts, Seconds, Totals};
use crate::observe::status::{Busy, ClusterLine, Groups, Missing, Reloads, Throttled};
use slowlane_core::base::Timestamp;
use slowlane_core::policy::Policy;
use slowlane_core::table::Table;

/// The status of the last minutes, and the history of the last day, for operators.
#[derive(Debug, Default)]
pub struct Status {
    pub throttled: Throttled,
    pub groups: Groups,
    pub reloads: Reloads,
    pub missing: Missing,
    /// `None` if this slowlane is not in a cluster. The task that talks to the store sets this value.
    pub cluster: Mutex<Option<ClusterLine>>,
    pub(super) seconds: Mutex<Seconds>,
    history: Mutex<History>,
    pub(super) busy: Mutex<Busy>,
    pub(super) origins: Mutex<Origins>,
    /// The snapshot of this second, if there was a request for it.
    pub(super) json: Mutex<Option<Bytes>>,
}

impl Status {
    /// Adds the counts of this second. Call this once a second.
    pub fn tick(&self, now: Timestamp, verdicts: &Verdicts, table: &Table) {
        let mut seconds = self.seconds.lock();
        let shadow = SecondCounts(verdicts.shadow().collect());
        let (verdicts, delays) = (SecondCounts(verdicts.given().collect()), verdicts.delays.counts());
        let [_, delayed, denied] = verdicts.all();
        let [given, would] = seconds.tick(Totals { at: now, verdicts, shadow, delays });
        drop(seconds);
        let throttled = |[_, delay, deny]: [f64; 3]| delay + deny;
        self.groups.tick(now, given.iter().sum());
        self.throttled.tick(now, throttled(given) + throttled(would));
        let (elsewhere, hitters) = (self.throttled.elsewhere(), self.throttled.read());
        self.history.lock().tick(now, [delayed + elsewhere[0], denied + elsewhere[1]], &hitters);
        self.busy.lock().tick(now, hitters.iter().map(|(_, hitter)| hitter.key), table);
        *self.json.lock() = None;
    }

    /// The keys throttled in the last `span`, at most a day.
    pub fn history(&self, now: Timestamp, span: Duration, policy: &Policy) -> HistoryLines {
        self.history.lock().since(now, span, policy)
    }

    /// The history, as notes for a snapshot.
    pub fn notes(&self) -> Vec<Vec<u8>> {
        self.history.lock().notes()
    }

    /// Restores the history of an earlier process.
    pub fn put_back(&self, notes: &[Vec<u8>], now: Timestamp) {
        self.history.lock().put_back(notes, now);
    }
}
