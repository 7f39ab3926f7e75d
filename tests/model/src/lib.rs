//! slowlane's rooms from base to throttle, with the locks and atomics of loom in the table.

#[path = "../../../crates/core/src/base/mod.rs"]
pub mod base;
#[path = "../../../crates/core/src/cluster/mod.rs"]
pub mod cluster;
#[path = "../../../crates/core/src/law/mod.rs"]
pub mod law;
#[path = "../../../crates/core/src/policy/mod.rs"]
pub mod policy;
pub mod table;
#[path = "../../../crates/core/src/throttle/mod.rs"]
pub mod throttle;
