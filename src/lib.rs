//! slowlane tells HAProxy and nginx, for every request: pass, wait N ms, or 429.
//!
//! The path of a request, in one direction. Over SPOP up to 32 requests of one read are a batch. Over HTTP, in
//! replay and in simulations a request is a batch of one:
//!
//! ```text
//!  socket ─bytes─▶ spop::Frame ─▶ spop::Connection ─Notify─▶ proxy::haproxy ─fields─▶┐
//!  socket ─bytes─▶ hyper ─────────── headers ─────────────▶ proxy::nginx ───fields─▶┤
//!                                                                          Batch     ▼
//!     Throttle::decide(&Batch, now, draw, &mut Decisions)
//!       batch.classify                                       -> SLOs of each request with their keys; its cost
//!       table.with_batch(keys, now, |place, entry, now| law.judge(entry, annex, &arrival)) -> Judgement
//!                                                                                    │
//!     Observer::decided(&Batch, &Decisions)    count, note, log ◀────────────────────┤
//!                                                                                    │
//!  socket ◀─bytes── spop::Ack ◀──variables── proxy::haproxy ◀─────── Decision ◀──────┤
//!  socket ◀─bytes── hyper ◀──status, headers── proxy::nginx ◀─────── Decision ◀──────┘
//!
//!  a file edit ─▶ watch ─Policy─▶ Throttle, swapped whole
//! ```
//!
//! To follow it through the code: [`server::spoe::Conversation`] reads, decides, observes and answers without a
//! socket; [`throttle::Throttle::decide`] is the decision; a file of [`law`] is the arithmetic.
//!
//! The floors, highest first. A directory of `src/` is a room; a file names only its own room and rooms below it:
//!
//! ```text
//!  main, cli  one file per command
//!  tools      access logs, replay, tests of policies, simulate, conformance, chart, demo, top
//!  daemon     builds everything once              config    flags and slowlane.toml
//!  upgrade    hands everything over to a new process
//!  sync       the task that talks to the store of a cluster, and the one that keeps the state in a file
//!  server     listeners, connections, holds       watch     an edited policy becomes a new one
//!  observe    metrics, status, logs, the clock
//!  proxy      the words of HAProxy and nginx, and the files shipped for them
//!  peers      HAProxys that keep the pace by themselves: their counts, and what they are taught
//!  snapshot   what a restart does not forget, as the parts of a file
//!  throttle   the decision
//!  policy     which SLOs a request falls under: read, index, classify
//!  cluster    many nodes share one SLO
//!  law        entry, SLO and moment become a verdict
//!  table      entries by key                      wire      SPOP as values
//!  base       values for all: keys, moments, requests, verdicts, addresses
//! ```
//!
//! Deliberately absent below [`observe`]: clocks, sockets, tasks, logs, metrics, and locks that
//! outlive a call.
//! The moment and the dice are read at the edge and handed down, so every test of the core is arithmetic.
//! [`throttle::Throttle::decide`] cannot fail.

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        clippy::disallowed_types,
        reason = "unit tests may do anything: clippy checks the walls in the build without them"
    )
)]

mod admin_client;
pub mod cli;
pub mod config;
mod daemon;
pub mod http;
pub mod observe;
pub mod proxy;
pub mod server;
pub mod store_protocol;
mod sync;
#[cfg(feature = "top")]
mod top;
mod upgrade;
mod watch;
