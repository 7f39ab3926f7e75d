//! slowlane tells HAProxy and nginx, for every request: pass, wait N ms, or 429.
//!
//! The way of a request, in one direction:
//!
//! ```text
//!  socket ─bytes─▶ spop::Frame ─▶ spop::Connection ─Notify─▶ haproxy ─Request─▶┐
//!  socket ─bytes─▶ hyper ─────────── headers ──────────────▶ nginx ───Request─▶┤
//!                                                                              ▼
//!        Throttle::decide(&Request, now, draw) -> Decision
//!          policy.cases(&request)                    -> SLOs with their keys, mostly one; cost
//!          table.with(key, now, |entry| law.judge(entry, annex, &arrival)) -> Judgement
//!                                                                              │
//!  socket ◀─bytes── spop::Ack ◀─variables── haproxy ◀───── Decision ◀──────────┤
//!  socket ◀─bytes── hyper ◀─status, headers── nginx ◀───── Decision ◀──────────┘
//!
//!  a file edit ─▶ reload ─Policy─▶ Throttle, swapped whole
//! ```
//!
//! The floors, from the ground up; a file names only its own room and rooms below it:
//!
//! ```text
//!  cli        one file per command            tools     replay, simulate, demo, top
//!  daemon     everything built once           config    flags and slowlane.toml
//!  server     listeners, connections, holds   watch     an edited policy becomes a new one
//!  observe    metrics, status, logs           proxy     the words of HAProxy and nginx
//!  throttle   the decision                    policy    which SLOs a request falls under
//!  law        entry, SLO, moment to verdict   table     entries by key
//!  wire       SPOP as values                  base      keys, moments, requests, verdicts
//! ```
//!
//! What is deliberately absent below [`server`]: clocks, sockets, tasks, locks held across anything, logs and
//! metrics. The moment and the dice are read at the edge and handed down, so every test of the core is
//! arithmetic. [`throttle::Throttle::decide`] cannot fail.

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        clippy::disallowed_types,
        reason = "unit tests may do anything: the walls are checked in the build without them"
    )
)]

pub mod base;
pub mod cli;
mod config;
mod daemon;
pub mod law;
pub mod observe;
pub mod policy;
pub mod proxy;
pub mod server;
pub mod table;
pub mod throttle;
pub mod tools;
mod watch;
pub mod wire;
