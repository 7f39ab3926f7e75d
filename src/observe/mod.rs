//! Observation of decisions and of the daemon: metrics, the log, the decision log, the status.

pub mod clock;
pub(crate) mod decision_log;
pub mod delays;
pub(crate) mod groups;
mod line_writer;
pub(crate) mod log;
pub mod metrics;
pub mod observer;
pub(crate) mod revive;
pub mod status;
pub(crate) mod systemd;

pub(crate) use clock::Clock;
pub(crate) use log::OncePerSecond;
pub(crate) use metrics::{ConnectionMetrics, Metrics};
pub(crate) use observer::Observer;
pub(crate) use revive::{revived, revived_task};
pub(crate) use status::Status;
