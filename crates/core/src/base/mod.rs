//! Values that every module may use: moments, keys, requests, verdicts and similar. They use no other module.

pub mod address;
pub mod blocked;
pub mod columns;
pub mod date;
pub mod hold;
pub mod host;
pub mod key;
pub mod kind;
pub mod network;
pub mod query;
pub mod quota;
pub mod reply;
pub mod request;
pub mod sample;
pub mod sharing;
pub mod shown;
pub mod slo_id;
pub mod target;
pub mod ticket;
pub mod time;
pub mod token;
pub mod units;
pub mod verdict;
