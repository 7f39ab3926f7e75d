//! Peers: HAProxy processes that enforce limits locally, connected over HAProxy's peers protocol.
//!
//! ```text
//! listener, or dial ─▶ handshake ─▶ session: Link ─updates─▶ Proxy ─▶ Throttle
//!                                                ◀─updates─
//! ```
//! The protocol has names but no secrets, so a listener that other machines can reach needs TLS with client
//! certificates. A proxy's counts outlive its connection: a new connection with the same name continues them.

pub(crate) mod registry;
mod session;

pub use registry::{Peers, PeersSettings};

pub(crate) use session::dial;
