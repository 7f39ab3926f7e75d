//! The HTTP check: one connection of nginx, or of any proxy that asks over HTTP.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Empty;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};

use crate::draw::Draw;
use crate::nginx::{self, Manner};
use crate::server::Agent;
use crate::server::repeats::Repeats;
use crate::server::shutdown::Shutdown;
use crate::server::socket::Stream;
use crate::verdict::{Decision, Verdict};

/// About the longest head of a request: past it no more is read. Proxies take none as long from clients (nginx
/// 32 KiB, HAProxy 16 KiB), and every connection may make us keep one.
pub(super) const HEAD_BYTES_MAX: usize = 64 * 1024;

type Answer = Response<Empty<Bytes>>;

/// The check, as served on all its connections.
#[derive(Clone, Debug)]
pub struct Check {
    repeats: Arc<Repeats>,
    idle_timeout: Duration,
}

impl Check {
    /// `idle_timeout` bounds the wait for a whole request. It must be longer than a proxy keeps an idle
    /// connection (nginx: 60 s), or the proxy finds it closed at the moment of its next question.
    pub fn new(idle_timeout: Duration) -> Check {
        Check { repeats: Arc::default(), idle_timeout }
    }

    pub async fn serve(self, stream: Stream, agent: Arc<Agent>, mut shutdown: Shutdown) {
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(self.idle_timeout).max_buf_size(HEAD_BYTES_MAX);
        let ending = shutdown.clone();
        let answer = service_fn(|question| self.answer(question, &agent, ending.clone()));
        let mut connection = std::pin::pin!(http.serve_connection(TokioIo::new(stream), answer));
        // What a client does wrong ends its own connection and concerns nobody else.
        tokio::select! {
            result = connection.as_mut() => return log(result),
            () = shutdown.begun() => connection.as_mut().graceful_shutdown(),
        }
        log(connection.await);
    }

    async fn answer(
        &self,
        question: hyper::Request<Incoming>,
        agent: &Arc<Agent>,
        shutdown: Shutdown,
    ) -> Result<Answer, Infallible> {
        if question.uri().path() != "/check" {
            let mut unknown = Answer::default();
            *unknown.status_mut() = StatusCode::NOT_FOUND;
            return Ok(unknown);
        }
        let manner = Manner::of(question.uri().query());
        let mut decision = self.decide(&question, manner, agent);
        if let (Verdict::Delay(wait), true) = (decision.verdict, manner.hold) {
            decision = hold(decision, wait, agent, shutdown).await;
        }
        Ok(nginx::response(&decision, manner))
    }

    /// A request id that was answered within the last second is not counted again. Only nginx asks twice;
    /// where the answer to a refusal is 429 another proxy asks, whose ids may come from its clients.
    fn decide(&self, question: &hyper::Request<Incoming>, manner: Manner, agent: &Agent) -> Decision {
        let now = agent.clock.now();
        let id = nginx::request_id(question.headers()).filter(|_| manner.deny == StatusCode::FORBIDDEN);
        if let Some(decision) = id.and_then(|id| self.repeats.recall(id, now)) {
            return decision;
        }
        let draw = Draw::from_bits(fastrand::u64(..));
        let decision = agent.throttle.decide(&nginx::request(question.headers(), manner), now, draw);
        agent.metrics.verdicts.count(&decision);
        if id.is_some_and(|id| !self.repeats.remember(id, decision, now)) {
            agent.metrics.request_ids_forgotten.inc();
        }
        decision
    }
}

/// Waits for the delay to pass, or for the end.
async fn hold(decision: Decision, wait: Duration, agent: &Arc<Agent>, mut shutdown: Shutdown) -> Decision {
    let Some(place) = agent.holds.place() else {
        return Decision { verdict: agent.holds.when_full().verdict(), ..decision };
    };
    let abandoned = Abandoned { decision: Some(decision), agent };
    tokio::select! {
        () = tokio::time::sleep(agent.holds.bounded(wait)) => {}
        () = shutdown.begun() => {}
    }
    abandoned.not();
    drop(place);
    decision
}

/// Dropped before its time when the client's connection goes: then its slot goes back.
struct Abandoned<'a> {
    decision: Option<Decision>,
    agent: &'a Agent,
}

impl Abandoned<'_> {
    fn not(mut self) {
        self.decision = None;
    }
}

impl Drop for Abandoned<'_> {
    fn drop(&mut self) {
        if let Some(decision) = self.decision {
            self.agent.metrics.holds_abandoned.inc();
            self.agent.throttle.take_back(&decision, self.agent.clock.now());
        }
    }
}

fn log(result: hyper::Result<()>) {
    if let Err(error) = result {
        tracing::debug!("http connection closed: {error}");
    }
}
