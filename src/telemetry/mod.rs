//! What the daemon tells of itself: log lines, metrics, and some of its decisions.

pub mod decision_log;
pub mod log;
pub mod metrics;
