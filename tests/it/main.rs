//! Every integration test, in one binary.

#![allow(unreachable_pub, reason = "nothing here is reachable from outside, and pub(crate) is noise")]

mod allocations;
mod bad_http;
mod bad_spop;
mod cli;
mod concurrency;
mod config;
mod fields;
mod haproxy;
mod laws;
mod maps;
mod nginx;
mod reload;
mod runtime_api;
mod shipped;
mod simulate;
mod slos;
mod support;
mod table_cli;
mod throttle;
mod tidy;
mod why;
