//! Programs beside the daemon: access logs and their replay, simulate, demo and top, and what they share.

pub mod access_log;
pub mod admin_client;
pub mod chart;
pub mod demo;
pub mod replay;
pub mod simulate;
pub mod top;
