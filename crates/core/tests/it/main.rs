//! The decision in virtual time, in one binary.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests are the world outside")]
#![allow(unreachable_pub, reason = "nothing here is reachable from outside, and pub(crate) is noise")]

mod added;
mod blocks;
mod derived;
mod derived_maps;
mod drift;
mod laws;
mod many_keys;
mod peers;
mod policies;
mod protect;
mod quotas;
mod snapshot;
mod throttle;
mod tickets;
mod views;
mod work;
