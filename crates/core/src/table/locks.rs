//! The locks and atomics of the table, in one place, because the model in tests/model replaces them with loom's.

use std::sync;

pub(super) type Mutex<T> = sync::Mutex<T>;
pub(super) type MutexGuard<'m, T> = sync::MutexGuard<'m, T>;
pub(super) type AtomicU64 = sync::atomic::AtomicU64;
pub(super) type AtomicUsize = sync::atomic::AtomicUsize;
