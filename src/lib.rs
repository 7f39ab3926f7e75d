//! slowlane.

pub mod draw;
pub mod key;
pub mod law;
pub mod request;
pub mod slo_id;
pub mod table;
pub mod time;
pub mod units;
pub mod verdict;
