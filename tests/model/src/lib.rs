//! slowlane's rooms from base to throttle, with the locks and atomics of loom in the table.

#[path = "../../../src/base/mod.rs"]
pub mod base;
#[path = "../../../src/cluster/mod.rs"]
pub mod cluster;
#[path = "../../../src/law/mod.rs"]
pub mod law;
#[path = "../../../src/policy/mod.rs"]
pub mod policy;
pub mod table;
#[path = "../../../src/throttle/mod.rs"]
pub mod throttle;
