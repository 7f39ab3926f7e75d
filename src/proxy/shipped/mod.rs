//! The configuration files shipped for the proxies, with the operator's addresses filled in.
//!
//! The only source is the files under `haproxy/` and `nginx/`, and those for Envoy under `examples/`. With default values
//! they are printed unchanged, those for HAProxy below a line with its version.

pub mod envoy;
pub mod haproxy;
pub mod nginx;
mod peers;
mod sample;
mod tls;
mod words;

pub use tls::{NAME, Tls};
pub use words::{File, WordError};
