//! The HTTP check: one connection of nginx, or of another proxy that asks over HTTP.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use http_body_util::Empty;
use hyper::body::{Bytes, Incoming};
use hyper::{Response, StatusCode};

use crate::base::draw::Draw;
use crate::base::quota::Quota;
use crate::base::verdict::{Decision, Verdict};
use crate::policy::Batch;
use crate::proxy::nginx::{self, Manner};
use crate::server::agent::Agent;
use crate::server::http1;
use crate::server::repeats::Repeats;
use crate::server::shutdown::Shutdown;
use crate::server::stream::Stream;
use crate::throttle::Decisions;

type Answer = Response<Empty<Bytes>>;

/// The service of the HTTP check, shared by all its connections.
#[derive(Clone, Debug)]
pub struct Check {
    repeats: Arc<Repeats>,
    idle_timeout: Duration,
}

impl Check {
    /// `idle_timeout` limits the wait for a whole request.
    ///
    /// It must be longer than the proxy keeps idle connections open (nginx: 60 s). Otherwise the proxy may send a
    /// question over a connection that is just being closed.
    pub fn new(idle_timeout: Duration) -> Check {
        Check { repeats: Arc::default(), idle_timeout }
    }

    pub async fn serve(self, stream: Stream, agent: Arc<Agent>, shutdown: Shutdown) {
        let answer = |question| self.answer(question, &agent, &shutdown);
        http1::serve(stream, self.idle_timeout, shutdown.clone(), answer).await;
    }

    async fn answer(
        &self,
        question: hyper::Request<Incoming>,
        agent: &Arc<Agent>,
        shutdown: &Shutdown,
    ) -> Answer {
        match question.uri().path() {
            "/check" => {}
            "/done" => return end(&question, agent),
            _ => return status(StatusCode::NOT_FOUND),
        }
        let manner = Manner::of(question.uri().query());
        let (mut decision, quota) = self.decide(&question, manner, agent);
        if let (Verdict::Delay(wait), true) = (decision.verdict, manner.hold) {
            decision.verdict = hold(decision, wait, agent, shutdown.clone()).await;
        }
        nginx::response(&decision, manner, quota)
    }

    /// Decides a request, and gives its quota if the proxy asked for it, both under one policy.
    ///
    /// A request id that was answered within the last second is not counted again. Only nginx asks twice. `deny=429`
    /// means another proxy, whose clients may choose the ids, so ids are ignored.
    fn decide(
        &self,
        question: &hyper::Request<Incoming>,
        manner: Manner,
        agent: &Agent,
    ) -> (Decision, Option<Quota>) {
        let (headers, now, policy) = (question.headers(), agent.clock.now(), agent.throttle.policy());
        let quota = |decision: &Decision| policy.quota(decision).filter(|_| manner.ratelimit);
        let id = nginx::request_id(headers).filter(|_| manner.deny == StatusCode::FORBIDDEN);
        if let Some(decision) = id.and_then(|id| self.repeats.recall(id, now)) {
            return (decision, quota(&decision));
        }
        let host = nginx::forwarded_host(headers, manner);
        let request = nginx::request(headers, manner, host.as_deref());
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
        if id.is_some_and(|id| !self.repeats.remember(id, decision, now)) {
            agent.metrics.request_ids_forgotten.inc();
        }
        (decision, quota(&decision))
    }
}

/// Answers `/done`: ends a request that an SLO counts until its end.
fn end(question: &hyper::Request<Incoming>, agent: &Agent) -> Answer {
    match nginx::ticket(question.headers()) {
        Some(ticket) => {
            agent.end(&ticket, agent.clock.now());
            status(StatusCode::NO_CONTENT)
        }
        None => status(StatusCode::BAD_REQUEST),
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
async fn hold(decision: Decision, wait: Duration, agent: &Arc<Agent>, mut shutdown: Shutdown) -> Verdict {
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
        () = shutdown.begun() => {}
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
