//! Sockets: listeners, connections and held answers.

pub(crate) mod acceptor;
pub(crate) mod admin;
pub(crate) mod admin_socket;
mod agent;
mod blocks;
mod connection;
pub(crate) mod dedup;
pub(crate) mod ends;
pub(crate) mod grpc;
pub(crate) mod holds;
pub(crate) mod hosts;
pub mod http;
pub(crate) mod listener;
pub(crate) mod lobby;
pub mod peers;
pub mod runtime_api;
mod scrape;
pub mod shutdown;
pub mod spoe;
pub mod stream;
pub(crate) mod tls;

pub(crate) use acceptor::{Accepted, Acceptor, AccessList, Service};
pub use agent::Agent;
pub(crate) use ends::{Ends, FollowedLog};
pub(crate) use holds::{Bell, HoldPlace, Holds};
pub(crate) use hosts::Hosts;
pub(crate) use listener::{Inherited, Listener, OpenListener};
pub(crate) use lobby::{Guest, Lobby};
pub(crate) use shutdown::{Shutdown, Signal, Transfer, TransferState, Trigger};
pub(crate) use stream::{Stream, WriteTimeout, drain, limited, set_options};
pub(crate) use tls::{Tls, TlsError};
