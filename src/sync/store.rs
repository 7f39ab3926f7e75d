//! The store: a Redis server that the nodes share, or a token server.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use ::redis::{ErrorKind, RedisError};
use thiserror::Error;
use tokio::time::timeout;

use crate::store_protocol::{ProtocolError, Refusal};
use crate::sync::redis::{self, Redis};
use crate::sync::settings::SyncConfig;
use crate::sync::token_link::TokenLink;
use crate::sync::token_server::TokenServer;
use crate::sync::url::StorePlace;
use slowlane_core::cluster::{Cluster, Due, Presence, Response};

/// A connection is given up if it takes longer.
pub(super) const CONNECT: Duration = Duration::from_secs(2);

/// The token server of this slowlane, which is the store of its own node.
#[derive(Clone, Debug)]
pub(super) struct Own {
    pub(super) server: Arc<TokenServer>,
    pub(super) cluster: Arc<Cluster>,
    /// The key secret is that of a file.
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

/// Why the store gives no answer.
#[derive(Debug, Error)]
pub(super) enum StoreError {
    #[error("no answer for {} ms", .0.as_millis())]
    Silent(Duration),
    #[error("it answers with something else than slowlane's script does")]
    Garbage,
    #[error("no sentinel knows a master with this name")]
    NoMaster,
    #[error("this slowlane is no token server")]
    NoTokenServer,
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Redis(#[from] RedisError),
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    #[error(transparent)]
    Refused(#[from] Refusal),
}

impl StoreError {
    /// The kind of the error in metrics.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            StoreError::Silent(_) => "silent",
            StoreError::NoMaster | StoreError::NoTokenServer | StoreError::Io(_) => "unreachable",
            StoreError::Protocol(ProtocolError::Io(_)) => "unreachable",
            StoreError::Garbage | StoreError::Protocol(_) => "garbage",
            StoreError::Refused(Refusal::Full | Refusal::Numbers) => "other",
            StoreError::Refused(_) => "login",
            StoreError::Redis(error) if error.is_timeout() => "silent",
            StoreError::Redis(error) => match (error.kind(), error.code()) {
                (ErrorKind::AuthenticationFailed, _) | (_, Some("NOAUTH" | "WRONGPASS" | "NOPERM")) => {
                    "login"
                }
                (_, Some("OOM")) => "memory",
                (_, Some("READONLY")) => "read_only",
                (ErrorKind::Io, _) => "unreachable",
                (ErrorKind::Parse | ErrorKind::UnexpectedReturnType, _) => "garbage",
                _ => "other",
            },
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
    /// Connects. Sentinels are asked anew each time: the master may be another one.
    pub(super) async fn open(config: &SyncConfig, own: Option<&Own>) -> Result<Store, StoreError> {
        let SyncConfig { store, files, prefix, .. } = config;
        Ok(match &store.place {
            StorePlace::Server(info) => Store::Redis(Redis::server(info.clone(), files, prefix).await?),
            StorePlace::Sentinel { sentinels, name, master } => {
                let address = redis::master(sentinels, name).await?;
                Store::Redis(Redis::server(master.clone().set_addr(address), files, prefix).await?)
            }
            StorePlace::Cluster(servers) => Store::Redis(Redis::cluster(servers, prefix).await?),
            StorePlace::TokenServer(info) => {
                let open = timeout(CONNECT, TokenLink::open(info, files));
                Store::TokenServer(open.await.unwrap_or(Err(StoreError::Silent(CONNECT)))?)
            }
            StorePlace::Own => Store::Own(own.cloned().ok_or(StoreError::NoTokenServer)?),
        })
    }

    /// Tells the store everything that is due.
    pub(super) async fn exchange(&mut self, due: &Due) -> Result<Response, StoreError> {
        let response = match self {
            Store::Redis(redis) => redis.exchange(due).await?,
            Store::TokenServer(link) => link.exchange(due).await?,
            Store::Own(own) => own.server.exchange(due, own.presence()).ok_or(Refusal::Numbers)?,
        };
        if response.fits(due) { Ok(response) } else { Err(StoreError::Garbage) }
    }
}
