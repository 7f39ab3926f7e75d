//! The configuration files shipped for the proxies, with the operator's addresses filled in.
//!
//! The files under `haproxy/` and `nginx/` are the only source. With default values they are printed byte for
//! byte, below a line that names the HAProxy version.

pub mod haproxy;
pub mod nginx;
mod words;

pub use words::{File, WordError};
