//! The store: a Redis server that the nodes share, or a token server.

use std::sync::Arc;

use tokio::time::timeout;

use crate::store_protocol::Refusal;
use crate::sync::redis::{self, Redis};
use crate::sync::token_link::TokenLink;
use crate::sync::url::StorePlace;
use crate::sync::{CONNECT, StoreError, SyncConfig, TokenServer};
use slowlane_core::cluster::{Cluster, Due, Presence, Response};

/// The token server of this slowlane, which is the store of its own node.
#[derive(Clone, Debug)]
pub(super) struct Own {
    pub(super) server: Arc<TokenServer>,
    pub(super) cluster: Arc<Cluster>,
    /// Whether the key secret is from a file.
    pub(super) is_secret_fixed: bool,
}

impl Own {
    fn presence(&self) -> Presence {
        match (self.cluster.is_used(), self.is_secret_fixed) {
            (false, _) => Presence::Onlooker,
            (true, false) => Presence::Own,
            (true, true) => Presence::Node,
        }
    }
}

/// The store, connected.
pub(super) enum Store {
    Redis(Redis),
    TokenServer(TokenLink),
    Own(Own),
}

impl Store {
    /// Connects. Sentinels are queried again each time: the master may have changed.
    pub(super) async fn open(config: &SyncConfig, own: Option<&Own>) -> Result<Store, StoreError> {
        let SyncConfig { store, files, prefix, .. } = config;
        Ok(match &store.place {
            StorePlace::Server(info) => Store::Redis(Redis::server(info.clone(), files, prefix).await?),
            StorePlace::Sentinel { sentinels, name, master } => {
                let address = redis::master(sentinels, name, files).await?;
                Store::Redis(Redis::server(master.clone().set_addr(address), files, prefix).await?)
            }
            StorePlace::Cluster(servers) => Store::Redis(Redis::cluster(servers, files, prefix).await?),
            StorePlace::TokenServer(info) => {
                let open = timeout(CONNECT, TokenLink::open(info, files));
                Store::TokenServer(open.await.unwrap_or(Err(StoreError::Silent(CONNECT)))?)
            }
            StorePlace::Own => Store::Own(own.cloned().ok_or(StoreError::NoTokenServer)?),
        })
    }

    /// Sends everything that is due to the store.
    pub(super) async fn exchange(&mut self, due: &Due) -> Result<Response, StoreError> {
        let response = match self {
            Store::Redis(redis) => redis.exchange(due).await?,
            Store::TokenServer(link) => link.exchange(due).await?,
            Store::Own(own) => own.server.exchange(due, own.presence()).ok_or(Refusal::Numbers)?,
        };
        if response.fits(due) { Ok(response) } else { Err(StoreError::Garbage) }
    }
}
