//! slowlane tells HAProxy and nginx, for every request: pass, wait N ms, or 429.

pub mod cli;
pub mod config;
pub mod daemon;
pub mod draw;
pub mod haproxy;
pub mod key;
pub mod law;
pub mod nginx;
pub mod policy;
pub mod reload;
pub mod request;
pub mod server;
pub mod slo_id;
pub mod spop;
pub mod status;
pub mod table;
pub mod telemetry;
pub mod throttle;
pub mod time;
pub mod units;
pub mod verdict;
