//! The state of the daemon, for operators.
//!
//! ```text
//!  a sample of requests ─▶ Groups ───┐
//!  a throttled request ─▶ Throttled ─┤
//!  once a second, totals ─▶ Seconds ─┤
//!  …, rates of those keys ─▶ Busy ───┤
//!           numbers of connections ──┼─▶ Snapshot ─▶ /api/status ─▶ the page, slowlane top
//!  a reload ─▶ Reloads ──────────────┤
//!  once a second, policy ─▶ Missing ─┤
//!  throttle, metrics ────────────────┘
//!
//!  once a second, Throttled ─▶ History ─▶ /api/history, and the snapshot on disk
//! ```
//! Requests that no SLO throttles, not even in a dry run, cost time here only if sampled. Readers never make a request
//! wait.

mod busy;
mod cluster;
mod filter;
mod groups;
mod heavy_hitters;
mod history;
mod label;
mod missing;
mod origins;
mod peers;
mod protected;
mod quota;
mod ranking;
mod reloads;
mod row;
mod seconds;
mod snapshot;
mod state;
mod throttled;
mod why;

use busy::Busy;

pub use cluster::ClusterLine;
pub use filter::{Column, Condition, FILTER_MAX, operator};
pub use groups::{Groups, Lookback};
pub use history::{DAY, HistoryLines, PastKey};
pub use label::{KeptFact, Label};
pub use missing::{Fault, FaultLine, Missing, MissingLine, News, REQUESTS_MIN};
pub use peers::{PeerConnection, PeerCount, PeerLine, PeersStatus, PeersUse};
pub use protected::{NO_ENDS, ProtectedLine};
pub use quota::{QuotaLine, Quotas};
pub use ranking::{Crowd, GroupRow, RankedBy, Ranking};
pub use reloads::{ReloadLine, Reloads};
pub use row::{StatusRow, TABLE, header};
pub use seconds::Minutes;
pub use snapshot::{
    BlockedKey, ClusterUse, Connections, Delay, FieldLine, Holds, KeyLine, SloLine, Snapshot, Sources,
    TableUse,
};
pub use state::Status;
pub use throttled::{KeyCount, Throttled};
pub use why::Why;
