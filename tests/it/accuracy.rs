//! The tables of the manual about clusters, as the benchmark `accuracy` makes them.

#![allow(dead_code, reason = "the benchmark uses the rest")]

#[path = "../bench/accuracy/models.rs"]
mod models;
#[path = "../bench/accuracy/runs.rs"]
pub mod runs;
#[path = "../bench/accuracy/suite.rs"]
pub mod suite;
