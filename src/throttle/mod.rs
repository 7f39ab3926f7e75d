//! The decision: the answer to each request of a batch.
//!
//! ```text
//! Batch ─▶ decide ─▶ Decisions        policy.classify: the SLOs of each request, with their keys
//!                                     table.with_batch: law.judge(entry, annex, arrival)
//! Decision ─▶ take_back, Ticket ─▶ end: the fate of a request that was let through
//! Cases ─▶ foresee: the same without counting, for operators
//! ```
//! There is one way to decide; a single request is a batch of one.

mod annexes;
mod decide;
mod foresee;
mod open_tickets;
mod state;
mod undo;

pub use annexes::Annexes;
pub use decide::Decisions;
pub use foresee::{Foreseen, View};
pub use state::{AnnexUsage, InForce, Throttle};
pub use undo::Charges;
