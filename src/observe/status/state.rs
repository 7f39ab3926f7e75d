//! The status: rates, throttled keys and reloads of the last minutes.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::observe::metrics::Verdicts;
use crate::observe::status::history::{Counts, History, Totals};
use crate::observe::status::{Busy, ClusterLine, Engines, Missing, Reloads, Throttled};
use slowlane_core::base::Timestamp;
use slowlane_core::table::Table;

/// The status of the last minutes, for operators.
#[derive(Debug, Default)]
pub struct Status {
    pub throttled: Throttled,
    pub engines: Arc<Engines>,
    pub reloads: Reloads,
    pub missing: Missing,
    /// None: this slowlane is not in a cluster. The task that talks to the store writes it.
    pub cluster: Mutex<Option<ClusterLine>>,
    pub(super) history: Mutex<History>,
    pub(super) busy: Mutex<Busy>,
    /// The snapshot of this second, if there was a request for it.
    pub(super) json: Mutex<Option<Bytes>>,
}

impl Status {
    /// Adds the counts of this second. Call it once a second.
    pub fn tick(&self, now: Timestamp, verdicts: &Verdicts, table: &Table) {
        let mut history = self.history.lock();
        history.tick(Totals {
            at: now,
            verdicts: Counts(verdicts.given().collect()),
            shadow: Counts(verdicts.shadow().collect()),
            delays: verdicts.delays.counts(),
        });
        let second = history.seconds().last().copied().unwrap_or_default();
        drop(history);
        let throttled = |[_, delay, deny]: [f64; 3]| delay + deny;
        self.throttled.tick(now, throttled(second.verdicts) + throttled(second.shadow));
        self.busy.lock().tick(now, self.throttled.keys(), table);
        *self.json.lock() = None;
    }
}
