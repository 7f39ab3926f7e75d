//! The commands that read files or run in virtual time: replays of access logs, advice on limits, simulations and
//! policy tests.

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        clippy::disallowed_types,
        reason = "unit tests are exempt: Clippy enforces this crate's rules in the build without tests"
    )
)]

pub mod access_log;
pub mod advise;
mod columns;
mod events;
pub mod policy_test;
pub mod protect;
pub mod replay;
pub mod simulate;

/// Runs the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
