//! Every integration test, in one binary.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests and benches are the world outside"
)]
#![allow(unreachable_pub, reason = "nothing here is reachable from outside, and pub(crate) is noise")]

mod access;
mod accuracy;
mod advise;
mod allocations;
mod attach;
mod attach_protect;
mod bad_http;
mod bad_spop;
mod batch;
mod blocks_served;
mod book;
mod cli;
mod closed_output;
mod cluster;
mod cluster_assured;
mod cluster_blocks;
mod cluster_scripts;
mod concurrency;
mod config;
mod config_peers;
mod config_printed;
mod corpora;
mod decision_log;
mod demo;
mod derived;
mod doctor;
mod ends;
mod ends_envoy;
mod evasion;
mod examples;
mod fields;
mod full_disk;
mod groups;
mod grpc;
mod haproxy;
mod history;
mod import;
mod incident;
mod ipv6;
mod laws;
mod log;
mod log_kinds;
mod maps;
mod missing;
mod monitoring;
mod nginx;
mod nginx_http3;
mod open_files;
mod package;
mod page;
mod page_details;
mod peers;
mod pictures;
mod policy_test;
mod prose;
mod protect;
mod proxies;
mod quota_cli;
mod ratelimit;
mod readme;
mod recipes;
mod redis;
mod reference;
mod reload;
mod replay;
mod rls_check;
mod runtime_api;
mod scripts;
mod shipped;
mod simulate;
mod slos;
mod snapshot;
mod spoa_check;
mod state;
mod support;
mod systemd;
mod table_cli;
mod tickets;
mod tidy;
mod tls;
mod token_server;
mod top;
mod trusted;
mod unlimited;
mod upgrade;
mod versions;
mod wall_clock;
mod why;
mod work;
