//! The edge of cluster and snapshot: the one task that talks to the store, the token server, and the state file.
//!
//! ```text
//! Cluster::collect ─▶ Store::exchange ─▶ Cluster::reply      one exchange at a time
//!                       rate.lua, count.lua, lease.lua: keys
//!                       beat.lua: nodes, key secret, crowded keys
//!                       blocks.lua: blocks, by the Courier
//! no answer ─▶ Cluster::lost; a new connection, after a pause
//! ```
//! It runs in a thread of its own, as the keeper of the state file does. No request waits for either.
//!
//! The store may be a slowlane, too, the token server: `cluster`'s Desk answers the same questions.
//!
//! ```text
//! TokenLink ─frames─▶ TokenServer ─Due─▶ Desk ─▶ Ledger: keys; Roll: nodes; Board: blocks ─Told─▶
//! ```

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "it talks to the store, in its own thread"
)]

mod call;
mod courier;
mod keeper;
mod numbers;
mod pause;
mod redis;
mod settings;
mod store;
mod task;
mod token_link;
mod token_server;
mod url;

pub(crate) use keeper::{Found, Keeper, StateFile};
pub(crate) use settings::{Files, SyncConfig};
pub(crate) use task::{Node, RunningNode};
pub(crate) use token_server::TokenServer;
pub(crate) use url::StoreUrl;
