//! Protocols as values: bytes in, messages out. Sockets and clocks are absent.

pub(crate) mod cursor;
pub mod error;
pub mod spop;
pub(crate) mod string;
pub mod varint;
