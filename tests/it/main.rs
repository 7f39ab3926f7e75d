//! Every integration test, in one binary.

mod haproxy;
mod laws;
mod support;
mod tidy;
