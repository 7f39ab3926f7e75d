//! Limits without queries: HAProxy enforces limits by its own rules, and slowlane pushes the limits to it.
//!
//! ```text
//! HAProxy: table slowlane_pace      key, admitted, denied ─▶ Proxy::counted ─▶ Throttle::charge     one entry for all
//!                                                                                                   proxies and ways
//! HAProxy: table slowlane_limits    slot, tau, max, X     ◀─ numbers ◀── Throttle::proxy_limits
//! ```
//! The rules are GCRA on absolute times, in microseconds modulo 2^32. X is the theoretical arrival time of a key across
//! all proxies. A proxy uses the later of X and its own theoretical arrival time. The code takes and returns values: it
//! has no socket and no clock.

mod proxy;
mod tables;
mod update;

pub use proxy::{Count, KEYS_MAX, LimitPush, Moment, Proxy, ProxyCount, Pushed};
pub use tables::{LIMITS, PACE, Pair, faults};
pub use update::{Numbers, numbers};
