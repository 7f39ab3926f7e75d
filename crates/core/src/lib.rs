//! The core of slowlane, which turns a request's fields, a policy and a moment into a verdict.
//!
//! Nothing in this crate uses a socket, a clock or a log, and only `Policy::read` opens files. Callers pass
//! the moment and the random sample as arguments, so tests are deterministic.
//!
//! The data flow of a decision:
//!
//! ```text
//!  fields ─▶ policy::Batch           a value for each field that the policy uses
//!         ─▶ policy::Case            the SLO of each request, its plan and its key; few requests have several SLOs
//!         ─▶ table::Table            the row of the key, locked once for all requests of a shard
//!         ─▶ law::Law::judge         row, SLO and moment become a verdict
//!         ─▶ base::Ruling            48 bytes, for the wire; with details, if it has any, a base::Decision
//!
//!  files  ─▶ policy::Policy          SLOs and maps, for people; compiled to a policy::SloPlan for each SLO
//!  ends   ─▶ throttle::Throttle::end the ticket of a request that has ended
//! ```
//!
//! The modules, highest first:
//!
//! ```text
//!  peers      the limits pushed to HAProxy            snapshot   the table as the parts of a file
//!  throttle   the decision
//!  policy     which SLOs a request falls under        cluster    many nodes share one SLO
//!  law        entry, SLO and moment become a verdict
//!  table      entries by key
//!  base       values for all modules: keys, moments, requests, verdicts, addresses
//! ```
//! A module uses only the modules below it. A policy cannot access the table, so the throttle counts for sketches.

#![warn(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::dbg_macro,
    reason = "only the edge reads from and writes to the terminal"
)]
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        clippy::disallowed_types,
        reason = "unit tests are exempt: Clippy enforces this crate's rules in the build without tests"
    )
)]

pub mod base;
pub mod cluster;
pub mod law;
pub mod peers;
pub mod policy;
pub mod snapshot;
pub mod table;
pub mod throttle;

/// Runs the example in the README as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
