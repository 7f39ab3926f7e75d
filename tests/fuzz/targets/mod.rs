//! The bodies of the fuzz targets; a test on the stable compiler runs the same code on the committed corpora.

pub mod config;
pub mod end_line;
pub mod grpc;
pub mod headers;
pub mod host;
pub mod http;
pub mod import;
mod input;
pub mod laws;
pub mod map;
pub mod peers;
pub mod policy;
pub mod policy_test;
pub mod query;
pub mod replay;
pub mod runtime_api;
pub mod slo;
pub mod snapshot;
pub mod spop_connection;
pub mod spop_round_trip;
pub mod target;
pub mod ticket;
pub mod token_server;
mod watched;

/// Runs a target on one input. It panics if a property is violated.
pub type Target = fn(&[u8]);

/// All targets, by name.
pub const ALL: [(&str, Target); 22] = [
    ("config", config::run),
    ("end_line", end_line::run),
    ("grpc", grpc::run),
    ("headers", headers::run),
    ("host", host::run),
    ("http", http::run),
    ("import", import::run),
    ("laws", laws::run),
    ("map", map::run),
    ("peers", peers::run),
    ("policy", policy::run),
    ("policy_test", policy_test::run),
    ("query", query::run),
    ("replay", replay::run),
    ("runtime_api", runtime_api::run),
    ("slo", slo::run),
    ("snapshot", snapshot::run),
    ("spop_connection", spop_connection::run),
    ("spop_round_trip", spop_round_trip::run),
    ("target", target::run),
    ("ticket", ticket::run),
    ("token_server", token_server::run),
];
