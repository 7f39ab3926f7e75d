//! HAProxy's peers protocol 2.1, as plain values, without sockets or clocks.
//!
//! HAProxy processes use this protocol to exchange the entries of stick tables; slowlane takes part as a peer. Comments
//! cite HAProxy's `doc/peers-v2.0.txt`; where HAProxy 2.6 to 3.2 differ from it, the code follows HAProxy.
//!
//! ```text
//!  HAProxy                                        slowlane
//!    │ HAProxyS 2.1, to, from                        │    hello.rs: either side may dial
//!    │ ────────────────────────────────────────────▶ │
//!    │                                       200     │
//!    │ ◀──────────────────────────────────────────── │
//!    │ resync request                                │    frame.rs: │ class │ type │ length │ body │
//!    │ ◀───────────────────────────────────────────▶ │    each side requests all entries of the other
//!    │ define: a table with its columns              │    definition.rs
//!    │ update: a key with its values                 │    update.rs
//!    │ ────────────────────────────────────────────▶ │
//!    │                        ack: the last update   │
//!    │ ◀──────────────────────────────────────────── │
//!    │ heartbeat, at least every 3 s                 │
//!    │ ◀───────────────────────────────────────────▶ │
//! ```
//! [`Hello::cut`] and [`Frame::cut`] decode the bytes, and [`Link`] keeps the state of both sides.

mod definition;
mod error;
mod frame;
mod hello;
mod link;
mod update;

pub use definition::{Column, Definition, KeyType};
pub use error::Error;
pub use frame::{BODY_BYTES_MAX, Frame};
pub use hello::{Hello, HelloStatus};
pub use link::{Link, News, TABLES_MAX};
pub use update::Update;
