//! The connections of a token server: a slowlane that is the store of others.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout_at};

use crate::observe::clock::Clock;
use crate::observe::cluster_metrics::TokenServerMetrics;
use crate::resp::{self, Reader};
use crate::server::lobby::{Guest, Lobby};
use crate::server::shutdown::Shutdown;
use crate::server::stream::Stream;
use crate::server::write_timeout::{WriteTimeout, limited};
use crate::sync::desk::{Client, Desk};
use slowlane_core::base::token::Token;
use slowlane_core::cluster::Presence;

/// Nodes send a heartbeat each second. A connection without a command for so long is closed.
const IDLE_MAX: Duration = Duration::from_secs(10);

/// A client that has not shown the token by then is let go: the number of connections is limited.
const LOGIN_MAX: Duration = Duration::from_secs(5);

/// The longest command: the most changes of blocks, each with the longest target.
const COMMAND_BYTES_MAX: usize = 5 << 20;

/// The longest command of a client that has not shown the token.
const STRANGER_BYTES_MAX: usize = 512;

/// Answers are sent once there are this many bytes of them.
const ANSWER_BYTES: usize = 64 << 10;

/// What is kept of a buffer that has grown.
const BUFFER_BYTES: usize = 64 << 10;

/// The most connections that have not shown the token. A node shows it at once: while its bytes are on their way,
/// hundreds of strangers would have to come.
const STRANGERS_MAX: usize = 200;

/// The error that Redis has for it.
const FULL: &str = "ERR max number of clients reached";

/// A slowlane that is the store of others. All connections share what it keeps.
#[derive(Debug)]
pub(crate) struct TokenServer {
    desk: Mutex<Desk>,
    pub(crate) lobby: Arc<Lobby>,
    clock: Clock,
    metrics: TokenServerMetrics,
}

impl TokenServer {
    pub(crate) fn new(token: Option<Token>, clock: Clock, metrics: TokenServerMetrics) -> Arc<TokenServer> {
        let desk = Desk::new(token, format!("{:016x}", fastrand::u64(..)));
        let lobby = Lobby::new(STRANGERS_MAX, metrics.strangers_gone.clone());
        Arc::new(TokenServer { desk: Mutex::new(desk), lobby, clock, metrics })
    }

    /// Serves until the client closes or falls silent, or the shutdown begins.
    pub(crate) async fn serve(self: Arc<Self>, stream: Stream, guest: Guest, shutdown: Shutdown) {
        let client = self.desk().client();
        let mut visit = Visit {
            client,
            guest,
            server: self,
            stream: limited(stream, IDLE_MAX),
            read: Vec::new(),
            reader: Reader::default(),
        };
        if let Some(Err(error)) = shutdown.unless_begun(visit.run()).await {
            tracing::debug!("token server: a connection closed: {error}");
        }
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer to a command of this slowlane's own node.
    pub(super) fn answer_own(&self, presence: Presence, words: &[String]) -> Vec<u8> {
        let words: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
        let mut out = Vec::new();
        self.answer(&mut Client { is_known: true, presence }, &words, &mut out);
        out
    }

    fn answer(&self, client: &mut Client, words: &[&[u8]], out: &mut Vec<u8>) {
        let mut desk = self.desk();
        desk.answer(client, words, self.clock.now(), out);
        self.metrics.records.set(i64::try_from(desk.records()).unwrap_or(i64::MAX));
        let refused = desk.refused();
        self.metrics.refused.inc_by(refused.saturating_sub(self.metrics.refused.get()));
    }
}

/// A connection of a node.
struct Visit {
    server: Arc<TokenServer>,
    stream: WriteTimeout,
    client: Client,
    guest: Guest,
    /// Bytes read but not yet used.
    read: Vec<u8>,
    reader: Reader,
}

impl Visit {
    async fn run(&mut self) -> io::Result<()> {
        let (mut out, login_ends) = (Vec::new(), Instant::now() + LOGIN_MAX);
        loop {
            let ends = if self.client.is_known { Instant::now() + IDLE_MAX } else { login_ends };
            if timeout_at(ends, self.stream.read_buf(&mut self.read)).await.unwrap_or(Ok(0))? == 0 {
                return Ok(());
            }
            let end = self.answer_all(&mut out).await;
            self.stream.write_all(&out).await?;
            self.stream.flush().await?;
            out.clear();
            out.shrink_to(BUFFER_BYTES);
            end?;
        }
    }

    /// Answers every whole command that has been read.
    async fn answer_all(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        let mut used = 0;
        loop {
            let bytes_max = if self.client.is_known { COMMAND_BYTES_MAX } else { STRANGER_BYTES_MAX };
            match self.reader.read(&self.read[used..], bytes_max) {
                Ok(Some((words, length))) => {
                    self.server.answer(&mut self.client, &words, out);
                    self.server.metrics.commands.inc();
                    if self.client.is_known && !self.guest.is_known() {
                        resp::write_error(out, FULL);
                        return Err(io::ErrorKind::ConnectionRefused.into());
                    }
                    used += length;
                }
                Ok(None) => break,
                Err(error) => {
                    resp::write_error(out, &error.to_string());
                    return Err(io::Error::new(io::ErrorKind::InvalidData, error));
                }
            }
            if out.len() >= ANSWER_BYTES {
                self.stream.write_all(out).await?;
                out.clear();
            }
        }
        self.read.drain(..used);
        if self.read.is_empty() {
            self.read.shrink_to(BUFFER_BYTES);
        }
        Ok(())
    }
}
