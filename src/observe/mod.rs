//! Observation of decisions and of the daemon: metrics, the log, the decision log, the status.

pub mod clock;
pub mod cluster_metrics;
pub(crate) mod decision_log;
pub mod delays;
mod line_writer;
pub(crate) mod log;
pub mod metrics;
pub mod observer;
pub mod peers_metrics;
pub(crate) mod revive;
pub mod state_metrics;
pub mod status;
pub(crate) mod systemd;
pub mod tls_metrics;
