//! The configuration files shipped for the proxies, with the operator's addresses filled in.
//!
//! The only source is the files under `haproxy/` and `nginx/`, and those for Envoy under `examples/`. With default values
//! they are printed unchanged, those for HAProxy below a line with its version. The templates here have the parts of them
//! that depend on the operator; a test finds each of them in a file.

pub mod envoy;
pub mod haproxy;
pub mod nginx;
mod peers;
mod places;
mod sample;
mod template;
mod words;

pub use places::{APP, NAME, Places, ProxyTls};
pub use words::{File, WordError};
