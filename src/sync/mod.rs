//! The edge of the cluster: the one task that talks to the store.
//!
//! ```text
//! Cluster::collect ─▶ Store::exchange ─▶ Cluster::reply      one exchange at a time
//!                       rate.lua, count.lua, lease.lua: keys
//!                       beat.lua: nodes, key secret, crowded keys
//!                       blocks.lua: blocks, by the Courier
//! no answer ─▶ Cluster::lost; a new connection, after a pause
//! ```
//! It runs in a thread of its own. No request waits for it.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "it talks to the store, in its own thread"
)]

mod courier;
mod numbers;
mod pause;
mod settings;
mod store;
mod task;
mod url;

pub(crate) use settings::SyncConfig;
pub(crate) use task::Node;
pub(crate) use url::StoreUrl;
