//! Conformance suites: `spoa` for SPOE agents, and `rls` for servers of Envoy's rate limit service.
//!
//! ```text
//!  cli        the command line: which server, which suite
//!    │
//!  spoa, rls  cases: what a proxy sends, and how the answer is judged
//!    │
//!  endpoint   connections to the server
//!  card       the outcome of every case, as a table or as JSON
//! ```

#![warn(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "these panic when nobody reads: write to io::stdout() with `?`"
)]
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        clippy::disallowed_types,
        reason = "unit tests may do anything: clippy checks the walls in the build without them"
    )
)]

mod card;
pub mod cli;
mod endpoint;
mod rls;
mod spoa;
mod tls;
