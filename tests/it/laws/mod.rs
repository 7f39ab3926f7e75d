//! Tests of the laws that also ask why. The others are in crates/core/tests/it/laws.

mod assured;
mod aux_store;
mod explain;

#[path = "../../../crates/core/tests/it/laws/lines.rs"]
#[allow(dead_code, reason = "parts of it are used")]
mod lines;
#[path = "../../../crates/core/tests/it/laws/oracle.rs"]
#[allow(dead_code, reason = "parts of it are used")]
mod oracle;
