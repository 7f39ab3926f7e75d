//! The local budget: the requests of a key that a node may admit unreported.
//!
//! ```text
//! slot  = nodes / (rate / 2)                  all nodes together use up to half of the rate unreported
//! start = max(paid_at, now - max(burst * slot of the law, slot))
//! start + cost * slot > now: the key has to be shared;  else paid_at = start + cost * slot
//! ```
//! Most keys of a large table are hardly used. Such keys are not reported and take no memory besides their rows.

use std::time::Duration;

use crate::base::Timestamp;
use crate::cluster::{Share, UNREPORTED};
use crate::table::Entry;

/// The bucket of the local budget. Times are in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LocalBudget {
    slot_ns: u64,
    room_ns: u64,
    /// The time after which even the law has forgotten all requests.
    burst_ns: u64,
}

/// The third word of the state in a row whose key is shared.
const SHARED: u32 = 1;

impl LocalBudget {
    /// The local budget of each of this many nodes. None if every request must be reported.
    pub(super) fn new(share: &Share<'_>, nodes: u32) -> Option<LocalBudget> {
        let (slot, room) = share.slot_and_room()?;
        let parts = (f64::from(nodes.max(1)) / UNREPORTED) as u64;
        let slot_ns = (slot.as_nanos() as u64).max(1).saturating_mul(parts);
        let burst_ns = room.as_nanos() as u64;
        Some(LocalBudget { slot_ns, room_ns: slot_ns.max(burst_ns), burst_ns })
    }

    /// Charges this many requests without reporting them or, if the number is negative, takes them back. If there is no
    /// room, changes nothing and returns false.
    pub(super) fn charge(&self, entry: &mut Entry, requests: f64, now: Timestamp) -> bool {
        let ns = (requests.abs() * self.slot_ns as f64) as u64;
        let start = self.start(entry, now);
        let paid_at = if requests < 0.0 { start.saturating_sub(ns) } else { start.saturating_add(ns) };
        let has_room = paid_at <= now.as_nanos();
        if has_room {
            entry.state.set_wide(paid_at);
        }
        has_room
    }

    /// The number of unreported requests that still count. A bucket that is full again has forgotten all requests.
    pub(super) fn unreported(&self, entry: &Entry, now: Timestamp) -> f64 {
        if entry.state.wide().saturating_add(self.burst_ns) < now.as_nanos() {
            return 0.0;
        }
        let empty_at = now.as_nanos().saturating_sub(self.room_ns);
        (self.start(entry, now) - empty_at) as f64 / self.slot_ns as f64
    }

    /// How long a row must be kept.
    pub(super) fn memory(&self) -> Duration {
        Duration::from_nanos(self.room_ns)
    }

    fn start(&self, entry: &Entry, now: Timestamp) -> u64 {
        let now_ns = now.as_nanos();
        entry.state.wide().clamp(now_ns.saturating_sub(self.room_ns), now_ns)
    }
}

/// Whether the row says that its key is shared.
pub(super) fn is_shared(entry: &Entry) -> bool {
    entry.state.narrow() == SHARED
}

/// Notes in a row that its key is shared.
pub(super) fn mark(entry: &mut Entry) {
    entry.state.set_narrow(SHARED);
}
