//! The store of a cluster: a Redis server that the nodes share, or a token server.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ::redis::{ConnectionAddr, ConnectionInfo, ErrorKind, RedisError};
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::rustls::ClientConfig;

use crate::server::tls::{TlsError, Trust, client};
use crate::server::{Stream, set_options};
use crate::store_protocol::{ProtocolError, Question, Refusal, StoreAnswer, greet, greeted, read, write};
use crate::sync::redis::{self, Redis};
use crate::sync::url::{StorePlace, StoreUrl};
use crate::sync::{Node, TokenServer};
use slowlane_core::cluster::{Due, Response, Settings};

/// The maximum time for connecting to a store.
pub(super) const CONNECT: Duration = Duration::from_secs(2);

/// The maximum length of a token server's answer: all blocks, each with the longest target, must fit.
const ANSWER_BYTES_MAX: usize = 128 << 20;

/// The section `[cluster]` of the config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SyncConfig {
    pub store: StoreUrl,
    /// The name of this node, for operators.
    pub node: String,
    /// The prefix of all keys in the store.
    pub prefix: String,
    pub files: StoreTlsFiles,
    pub settings: Settings,
    /// Whether the key secret comes from a file, so that the secret in the store is not used.
    pub is_secret_fixed: bool,
}

/// The TLS files, in PEM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoreTlsFiles {
    /// The CA of the store. `None` means the system's CAs.
    pub ca: Option<PathBuf>,
    /// The node's own certificate and key, for a store that requires client certificates.
    pub identity: Option<(PathBuf, PathBuf)>,
}

impl StoreTlsFiles {
    /// Reads the files.
    ///
    /// # Errors
    /// The first file that cannot be used.
    pub(crate) fn client(&self) -> Result<Arc<ClientConfig>, TlsError> {
        let trust = self.ca.clone().map_or(Trust::System, Trust::Authority);
        let identity = self.identity.as_ref().map(|(cert, key)| (cert.as_path(), key.as_path()));
        client(&trust, identity)
    }

    /// Checks whether the files, if there are any, can be used.
    ///
    /// # Errors
    /// The first file that cannot be used.
    pub(crate) fn check(&self) -> Result<(), TlsError> {
        if *self == StoreTlsFiles::default() { Ok(()) } else { self.client().map(drop) }
    }
}

/// A connection to the store.
pub(super) enum Store<'n> {
    Redis(Redis),
    TokenServer(TokenLink),
    /// The token server of this slowlane.
    Own(&'n Node, &'n TokenServer),
}

impl<'n> Store<'n> {
    /// Connects to the store. Sentinels are queried again each time, because the master may have changed.
    pub(super) async fn open(node: &'n Node) -> Result<Store<'n>, StoreError> {
        let SyncConfig { store, files, prefix, .. } = &node.config;
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
            StorePlace::Own => {
                Store::Own(node, node.token_server.as_ref().expect("this node is a token server"))
            }
        })
    }

    /// Sends everything that is due, and returns the store's answer.
    pub(super) async fn exchange(&mut self, due: &Due) -> Result<Response, StoreError> {
        let response = match self {
            Store::Redis(redis) => redis.exchange(due).await?,
            Store::TokenServer(link) => {
                link.ask(&Question::Exchange(due)).await?.ok_or(StoreError::Garbage)?
            }
            Store::Own(node, server) => server.exchange(due, node.presence()).ok_or(Refusal::Numbers)?,
        };
        if response.fits(due) { Ok(response) } else { Err(StoreError::Garbage) }
    }
}

/// The connection of a node to a token server.
pub(super) struct TokenLink(Stream);

impl TokenLink {
    /// Connects, and presents the token.
    async fn open(server: &ConnectionInfo, files: &StoreTlsFiles) -> Result<TokenLink, StoreError> {
        let mut link = TokenLink(stream(server.addr(), files).await?);
        greet(&mut link.0).await?;
        greeted(&mut link.0).await?;
        let token = server.redis_settings().password().map(str::to_owned);
        match link.ask(&Question::Login(token)).await? {
            None => Ok(link),
            Some(_) => Err(StoreError::Garbage),
        }
    }

    /// Asks a question. Returns the answer to an exchange, or `None` for the answer to a login.
    async fn ask(&mut self, question: &Question<&Due>) -> Result<Option<Response>, StoreError> {
        write(&mut self.0, question).await?;
        match read(&mut self.0, ANSWER_BYTES_MAX).await? {
            StoreAnswer::Response(response) => Ok(Some(*response)),
            StoreAnswer::Welcome => Ok(None),
            StoreAnswer::Refused(refusal) => Err(refusal.into()),
        }
    }
}

async fn stream(address: &ConnectionAddr, files: &StoreTlsFiles) -> Result<Stream, StoreError> {
    let (host, port, is_tls) = match address {
        ConnectionAddr::Tcp(host, port) => (host, *port, false),
        ConnectionAddr::TcpTls { host, port, .. } => (host, *port, true),
        _ => unreachable!("the address of a token server has a host and a port"),
    };
    let stream = TcpStream::connect((host.as_str(), port)).await?;
    set_options(&stream);
    let stream = Stream::Tcp(stream);
    if !is_tls {
        return Ok(stream);
    }
    // The files may have changed since the last connection.
    let tls = files.client().map_err(io::Error::other)?;
    Ok(stream.secured(host, tls).await?)
}

/// The reason why the store does not answer.
#[derive(Debug, Error)]
pub(super) enum StoreError {
    #[error("no answer for {} ms", .0.as_millis())]
    Silent(Duration),
    #[error("the store's answer does not have the form that slowlane expects")]
    Garbage,
    #[error("no sentinel knows a master with this name")]
    NoMaster,
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
            StoreError::NoMaster | StoreError::Io(_) => "unreachable",
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
