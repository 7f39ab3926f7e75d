//! Sockets: listeners, connections and held answers.

pub(crate) mod acceptor;
pub(crate) mod access_list;
pub(crate) mod admin;
pub(crate) mod admin_socket;
mod agent;
mod blocks;
mod connection;
pub(crate) mod dedup;
pub(crate) mod holds;
pub(crate) mod hosts;
pub mod http;
pub(crate) mod inherited;
pub(crate) mod listener;
pub(crate) mod lobby;
mod page;
pub mod peers;
mod process_use;
pub mod runtime_api;
mod scrape;
pub mod shutdown;
pub mod spoe;
pub mod stream;
pub(crate) mod tls;
pub(crate) mod transfer;
pub(crate) mod write_timeout;

pub use agent::Agent;
