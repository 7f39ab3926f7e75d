//! A running daemon, as the commands that ask one reach it: over HTTP, at its admin address.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use clap::Args;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, AUTHORIZATION, HOST};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Builder;
use tokio::time::timeout;

use crate::config::{Config, Flags, read_token};
use crate::server::socket::Address;
use crate::server::token::Token;

/// To connect, and then to begin an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where it is, and what opens it.
#[derive(Debug, Args)]
pub(super) struct At {
    /// The admin address of a running daemon [default: of --config, else 127.0.0.1:9002]
    #[arg(long, value_name = "ADDR", global = true)]
    pub(super) admin: Option<Address>,
    /// The file with its token [default: the token of --config]
    #[arg(long, value_name = "FILE", global = true)]
    token_file: Option<PathBuf>,
}

/// A daemon that has not been asked yet.
pub(super) struct Daemon {
    address: Address,
    token: Option<Token>,
}

/// What to ask.
pub(super) struct Question {
    pub(super) method: &'static str,
    pub(super) path: String,
    pub(super) accept: &'static str,
    pub(super) body: String,
}

impl Daemon {
    pub(super) fn new(at: At, config: Option<PathBuf>) -> anyhow::Result<Daemon> {
        let config = Config::load(config.as_deref(), Flags::default())?.admin;
        let token = match at.token_file {
            Some(path) => Some(read_token(path)?),
            None => config.token,
        };
        let configured = || config.listen.addresses.first().cloned();
        let address = at.admin.or_else(configured);
        let address =
            address.ok_or_else(|| anyhow!("no admin address is configured: name one with --admin"))?;
        Ok(Daemon { address, token })
    }

    /// Asks, and copies the answer to standard output as it comes. Gives back how many bytes that were.
    pub(super) fn tell(&self, question: Question) -> anyhow::Result<u64> {
        let runtime =
            Builder::new_current_thread().enable_all().build().context("cannot start the runtime")?;
        runtime.block_on(self.copy(question))
    }

    async fn copy(&self, question: Question) -> anyhow::Result<u64> {
        let unreachable = |reason: String| {
            anyhow!(
                "cannot ask slowlane at {}: {reason}; is it running there? --admin names another",
                self.address
            )
        };
        let asked = match &self.address {
            Address::Tcp(address) => match timeout(PATIENCE, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => timeout(PATIENCE, self.ask(stream, question)).await,
                Ok(Err(error)) => return Err(unreachable(error.to_string())),
                Err(late) => Err(late),
            },
            Address::Unix(path) => match UnixStream::connect(path).await {
                Ok(stream) => timeout(PATIENCE, self.ask(stream, question)).await,
                Err(error) => return Err(unreachable(error.to_string())),
            },
        };
        let answer = asked.map_err(|_| unreachable(format!("no answer within {} s", PATIENCE.as_secs())))?;
        let mut answer = answer.map_err(|error| unreachable(error.to_string()))?;
        if answer.status() != StatusCode::OK {
            bail!(self.refused(answer).await);
        }
        let (mut out, mut bytes) = (io::stdout().lock(), 0);
        while let Some(frame) = answer.frame().await {
            let frame = frame.context("the answer broke off")?;
            let piece = frame.data_ref().map_or(&b""[..], |piece| piece);
            bytes += piece.len() as u64;
            match out.write_all(piece).and_then(|()| out.flush()) {
                // Whoever reads has seen enough.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(bytes),
                written => written?,
            }
        }
        Ok(bytes)
    }

    async fn ask(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        question: Question,
    ) -> anyhow::Result<Response<Incoming>> {
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let mut request = Request::builder()
            .method(question.method)
            .uri(question.path)
            .header(HOST, "slowlane")
            .header(ACCEPT, question.accept);
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token.header());
        }
        Ok(sender.send_request(request.body(Full::<Bytes>::from(question.body))?).await?)
    }

    /// What the daemon says about it.
    async fn refused(&self, answer: Response<Incoming>) -> String {
        let status = answer.status();
        let text = answer.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        match status {
            StatusCode::UNAUTHORIZED => {
                format!("slowlane at {} wants its token: give --token-file or --config", self.address)
            }
            StatusCode::NOT_FOUND => {
                format!("what answers at {} does not know that: is it slowlane?", self.address)
            }
            _ => text.trim_end().to_owned(),
        }
    }
}
