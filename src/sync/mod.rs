//! The input and output of the cluster and of snapshots: the task that talks to the store, the token server, and the
//! state file.
//!
//! ```text
//! Cluster::collect ─▶ Store::exchange ─▶ Cluster::reply      one exchange at a time
//!                       rate.lua, count.lua, lease.lua: keys
//!                       beat.lua: nodes, key secret, crowded keys
//!                       blocks.lua: blocks, by the BlockSync
//! no answer ─▶ Cluster::lost; a new connection, after a pause
//! ```
//! The task runs in its own thread, and so does the snapshot writer. No request waits for either.
//!
//! The store may also be a slowlane, which is then called a token server: `cluster::StoreServer` answers the same
//! requests.
//!
//! ```text
//! TokenLink ─frames─▶ TokenServer ─Due─▶ StoreServer ─▶ Records: keys; NodeList: nodes; BlockLog: blocks ─Response─▶
//! ```

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the exchange with the store runs in its own thread"
)]

mod block_sync;
mod redis;
mod snapshot_writer;
mod store;
mod task;
mod token_server;
mod url;

use store::{CONNECT, StoreError};

pub(crate) use snapshot_writer::{Last, SnapshotWriter, StateFile};
pub(crate) use store::{StoreTlsFiles, SyncConfig};
pub(crate) use task::{Node, RunningNode};
pub(crate) use token_server::TokenServer;
pub(crate) use url::StoreUrl;
