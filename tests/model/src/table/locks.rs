//! The locks and atomics of loom, under the names of crates/core/src/table/locks.rs.

pub(super) use loom::sync::atomic::{AtomicU64, AtomicUsize};
pub(super) use loom::sync::{Mutex, MutexGuard};
