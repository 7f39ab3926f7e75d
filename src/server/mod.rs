//! The sockets: listeners, their connections, and everything that waits.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "sockets, timers and tasks are what this room is for"
)]

pub(crate) mod admin;
pub(crate) mod admin_socket;
mod agent;
pub(crate) mod entrance;
pub(crate) mod handed;
pub(crate) mod holds;
pub mod http;
mod http1;
mod inbox;
pub(crate) mod listener;
mod page;
mod patience;
mod repeats;
pub mod runtime_api;
pub(crate) mod shutdown;
pub mod spoe;
pub(crate) mod stream;

pub use agent::Agent;
