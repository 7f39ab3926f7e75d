//! The connection of a node to a token server.

use std::io;

use redis::{ConnectionAddr, ConnectionInfo};
use tokio::net::TcpStream;

use crate::server::{Stream, set_options};
use crate::store_protocol::{Question, StoreAnswer, greet, greeted, read, write};
use crate::sync::{StoreError, StoreTlsFiles};
use slowlane_core::cluster::{Due, Response};

/// The longest answer: all blocks, each with the longest target.
const ANSWER_BYTES_MAX: usize = 128 << 20;

/// The connection of a node to a token server.
pub(super) struct TokenLink(Stream);

impl TokenLink {
    /// Connects, and presents the token.
    pub(super) async fn open(
        server: &ConnectionInfo,
        files: &StoreTlsFiles,
    ) -> Result<TokenLink, StoreError> {
        let mut link = TokenLink(stream(server.addr(), files).await?);
        greet(&mut link.0).await?;
        greeted(&mut link.0).await?;
        let token = server.redis_settings().password().map(str::to_owned);
        match link.ask(&Question::Login(token)).await? {
            StoreAnswer::Welcome => Ok(link),
            StoreAnswer::Refused(refusal) => Err(refusal.into()),
            StoreAnswer::Response(_) => Err(StoreError::Garbage),
        }
    }

    pub(super) async fn exchange(&mut self, due: &Due) -> Result<Response, StoreError> {
        match self.ask(&Question::Exchange(due)).await? {
            StoreAnswer::Response(response) => Ok(*response),
            StoreAnswer::Refused(refusal) => Err(refusal.into()),
            StoreAnswer::Welcome => Err(StoreError::Garbage),
        }
    }

    async fn ask(&mut self, question: &Question<&Due>) -> Result<StoreAnswer, StoreError> {
        write(&mut self.0, question).await?;
        Ok(read(&mut self.0, ANSWER_BYTES_MAX).await?)
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
