//! The HTTP check: one connection of nginx, or of another proxy that asks over HTTP.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use fastrand::Rng;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::{Response, StatusCode};

use crate::base::draw::Draw;
use crate::base::quota::Quota;
use crate::base::time::Timestamp;
use crate::base::verdict::{Decision, Verdict};
use crate::observe::log::OncePerSecond;
use crate::policy::{Batch, Policy};
use crate::proxy::nginx::{self, Manner, QueryError};
use crate::server::agent::Agent;
use crate::server::http1;
use crate::server::repeats::Repeats;
use crate::server::shutdown::{Shutdown, Signal};
use crate::server::stream::Stream;
use crate::server::transfer::Transfer;
use crate::throttle::Decisions;

type Answer = Response<Full<Bytes>>;

/// The service of the HTTP check, shared by all its connections.
#[derive(Clone, Debug)]
pub struct Check {
    shared: Arc<Shared>,
    idle_timeout: Duration,
}

#[derive(Debug, Default)]
struct Shared {
    repeats: Repeats,
    query_line: OncePerSecond,
}

impl Check {
    /// `idle_timeout` limits the wait for a whole request, and for a proxy that does not read its answers.
    ///
    /// It must be longer than the proxy keeps idle connections open (nginx: 60 s). Otherwise the proxy may send a
    /// question over a connection that is just being closed.
    pub fn new(idle_timeout: Duration) -> Check {
        Check { shared: Arc::default(), idle_timeout }
    }

    /// Serves a connection. `unread` is what an earlier process read of it and did not use.
    pub async fn serve(self, stream: Stream, unread: Bytes, agent: Arc<Agent>, mut shutdown: Shutdown) {
        let (query, signal) = (FirstQuery::default(), shutdown.signal());
        let answer = |question| self.shared.answer(question, &query, &agent, &signal);
        let patience = http1::Patiences { idle: self.idle_timeout, stalled: self.idle_timeout };
        if let Some((stream, unread)) = http1::serve(stream, unread, patience, &mut shutdown, answer).await {
            shutdown.pass_on(Transfer::Http(stream, unread));
        }
    }
}

impl Shared {
    async fn answer(
        &self,
        question: hyper::Request<Incoming>,
        query: &FirstQuery,
        agent: &Arc<Agent>,
        signal: &Signal,
    ) -> Answer {
        let manner = match question.uri().path() {
            "/check" => query.manner(question.uri().query()),
            // The proxy has appended what its client asked for, so the query is the client's and says nothing here.
            path if path.starts_with("/check/") => Manner::of(None),
            "/done" => return end(&question, agent),
            _ => return status(StatusCode::NOT_FOUND),
        };
        match manner {
            Ok(manner) => self.check(&question, manner, agent, signal).await,
            Err(error) => self.refuse_query(&error, agent),
        }
    }

    /// Answers `/check`, after the delay if the proxy wants it held.
    ///
    /// An answer is remembered when it is final: a hold may be refused, or its client may leave.
    async fn check(
        &self,
        question: &hyper::Request<Incoming>,
        manner: Manner,
        agent: &Arc<Agent>,
        signal: &Signal,
    ) -> Answer {
        let sign = nginx::repeatable(question, manner).map(|parts| self.repeats.sign(parts));
        let now = agent.clock.now();
        if let Some(decision) = sign.and_then(|sign| self.repeats.recall(sign, now)) {
            let quota = quota(&agent.throttle.policy(), &decision, manner);
            return nginx::response(&decision, manner, agent.secret, quota);
        }
        let (mut decision, quota) = decide(question, manner, agent, now);
        let mut due = now + decision.verdict.wait();
        if let (Verdict::Delay(wait), true) = (decision.verdict, manner.hold) {
            decision.verdict = hold(decision, wait, agent, signal).await;
            due = agent.clock.now();
        }
        if sign.is_some_and(|sign| !self.repeats.remember(sign, decision, due, agent.clock.now())) {
            agent.metrics.request_ids_forgotten.inc();
        }
        nginx::response(&decision, manner, agent.secret, quota)
    }

    /// Answers a query that makes no sense. It is a mistake of the operator, so the log has it as well.
    fn refuse_query(&self, error: &QueryError, agent: &Agent) -> Answer {
        if let Some(suppressed) = self.query_line.allow(agent.clock.now()) {
            tracing::error!(suppressed, "a proxy asks /check with a wrong query, and gets 400: {error}");
        }
        let mut answer = Answer::new(format!("{error}\n").into());
        *answer.status_mut() = StatusCode::BAD_REQUEST;
        answer
    }
}

/// The longest query that a connection remembers. All keys of one have room.
const QUERY_BYTES_MAX: usize = 128;

/// The first query of a connection, and what it says. A proxy sends the same one each time, so it is read once.
#[derive(Debug, Default)]
struct FirstQuery(OnceLock<(Option<String>, Manner)>);

impl FirstQuery {
    fn manner(&self, query: Option<&str>) -> Result<Manner, QueryError> {
        if let Some((first, manner)) = self.0.get()
            && first.as_deref() == query
        {
            return Ok(*manner);
        }
        let manner = Manner::of(query)?;
        if query.is_none_or(|query| query.len() <= QUERY_BYTES_MAX) {
            // Only the first is kept: any other is read each time.
            let _ = self.0.set((query.map(str::to_owned), manner));
        }
        Ok(manner)
    }
}

/// Decides a request, and gives its quota if the proxy asked for it, both under one policy.
fn decide(
    question: &hyper::Request<Incoming>,
    manner: Manner,
    agent: &Agent,
    now: Timestamp,
) -> (Decision, Option<Quota>) {
    let (headers, policy) = (question.headers(), agent.throttle.policy());
    let request = nginx::request(headers, manner);
    let (mut batch, mut decisions, mut dice) = (Batch::of(&policy), Decisions::new(), Rng::new());
    batch.push(&request);

    agent.throttle.decide(&batch, now, || Draw::from_bits(dice.u64(..)), &mut decisions);
    let decision = &mut decisions[0];
    if let Some(refusal) = manner.refusal(decision.verdict) {
        agent.throttle.refuse(&policy, decision, refusal, now);
    }
    let fields = |_| request.fields().map(|field| (field.name, field.value));
    agent.observer.decided(&batch, &decisions, agent.throttle.table(), &mut dice, fields);

    let decision = decisions[0];
    (decision, quota(&policy, &decision, manner))
}

fn quota(policy: &Policy, decision: &Decision, manner: Manner) -> Option<Quota> {
    if manner.ratelimit { policy.quota(decision) } else { None }
}

/// Answers `/done`: ends a request that an SLO counts until its end.
fn end(question: &hyper::Request<Incoming>, agent: &Agent) -> Answer {
    let ticket = nginx::ticket(question.headers()).unwrap_or_default();
    match agent.end(ticket, agent.clock.now()) {
        true => status(StatusCode::NO_CONTENT),
        false => status(StatusCode::BAD_REQUEST),
    }
}

fn status(status: StatusCode) -> Answer {
    let mut answer = Answer::default();
    *answer.status_mut() = status;
    answer
}

/// Holds the answer until the delay is over or the shutdown begins.
///
/// Returns `Pass`, or the verdict of `[hold] when_full` without a free place.
async fn hold(decision: Decision, wait: Duration, agent: &Arc<Agent>, signal: &Signal) -> Verdict {
    let _place = match agent.place(agent.clock.now()) {
        Ok(place) => place,
        Err(verdict) => {
            if let Verdict::Deny { .. } = verdict {
                agent.take_back(&decision);
            }
            return verdict;
        }
    };
    let abandoned = Abandoned { decision: Some(decision), agent };
    tokio::select! {
        () = tokio::time::sleep(agent.holds.bounded(wait)) => {}
        () = signal.ended() => {}
    }
    abandoned.disarm();
    decision.verdict
}

/// Takes the request back when dropped, unless disarmed: the client closed its connection during the hold.
struct Abandoned<'a> {
    decision: Option<Decision>,
    agent: &'a Agent,
}

impl Abandoned<'_> {
    fn disarm(mut self) {
        self.decision = None;
    }
}

impl Drop for Abandoned<'_> {
    fn drop(&mut self) {
        if let Some(decision) = self.decision {
            self.agent.metrics.holds_abandoned.inc();
            self.agent.take_back(&decision);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_query_of_a_connection_means_what_it_says() {
        let long = format!("max_delay={}6s", "0".repeat(QUERY_BYTES_MAX));
        let queries =
            [Some("hold=off"), None, Some("deny=429"), Some("hold=off"), Some(""), Some(&long), Some("x=1")];
        for first in queries {
            let connection = FirstQuery::default();
            for query in [first].into_iter().chain(queries) {
                assert_eq!(connection.manner(query), Manner::of(query), "{query:?} after {first:?}");
            }
        }
    }
}
