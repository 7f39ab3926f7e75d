//! Peers: HAProxys that enforce limits locally, over their peers protocol.
//!
//! ```text
//! listener, or dial ─▶ handshake ─▶ session: Link ─updates─▶ Proxy ─▶ Throttle
//!                                                ◀─updates─
//! ```
//! The protocol knows names and no secrets, so a listener that others can reach needs TLS with client certificates.
//! What a proxy has counted outlives its connection: a new one of the same name goes on with it.

mod dial;
pub(crate) mod registry;
mod session;

pub use registry::{Peers, Settings};

pub(crate) use dial::dial;
