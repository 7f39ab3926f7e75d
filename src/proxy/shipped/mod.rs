//! The configuration files for the proxies as slowlane ships them, with an operator's addresses filled in.
//!
//! The files under `haproxy/` and `nginx/` are the only text there is: what is printed for the defaults are these
//! files, to the byte, below a line that says for which HAProxy.

pub mod haproxy;
pub mod nginx;
mod words;

pub use words::{File, WordError};
