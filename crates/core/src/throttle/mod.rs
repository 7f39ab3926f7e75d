//! The decision: the answer to each request of a batch.
//!
//! ```text
//! Batch ─▶ decide ─▶ Decisions        batch.look_up, only_case: the SLO of each request, with its key
//!                                     table.with_batch: law.judge(entry, aux, arrival)
//! Decision ─▶ take_back, Ticket ─▶ end: the fate of a request that was let through
//! Cases ─▶ foresee: the same without counting, for operators
//! Cases ─▶ charge, proxy_limits: requests that a proxy decides by its own rules, and the limits that the proxy needs
//! block, unblock, `block=` ─▶ Blocks ─▶ decide: refused before the law is asked
//! sweep: expired state is removed once a second; no decision removes it
//! ```
//! All requests are decided in the same way: a single request is a batch of one.

mod assured;
mod aux_store;
mod blocking;
mod blocks;
mod changes;
mod decide;
mod descriptor;
mod foresee;
mod gates;
mod proxy_limits;
mod sketches;
mod state;
mod undo;

pub use aux_store::AuxStore;
pub use blocking::{Block, BlockUsage};
pub use blocks::{BlockError, BlockOrigin, KEY_BLOCKS_MAX, OPERATOR_BLOCKS_MAX};
pub use changes::{CHANGES_MAX, Change, Changes, Ordered, Reach, Receipt};
pub use foresee::{Foreseen, View};
pub use gates::{Group, Protected};
pub use proxy_limits::{Paced, ProxyLimits};
pub use state::{AuxUsage, InForce, Throttle};
pub use undo::Ended;
