//! What the daemon tells of itself: log lines, metrics, its state to systemd, and some of its decisions.

pub mod decision_log;
pub mod delays;
pub mod log;
pub mod metrics;
pub mod systemd;
