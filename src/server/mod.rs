//! Sockets: listeners, connections and held answers.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "this module is for sockets, timers and tasks"
)]

pub(crate) mod admin;
pub(crate) mod admin_socket;
mod agent;
mod alarm;
mod blocks;
pub(crate) mod entrance;
pub(crate) mod gate;
pub(crate) mod handed;
pub(crate) mod holds;
pub(crate) mod hosts;
pub mod http;
mod http1;
mod inbox;
pub(crate) mod listener;
pub(crate) mod lobby;
mod outbox;
mod page;
pub mod peers;
mod process_use;
pub(crate) mod repeats;
pub mod runtime_api;
mod scrape;
pub mod shutdown;
pub mod spoe;
pub mod stream;
pub mod talk;
pub(crate) mod tls;
pub(crate) mod transfer;
pub(crate) mod write_timeout;

pub use agent::Agent;
