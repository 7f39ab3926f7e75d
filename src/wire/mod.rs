//! Protocols as values: bytes in, messages out, without sockets and clocks.

pub(crate) mod cursor;
pub mod error;
pub mod http;
pub mod peers;
pub mod resp;
pub mod spop;
pub(crate) mod string;
pub mod varint;
