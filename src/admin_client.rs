//! The HTTP client with which commands query a running daemon at the daemon's admin address.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use futures_util::TryStreamExt;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, AUTHORIZATION, HOST};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use thiserror::Error;
use tokio::runtime::Builder;
use tokio::time::timeout;
use tokio_rustls::rustls::ClientConfig;

use crate::observe::status::Snapshot;
use crate::server::Stream;
use slowlane_core::base::units::written;
use slowlane_core::base::{Address, Token, shown};

/// The default [`patience`](AdminQuestion::patience).
const PATIENCE: Duration = Duration::from_secs(5);

/// The maximum length of an answer kept in memory: several times the length of the longest status snapshot.
const ANSWER_BYTES_MAX: usize = 8 << 20;

/// The approximate number of bytes of a refusal that are read and shown.
const REFUSAL_BYTES_MAX: usize = 64 << 10;

/// The admin path for the history of the last `span`.
pub(crate) fn history(span: Duration) -> String {
    format!("/api/history?since={}", written(span))
}

/// A daemon's address, TLS settings and token.
#[derive(Clone, Debug)]
pub(crate) struct AdminClient {
    pub address: Address,
    /// `None` means plain HTTP.
    pub tls: Option<Arc<ClientConfig>>,
    pub token: Option<Token>,
}

/// A request to the daemon, and the maximum wait for the answer.
#[derive(Clone, Debug)]
pub(crate) struct AdminQuestion {
    pub method: &'static str,
    pub path: String,
    pub accept: &'static str,
    pub body: String,
    /// The maximum wait for a connection, for the start of an answer, and for each piece of the answer.
    pub patience: Duration,
}

/// The daemon requires a token, but the request did not contain it.
#[derive(Debug, Error)]
#[error("slowlane at {0} requires a token: use --token-file or --config")]
pub(crate) struct Closed(Address);

/// A hint for error messages, with the address to use if the listener has TLS. Unix sockets never have TLS.
fn over_tls(address: &Address) -> String {
    match address {
        Address::Tcp(address) => format!(" With [admin.tls], use https://{address}"),
        Address::Unix(_) => String::new(),
    }
}

impl AdminQuestion {
    /// A GET request for a path, to be answered as text.
    pub(crate) fn get(path: impl Into<String>) -> AdminQuestion {
        AdminQuestion {
            method: "GET",
            path: path.into(),
            accept: "text/plain",
            body: String::new(),
            patience: PATIENCE,
        }
    }

    /// A POST request, which asks for a change.
    pub(crate) fn post(path: impl Into<String>) -> AdminQuestion {
        AdminQuestion { method: "POST", ..AdminQuestion::get(path) }
    }

    /// Requests the answer as JSON if `is_wanted`.
    pub(crate) fn with_json(self, is_wanted: bool) -> AdminQuestion {
        AdminQuestion { accept: if is_wanted { "application/json" } else { self.accept }, ..self }
    }
}

impl AdminClient {
    /// Requests the daemon's status.
    pub(crate) fn snapshot(&self) -> anyhow::Result<Snapshot> {
        let body = self.get("/api/status")?;
        serde_json::from_slice(&body).map_err(|error| {
            anyhow!("the server at {} does not run this version of slowlane: {error}", self.address)
        })
    }

    /// Sends a GET request, and returns the answer. An answer longer than [`ANSWER_BYTES_MAX`] is an error.
    pub(crate) fn get(&self, path: &str) -> anyhow::Result<Vec<u8>> {
        let mut answer = Bounded(Vec::new());
        self.ask(AdminQuestion::get(path), &mut answer)?;
        Ok(answer.0)
    }

    /// Sends a request, and writes the answer to `out` as it arrives. Returns the number of bytes written.
    pub(crate) fn ask(&self, question: AdminQuestion, out: &mut impl Write) -> anyhow::Result<u64> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| self.unanswered(error.into()))?;
        runtime.block_on(self.copy(question, out))
    }

    async fn copy(&self, question: AdminQuestion, out: &mut impl Write) -> anyhow::Result<u64> {
        let patience = question.patience;
        let mut stream = self.within(patience, Stream::connect(&self.address)).await?;
        if let (Address::Tcp(address), Some(tls)) = (&self.address, &self.tls) {
            stream = self.secured(address, tls.clone(), stream).await?;
        }
        let answer = self.within(patience, self.answer(stream, question)).await?;
        if answer.status() != StatusCode::OK {
            return Err(self.refused(answer).await);
        }
        let (mut body, mut bytes) = (answer.into_data_stream(), 0);
        while let Some(piece) = self.within(patience, body.try_next()).await? {
            bytes += piece.len() as u64;
            out.write_all(&piece).and_then(|()| out.flush()).context("cannot write the answer")?;
        }
        Ok(bytes)
    }

    /// Performs the TLS handshake. The host of the address is the server name to verify, unless a certificate is
    /// pinned.
    async fn secured(&self, address: &str, tls: Arc<ClientConfig>, stream: Stream) -> anyhow::Result<Stream> {
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let reason = match timeout(PATIENCE, stream.secured(host, tls)).await {
            Ok(Ok(secured)) => return Ok(secured),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("the handshake took longer than {} s", PATIENCE.as_secs()),
        };
        bail!(
            "cannot connect to slowlane at {} over TLS: {}; name the CA of its certificate with --ca",
            self.address,
            shown(reason)
        )
    }

    /// Sends the request, and returns the answer as soon as its head has arrived. The body follows piece by piece.
    async fn answer(&self, stream: Stream, question: AdminQuestion) -> anyhow::Result<Response<Incoming>> {
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let mut request = Request::builder()
            .method(question.method)
            .uri(question.path)
            .header(HOST, "localhost")
            .header(ACCEPT, question.accept);
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token.header());
        }
        Ok(sender.send_request(request.body(Full::<Bytes>::from(question.body))?).await?)
    }

    /// The error for a status other than 200, with the daemon's explanation, if any.
    async fn refused(&self, answer: Response<Incoming>) -> anyhow::Error {
        let (status, address) = (answer.status(), &self.address);
        match status {
            StatusCode::UNAUTHORIZED => return Closed(address.clone()).into(),
            StatusCode::NOT_FOUND => {
                return anyhow!("the server at {address} does not know this request: is that slowlane?");
            }
            _ => {}
        }
        let (mut body, mut text) = (answer.into_data_stream(), Vec::new());
        while let Ok(Some(piece)) = self.within(PATIENCE, body.try_next()).await
            && text.len() < REFUSAL_BYTES_MAX
        {
            text.extend_from_slice(&piece);
        }
        let lines = text.trim_ascii_end().split(|&byte| byte == b'\n');
        let text = lines.map(shown).collect::<Vec<_>>().join("\n");
        anyhow!(if text.is_empty() { status.to_string() } else { text })
    }

    async fn within<T, E: Into<anyhow::Error>>(
        &self,
        patience: Duration,
        work: impl Future<Output = Result<T, E>>,
    ) -> anyhow::Result<T> {
        match timeout(patience, work).await {
            Ok(done) => done.map_err(|error| self.unanswered(error.into())),
            Err(_) => Err(self.unanswered(anyhow!("no answer within {} s", patience.as_secs()))),
        }
    }

    fn unanswered(&self, error: anyhow::Error) -> anyhow::Error {
        let address = &self.address;
        match error.downcast_ref::<hyper::Error>() {
            Some(error) if error.is_parse() => anyhow!(
                "the server at {address} does not speak HTTP: is this the address of [admin] listen?{}",
                over_tls(address)
            ),
            _ => anyhow!(
                "cannot query slowlane at {address}: {error:#}; is slowlane running there? Use --admin to \
                 name another address"
            ),
        }
    }
}

/// A buffer that refuses an answer longer than [`ANSWER_BYTES_MAX`].
struct Bounded(Vec<u8>);

impl Write for Bounded {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        if self.0.len() + piece.len() > ANSWER_BYTES_MAX {
            return Err(io::Error::other("the answer is too long"));
        }
        self.0.write(piece)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
