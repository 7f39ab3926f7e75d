//! The two proxies: their words as requests, decisions in their words, and the files shipped for them.

pub mod haproxy;
pub mod nginx;
pub mod shipped;
