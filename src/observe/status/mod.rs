//! The state of the daemon, for operators.
//!
//! ```text
//!  a throttled request ─▶ Throttled ─┐
//!  once a second, totals ─▶ History ─┤
//!  …, rates of those keys ─▶ Busy ───┤
//!  a connection's HELLO ─▶ Engines ──┼─▶ Snapshot ─▶ /api/status ─▶ the page, slowlane top
//!  a reload ─▶ Reloads ──────────────┤
//!  throttle, metrics ────────────────┘
//! ```
//! A request that passes, also under every dry run, costs nothing here. Readers never make a request wait.

mod busy;
mod engines;
mod filter;
mod heavy_hitters;
mod history;
mod label;
mod reloads;
mod row;
mod snapshot;
mod throttled;
mod why;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

pub use engines::{Connected, Engine, Engines};
pub use filter::{Column, ColumnError, Condition, FILTER_MAX, Filter, Operator};
pub use label::{Kept, Label};
pub use reloads::{Reload, Reloads};
pub use row::{Row, TABLE, header};
pub use snapshot::{
    Connections, Delay, EngineLine, FieldLine, Holds, KeyLine, Minutes, ReloadLine, SloLine, Snapshot,
    Sources, TableUse,
};
pub use throttled::Throttled;
pub use why::Why;

use crate::base::time::Timestamp;
use crate::observe::metrics::Verdicts;
use crate::table::Table;
use busy::Busy;
use history::{History, Totals};

/// Memory of the last minutes beside the metrics, for operators.
#[derive(Debug, Default)]
pub struct Status {
    pub throttled: Throttled,
    pub engines: Arc<Engines>,
    pub reloads: Reloads,
    history: Mutex<History>,
    busy: Mutex<Busy>,
    /// The snapshot of this second, once it has been asked for.
    json: Mutex<Option<Bytes>>,
}

impl Status {
    /// Takes the counts so far. It must be called once a second.
    pub fn tick(&self, now: Timestamp, verdicts: &Verdicts, table: &Table) {
        let mut history = lock(&self.history);
        history.tick(Totals {
            at: now,
            verdicts: verdicts.given().collect(),
            shadow: verdicts.shadow().collect(),
            delays: verdicts.delays.counts(),
        });
        let second = history.seconds().last().copied().unwrap_or_default();
        drop(history);
        let throttled = |[_, delay, deny]: [f64; 3]| delay + deny;
        self.throttled.tick(now, throttled(second.verdicts) + throttled(second.shadow));
        lock(&self.busy).tick(now, self.throttled.keys(), table);
        *lock(&self.json) = None;
    }

    /// The snapshot of this moment.
    pub fn snapshot(&self, sources: &Sources<'_>) -> Snapshot {
        Snapshot::of(self, &lock(&self.history), &lock(&self.busy), sources)
    }

    /// The snapshot as JSON, made once a second for all readers.
    pub fn json(&self, sources: &Sources<'_>) -> Bytes {
        let mut json = lock(&self.json);
        let make = || serde_json::to_vec(&self.snapshot(sources)).expect("a snapshot is plain data").into();
        json.get_or_insert_with(make).clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
