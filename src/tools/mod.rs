//! Programs beside the daemon: replay, simulate, demo and top, and what they share.

pub(crate) mod admin_client;
pub(crate) mod chart;
pub(crate) mod demo;
pub(crate) mod installed;
pub mod replay;
pub mod simulate;
pub(crate) mod top;
