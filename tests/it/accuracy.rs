//! The tables and pictures of the manual about clusters, as the benchmark `accuracy` makes them.

#![allow(dead_code, reason = "the benchmark uses the rest")]

#[path = "../bench/accuracy/models.rs"]
mod models;
#[path = "../bench/accuracy/pictures.rs"]
pub mod pictures;
#[path = "../bench/accuracy/suite.rs"]
pub mod suite;
