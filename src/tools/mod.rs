//! Programs beside the daemon: access logs and their replay, tests of policies, simulate, conformance, demo and top, and
//! what they share.

pub mod access_log;
pub(crate) mod admin_client;
pub(crate) mod chart;
pub(crate) mod conformance;
pub(crate) mod demo;
pub(crate) mod installed;
pub mod policy_test;
pub mod replay;
pub mod simulate;
pub(crate) mod top;
