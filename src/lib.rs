//! slowlane gives HAProxy, nginx and Envoy a verdict on every request: pass, wait N ms, or 429.
//!
//! The diagram shows the path of a request. Over SPOP, up to 32 requests from one read form a batch; over HTTP and
//! gRPC, in replay and in simulations, each request is a batch of its own.
//!
//! ```text
//!  socket ─bytes─▶ spop::Frame ─▶ spop::Connection ─Notify─▶ proxy::haproxy ─fields─▶┐
//!  socket ─bytes─▶ http::HttpHead ───────────────────────▶ proxy::nginx ────fields─▶┤
//!  socket ─bytes─▶ hyper ─▶ grpc::decoded ───────────────▶ proxy::envoy ────fields─▶┤
//!                                                                          Batch     ▼
//!     Throttle::decide(&Batch, now, sample, &mut Decisions)                slowlane_core::throttle
//!       batch.look_up, batch.only_case                       -> the SLO of each request, its plan, its key
//!       table.with_batch(keys, now, |place, entry, now| law.judge(entry, aux, &arrival)) -> Judgement -> Ruling
//!                                                                                    │
//!     Observer::decided(&Batch, &Decisions)    count, note, log ◀────────────────────┤
//!                                                                                    │
//!  socket ◀─bytes── spop::Ack ◀──variables── proxy::haproxy ◀──────── Ruling ◀───────┤
//!  socket ◀─bytes── http::HttpAnswer ◀headers─ proxy::nginx ◀─────── Decision ◀──────┤
//!  socket ◀─bytes── grpc::framed ◀──message── proxy::envoy ◀──────── Decision ◀──────┘
//!                                                            a ruling with its details
//!
//!  a file edit ─▶ watch ─Policy─▶ Throttle, swapped whole
//! ```
//!
//! To follow a NOTIFY through the code, read these files: `src/server/spoe.rs` (reads, decides, observes and answers,
//! without a socket), `src/proxy/haproxy.rs` (the messages and variables), and in `crates/core/src`
//! `policy/classify.rs` (the batch, the SLO and the key), `policy/plan.rs`, `throttle/decide.rs`, `table/store.rs`,
//! `law/gcra.rs` (the arithmetic of the default law) and `base/ruling.rs` (the answer).
//!
//! The crates, highest first. Cargo refuses an import from a higher crate:
//!
//! ```text
//!  slowlane        the daemon and its commands: what follows below
//!  slowlane-lab    access logs, replay, simulate, tests of policies, charts
//!  slowlane-core   the decision: base, table, law, policy, cluster, throttle, snapshot, peers
//!  spop, grpc      SPOP and HAProxy's peers protocol as values, and Envoy's services
//! ```
//!
//! The modules of this crate, highest first. A file names only its own module and lower modules:
//!
//! ```text
//!  main, cli  one file per command                top, demo  the status as text, the demonstration
//!  daemon     builds everything once              admin_client  asks a running daemon
//!  config     flags and slowlane.toml
//!  upgrade    hands everything over to a new process
//!  sync       the task that talks to the store of a cluster, and the one that keeps the state in a file
//!  server     listeners, connections, holds       watch     an edited policy becomes a new one
//!  observe    metrics, status, logs, the clock
//!  import     the limits of other programs, as a policy
//!  proxy      the messages of HAProxy, nginx and Envoy, and the files shipped for them
//!  http       HTTP/1.1 as values                  store_protocol  nodes and a token server, as values
//! ```
//!
//! The core deliberately has no clocks, sockets, tasks, logs, metrics, or locks that outlive a call. The time and the
//! random numbers are read at the edge and passed down, so every test of the core is arithmetic.
//! [`slowlane_core::throttle::Throttle::decide`] cannot fail.

#![warn(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "these macros panic if output is closed: write to io::stdout() with `?`, and report errors with cli::tell"
)]
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        clippy::disallowed_types,
        clippy::print_stdout,
        clippy::print_stderr,
        reason = "unit tests may use anything: clippy enforces these rules in the build without unit tests"
    )
)]

mod admin_client;
pub mod cli;
pub mod config;
mod daemon;
#[cfg(feature = "lab")]
mod demo;
pub mod http;
pub mod import;
pub mod observe;
pub mod proxy;
pub mod server;
pub mod store_protocol;
mod sync;
mod top;
mod upgrade;
mod watch;
