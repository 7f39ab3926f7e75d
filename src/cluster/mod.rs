//! The cluster: the law by which many nodes share one SLO.
//!
//! ```text
//! request ─▶ View::judge ─▶ delay or refusal        at once, by what this node knows
//! View ─▶ Message ─▶ Record::merge ─▶ Reply ─▶ View  every period; no request waits for it
//! ```
//! The store keeps one theoretical arrival time (TAT) for a key, and all nodes charge it in arrears. Between two
//! replies, a node's view of it drifts at the speed at which the others are expected to take. Values come in, values go
//! out: no clock, no socket, no dice.

mod decayed;
mod plan;
mod record;
mod view;

pub use plan::Plan;
pub use record::{Message, Record, Reply};
pub use view::View;
