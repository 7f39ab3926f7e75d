//! The two proxies: their messages as requests, decisions in their formats, and the files shipped for them.

pub mod haproxy;
pub mod nginx;
pub mod shipped;
