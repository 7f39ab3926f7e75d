//! The connections of a token server: a slowlane that is the store of other nodes.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, timeout_at};

use crate::observe::groups::TokenServerMetrics;
use crate::observe::{Clock, OncePerSecond};
use crate::server::{Accepted, Guest, Lobby, Service, Shutdown, Stream, WriteTimeout, drain, limited};
use crate::store_protocol::{ProtocolError, Question, Refusal, StoreAnswer, greet, greeted, read, write};
use slowlane_core::base::Token;
use slowlane_core::cluster::{Due, Presence, Response, StoreServer};

/// Nodes send a heartbeat each second. A connection without a message for this long is closed.
const IDLE_MAX: Duration = Duration::from_secs(10);

/// A client that has not presented the token within this time is disconnected, because the number of connections is
/// limited.
const LOGIN_MAX: Duration = Duration::from_secs(5);

/// The maximum length of a message: the maximum number of block changes, each with the longest target, must fit.
const MESSAGE_BYTES_MAX: usize = 5 << 20;

/// The maximum length of a message from a client that has not presented the token.
const UNAUTHENTICATED_BYTES_MAX: usize = 512;

/// The maximum number of connections that have not presented the token. A node presents the token at once, so
/// displacing a node would take hundreds of clients that connect while its bytes are in flight.
const UNAUTHENTICATED_MAX: usize = 200;

/// The answer to a node of an older version, in that version's protocol, RESP.
const TO_RESP: &[u8] =
    b"-ERR this token server has a different version; run the same version of slowlane on all nodes and the \
     token server\r\n";

/// A slowlane that is the store of other nodes. All connections share its state.
#[derive(Debug)]
pub(crate) struct TokenServer {
    store: Mutex<StoreServer>,
    token: Option<Token>,
    lobby: Arc<Lobby>,
    clock: Clock,
    metrics: TokenServerMetrics,
    foreign_line: OncePerSecond,
}

impl TokenServer {
    pub(crate) fn new(token: Option<Token>, clock: Clock, metrics: TokenServerMetrics) -> Arc<TokenServer> {
        let store = Mutex::new(StoreServer::new(format!("{:016x}", fastrand::u64(..))));
        let lobby = Lobby::new(UNAUTHENTICATED_MAX, metrics.unauthenticated_closed.clone());
        Arc::new(TokenServer { store, token, lobby, clock, metrics, foreign_line: OncePerSecond::default() })
    }

    /// Serves a connection until the client closes it or falls silent, or the shutdown begins.
    async fn serve(self: Arc<Self>, stream: Stream, mut guest: Guest, shutdown: Shutdown) {
        let peer = stream.peer();
        let mut stream = limited(stream, IDLE_MAX);
        match shutdown.signal.unless_begun(self.talk(&mut stream, &mut guest)).await {
            Some(Err(error @ (ProtocolError::Resp | ProtocolError::Version(_)))) => {
                let text = || format!("token server: the node at {peer} cannot share keys: {error}");
                self.foreign_line.warn(self.clock.now(), text);
            }
            Some(Err(error)) => tracing::debug!("token server: a connection closed: {error}"),
            Some(Ok(())) | None => {}
        }
    }

    /// Talks with a node. The node's first message must be a short login, with the token if there is one.
    async fn talk(&self, stream: &mut WriteTimeout, guest: &mut Guest) -> Result<(), ProtocolError> {
        let login_ends = Instant::now() + LOGIN_MAX;
        let Ok(greeting) = timeout_at(login_ends, greeted(stream)).await else { return Ok(()) };
        match greeting {
            Err(ProtocolError::Resp) => {
                stream.write_all(TO_RESP).await?;
                stream.flush().await?;
                drain(&mut *stream).await;
            }
            // The node reports this server's version to its operator.
            Ok(()) | Err(ProtocolError::Version(_)) => greet(stream).await?,
            Err(_) => {}
        }
        greeting?;
        let (mut is_known, mut ends, mut bytes_max) = (false, login_ends, UNAUTHENTICATED_BYTES_MAX);
        loop {
            let Ok(question) = timeout_at(ends, read(stream, bytes_max)).await else { return Ok(()) };
            let answer = self.answer(&question?, is_known, guest);
            write(stream, &answer).await?;
            if matches!(answer, StoreAnswer::Refused(refusal) if refusal != Refusal::Numbers) {
                drain(&mut *stream).await;
                return Ok(());
            }
            (is_known, ends, bytes_max) = (true, Instant::now() + IDLE_MAX, MESSAGE_BYTES_MAX);
        }
    }

    fn answer(&self, question: &Question, is_known: bool, guest: &mut Guest) -> StoreAnswer {
        self.metrics.commands.inc();
        let refusal = match (question, &self.token) {
            (Question::Exchange(_), _) => (!is_known).then_some(Refusal::NoToken),
            (Question::Login(None), None) => None,
            (Question::Login(Some(given)), Some(token)) => {
                (!token.is(given.as_bytes())).then_some(Refusal::WrongToken)
            }
            (Question::Login(None), Some(_)) => Some(Refusal::NoToken),
            (Question::Login(Some(_)), None) => Some(Refusal::NoneWanted),
        };
        match (refusal, question) {
            (Some(refusal), _) => StoreAnswer::Refused(refusal),
            _ if !guest.is_known() => StoreAnswer::Refused(Refusal::Full),
            (None, Question::Login(_)) => StoreAnswer::Welcome,
            (None, Question::Exchange(due)) => match self.exchange(due, Presence::Node) {
                Some(response) => StoreAnswer::Response(Box::new(response)),
                None => StoreAnswer::Refused(Refusal::Numbers),
            },
        }
    }

    /// Answers a node. `None` if a number or text in the node's message is out of bounds.
    pub(super) fn exchange(&self, due: &Due, presence: Presence) -> Option<Response> {
        let mut store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        let response = store.exchange(due, presence, self.clock.now());
        self.metrics.records.set(i64::try_from(store.records.count()).unwrap_or(i64::MAX));
        let refused = store.records.refused();
        self.metrics.refused.inc_by(refused.saturating_sub(self.metrics.refused.get()));
        response
    }
}

impl Service for TokenServer {
    fn call(self: Arc<Self>, Accepted { stream, guest, shutdown, .. }: Accepted) -> BoxFuture<'static, ()> {
        let guest = guest.expect("the service has a lobby");
        Box::pin(self.serve(stream, guest, shutdown))
    }

    fn lobby(&self) -> Option<&Arc<Lobby>> {
        Some(&self.lobby)
    }
}
