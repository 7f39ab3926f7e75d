//! What the daemon tells of itself: log lines, metrics, and its state to systemd.

pub mod delays;
pub mod log;
pub mod metrics;
pub mod systemd;
