//! Protocols as values: bytes in, messages out. No socket and no clock is here.

pub mod spop;
