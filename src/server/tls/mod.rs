//! TLS on TCP connections: certificates from files, and handshakes limited in time and number.
//!
//! ```text
//! TlsFiles::read ─▶ Loaded ─▶ Tls, swapped whole when a file changes
//! TcpStream ─▶ Tls::handshake ─▶ TlsStream, in the connection's own task
//! ```

mod client;
mod listener;

pub(crate) use client::{Trust, client};
pub(crate) use listener::{Listener, Tls, TlsError, TlsFiles};
