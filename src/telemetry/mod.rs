//! What the daemon tells of itself: log lines and metrics.

pub mod delays;
pub mod log;
pub mod metrics;
