//! The HTTP check: serves connections of nginx, and of other proxies that query over HTTP.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use futures_util::future::BoxFuture;

use crate::http::{Date, HEAD_BYTES_MAX, HeaderSlots, HttpAnswer, HttpHead, Refusal, StatusCode, Version};
use crate::observe::OncePerSecond;
use crate::proxy::check_fields;
use crate::proxy::nginx::{self, CHECK, CheckOptions, QueryError};
use crate::server::connection::{Connection, Inbox, Next, Protocol};
use crate::server::dedup::Fingerprint;
use crate::server::{Accepted, Agent, Bell, HoldPlace, Service, Shutdown, Stream, TransferState};
use slowlane_core::base::{Decision, Network, Quota, Reply, SloId, Timestamp, Turn, Verdict};
use slowlane_core::policy::Policy;

/// While more unwritten output than this many bytes is pending, no request is answered.
const OUT_BYTES_MAX: usize = 64 * 1024;

/// Room for the parts of a typical query, and for its answer.
const QUERY_BYTES: usize = 256;

/// The service of the HTTP check, shared by all its connections.
#[derive(Debug)]
pub struct Check {
    idle_timeout: Duration,
    /// The networks of trusted proxies in front of the proxy that queries.
    trusted: Vec<Network>,
    query_line: OncePerSecond,
    foreign_line: OncePerSecond,
}

impl Check {
    /// `idle_timeout` limits the wait for a whole request, and for a proxy that does not read its answers.
    ///
    /// `idle_timeout` must be longer than the proxy keeps idle connections open (nginx: 60 s). Otherwise the proxy may
    /// send a query over a connection that is just being closed. Behind proxies in the `trusted` networks, the client's
    /// address is taken from `X-Forwarded-For`.
    pub fn new(idle_timeout: Duration, trusted: Vec<Network>) -> Check {
        let [query_line, foreign_line] = Default::default();
        Check { idle_timeout, trusted, query_line, foreign_line }
    }

    /// Serves a connection. `unread` contains the bytes that were read before a handover but not used.
    pub async fn serve(
        self: Arc<Self>,
        stream: Stream,
        unread: Vec<u8>,
        agent: Arc<Agent>,
        shutdown: Shutdown,
    ) {
        let (inbox, patience) = (Inbox::with(HEAD_BYTES_MAX as u32, &unread), self.idle_timeout);
        let protocol = Conversation::new(self, agent.clone());
        let link = Connection { stream, inbox, protocol, patience, agent, shutdown };
        if let Err(error) = link.run().await {
            tracing::debug!("http connection lost: {error}");
        }
    }
}

impl Service for Check {
    fn call(self: Arc<Self>, accepted: Accepted) -> BoxFuture<'static, ()> {
        let Accepted { stream, earlier, agent, shutdown, .. } = accepted;
        let unread = match earlier {
            Some(TransferState::Http(unread)) => unread,
            _ => Vec::new(),
        };
        Box::pin(self.serve(stream, unread, agent, shutdown))
    }
}

/// One connection's state: the answers to be written, and the held answer.
///
/// Answers come in the order of the requests, so the requests after a held request wait in the buffer.
#[derive(Debug)]
struct Conversation {
    check: Arc<Check>,
    agent: Arc<Agent>,
    query: FirstQuery,
    /// A buffer for the parts of a query that nginx may repeat.
    question: Vec<u8>,
    out: Vec<u8>,
    /// Boxed, because most connections never hold an answer, and each connection is moved when it begins.
    held: Option<Box<HeldDecision>>,
    /// The time of the last request or the last held answer; at first, the start of the connection.
    quiet_since: Timestamp,
    date: Date,
    rng: Rng,
    /// How many bytes of an unfinished head have already been searched for the head's end.
    seen: usize,
    /// Whether no more requests are answered.
    is_over: bool,
    /// Whether the last request was read completely, including its body.
    is_whole: bool,
    /// Whether the next answer is the last one.
    is_ending: bool,
}

/// A decision whose answer waits for the end of its delay.
#[derive(Debug)]
struct HeldDecision {
    decision: Decision,
    asked: AnswerForm,
    quota: Option<Quota>,
    fingerprint: Option<Fingerprint>,
    /// The end of the delay. With a turn, the answer is due at the turn, but no later than this moment.
    due: Timestamp,
    /// The turn of the request, if it may still move, and the bell that rings when it does.
    turn: Option<(Arc<Turn>, Arc<Bell>)>,
    _place: HoldPlace,
}

impl HeldDecision {
    /// The moment at which the answer is due; `None` if the request is refused.
    fn due(&self) -> Option<Timestamp> {
        self.turn.as_ref().map_or(Some(self.due), |(turn, _)| Some(turn.due()?.min(self.due)))
    }
}

/// The facts that determine the form of an answer.
#[derive(Clone, Copy, Debug)]
struct AnswerForm {
    options: CheckOptions,
    version: Version,
    keeps_alive: bool,
}

impl Protocol for Conversation {
    const HAS_GOODBYE: bool = false;

    fn read(&mut self, bytes: &mut [u8], now: Timestamp) -> (usize, Next) {
        self.date.advance(now);
        let (mut used, mut room) = (0, HeaderSlots::default());
        let next = loop {
            if self.is_over {
                let is_all_read = self.is_whole && used == bytes.len();
                break if is_all_read { Next::Done } else { Next::Close(None) };
            }
            if self.held.is_some() {
                break Next::Wait;
            }
            if self.out.len() > OUT_BYTES_MAX {
                break Next::Write;
            }
            let empty = empty_lines(&bytes[used..]);
            (used, self.seen) = (used + empty, self.seen.saturating_sub(empty));
            let unread = &mut bytes[used..];
            let length = unread.len();
            if !self.may_be_whole(unread) {
                self.seen = length;
                break Next::Wait;
            }
            match HttpHead::cut(unread, &mut room) {
                Ok(Some((head, rest))) => {
                    let body = head.framing.skip(rest);
                    // Bytes after an incomplete body cannot be separated from it.
                    used += length - rest.len() + body.unwrap_or(rest.len());
                    self.quiet_since = now;
                    self.is_whole = body.is_some();
                    let keeps_alive = head.keeps_alive && body.is_some() && !self.is_ending;
                    self.respond(&head, keeps_alive, now);
                }
                Ok(None) => {
                    self.seen = length;
                    break Next::Wait;
                }
                Err(refusal) => {
                    self.is_whole = false;
                    self.refuse(refusal, now);
                }
            }
            self.seen = 0;
        };
        (used, next)
    }

    fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    fn due(&self) -> Option<Timestamp> {
        self.held.as_ref().map(|held| held.due().unwrap_or_default())
    }

    fn bell(&self) -> Option<Arc<Bell>> {
        self.held.as_ref()?.turn.as_ref().map(|(_, bell)| bell.clone())
    }

    /// Does nothing, because `due` asks the turn each time.
    fn moved(&mut self) {}

    fn release(&mut self, now: Timestamp) {
        self.date.advance(now);
        self.quiet_since = now;
        let Some(held) = self.held.take() else { return };
        let due = held.due();
        let HeldDecision { mut decision, asked, quota, fingerprint, .. } = *held;
        match due {
            Some(_) => self.agent.passes(&decision, now),
            None => decision.verdict = self.agent.has_no_slot(),
        }
        let reply = Reply::to(&decision);
        self.remember(fingerprint, &reply, now, now);
        self.report(&reply, asked, quota);
    }

    fn waits_since(&self) -> Option<Timestamp> {
        self.held.is_none().then_some(self.quiet_since)
    }

    fn time_out(&mut self, _now: Timestamp) -> Next {
        Next::Drop
    }

    fn state(&mut self, unread: &[u8]) -> Option<TransferState> {
        self.is_quiet().then(|| TransferState::Http(unread.to_vec()))
    }

    /// The next answer is the last one, even if it is held. The process that takes over must know this answer, too,
    /// because after an internal redirect, nginx queries that process.
    fn begin_end(&mut self, now: Timestamp) -> usize {
        self.is_ending = true;
        if let Some(held) = &mut self.held {
            held.asked.keeps_alive = false;
            let due = held.due().unwrap_or(now);
            let (fingerprint, reply) = (held.fingerprint, Reply::to(&held.decision));
            self.remember(fingerprint, &reply, due, now);
        }
        usize::from(self.is_quiet())
    }

    fn say_goodbye(&mut self) {}
}

impl Conversation {
    fn new(check: Arc<Check>, agent: Arc<Agent>) -> Conversation {
        let now = agent.clock.now();
        Conversation {
            quiet_since: now,
            check,
            agent,
            query: FirstQuery::default(),
            question: Vec::with_capacity(QUERY_BYTES),
            out: Vec::with_capacity(QUERY_BYTES),
            held: None,
            date: Date::at(now),
            rng: Rng::new(),
            seen: 0,
            is_over: false,
            is_whole: false,
            is_ending: false,
        }
    }

    /// Whether no answer is in progress.
    fn is_quiet(&self) -> bool {
        self.held.is_none() && self.out.is_empty()
    }

    /// Whether a head may be complete. A head that arrives byte by byte is not parsed again for each byte.
    fn may_be_whole(&self, unread: &[u8]) -> bool {
        if self.seen == 0 || unread.len() >= HEAD_BYTES_MAX {
            return !unread.is_empty();
        }
        let fresh = &unread[self.seen.saturating_sub("\n\r".len())..];
        memchr::memchr_iter(b'\n', fresh).any(|end| {
            let next = &fresh[end + 1..];
            next.starts_with(b"\n") || next.starts_with(b"\r\n")
        })
    }

    fn respond(&mut self, head: &HttpHead<'_>, keeps_alive: bool, now: Timestamp) {
        let asked = |options| AnswerForm { options, version: head.version, keeps_alive };
        match head.path {
            CHECK => match self.query.options(head.query) {
                Ok(options) => self.check(head, asked(options), now),
                Err(error) => self.refuse_query(&error, head, keeps_alive, now),
            },
            // The proxy has appended its client's target, so the query string is the client's and is ignored.
            path if path.strip_prefix(CHECK).is_some_and(|rest| rest.starts_with(b"/")) => {
                self.check(head, asked(CheckOptions::appended(path)), now);
            }
            b"/done" => {
                let is_ended =
                    self.agent.end(nginx::ticket(head).unwrap_or_default(), nginx::ending(head), now);
                let status = if is_ended { StatusCode::NO_CONTENT } else { StatusCode::BAD_REQUEST };
                self.begin(status, head.version, keeps_alive).end();
            }
            _ => {
                let answer = self.begin(StatusCode::NOT_FOUND, head.version, keeps_alive);
                answer.header(nginx::VERSION, env!("CARGO_PKG_VERSION")).end();
            }
        }
    }

    /// Answers `/check`, after the delay if the proxy wants the answer held.
    ///
    /// An answer is remembered only when it is final, because a hold may be refused, or its client may disconnect.
    fn check(&mut self, head: &HttpHead<'_>, asked: AnswerForm, now: Timestamp) {
        let fingerprint = nginx::repeatable(head, asked.options)
            .map(|lines| self.agent.dedup.fingerprint(lines, &mut self.question));
        let known = fingerprint.and_then(|fingerprint| self.agent.dedup.recall(fingerprint, now));
        // With `hold`, a remembered delay belongs to an answer that the previous process still holds. nginx does not
        // repeat a query before it gets the answer, so this query is not a repeat.
        let is_due = |reply: &Reply| !(asked.options.hold && matches!(reply.verdict, Verdict::Delay(_)));
        if let Some(reply) = known.filter(is_due) {
            let policy = self.agent.throttle.policy();
            let quota = quota(&policy, reply.slo, reply.remaining, asked.options);
            return self.report(&reply, asked, quota);
        }
        let (mut decision, quota) = self.decide(head, asked.options, now);
        if let (Verdict::Delay(wait), true) = (decision.verdict, asked.options.hold) {
            match self.agent.place(now) {
                Ok(place) => {
                    let turn = self.agent.turn(&decision).map(|turn| (turn, Arc::<Bell>::default()));
                    let wait = if turn.is_some() { asked.options.max_delay } else { wait };
                    let due = now + self.agent.holds.bounded(wait);
                    turn.iter().for_each(|(turn, bell)| bell.listen_to(turn));
                    let held = HeldDecision { decision, asked, quota, fingerprint, due, turn, _place: place };
                    self.held = Some(Box::new(held));
                    return;
                }
                Err(verdict) => {
                    match verdict {
                        Verdict::Deny { .. } => self.agent.take_back(&decision),
                        _ => self.agent.passes(&decision, now),
                    }
                    decision.verdict = verdict;
                }
            }
        }
        let reply = Reply::to(&decision);
        self.remember(fingerprint, &reply, now + reply.verdict.wait(), now);
        self.report(&reply, asked, quota);
    }

    /// Decides a request, and returns its quota if the proxy requested it, both under one policy.
    fn decide(
        &mut self,
        head: &HttpHead<'_>,
        options: CheckOptions,
        now: Timestamp,
    ) -> (Decision, Option<Quota>) {
        let Conversation { agent, check, rng, .. } = self;
        let policy = agent.throttle.policy();
        let refusal = |verdict| options.refusal(verdict);
        let decision = match check_fields::client(head, options, &check.trusted) {
            None => {
                agent.decide(&policy, || check_fields::fields(head, options), options.hold, refusal, rng, now)
            }
            Some(source) => {
                let fields = || check_fields::fields_of(head, options, source);
                agent.decide(&policy, fields, options.hold, refusal, rng, now)
            }
        };
        (decision, quota(&policy, decision.slo, decision.remaining, options))
    }

    /// Remembers a reply whose delay ends at `due`.
    fn remember(&self, fingerprint: Option<Fingerprint>, reply: &Reply, due: Timestamp, now: Timestamp) {
        if fingerprint.is_some_and(|fingerprint| !self.agent.dedup.remember(fingerprint, reply, due, now)) {
            self.agent.metrics.plain.request_ids_forgotten.inc();
        }
    }

    fn report(&mut self, reply: &Reply, asked: AnswerForm, quota: Option<Quota>) {
        let (secret, AnswerForm { options, version, keeps_alive }) = (self.agent.secret, asked);
        nginx::answer(reply, options, secret, quota, |status| self.begin(status, version, keeps_alive));
    }

    /// Answers an invalid query string. The mistake is the operator's, so it is also logged.
    fn refuse_query(&mut self, error: &QueryError, head: &HttpHead<'_>, keeps_alive: bool, now: Timestamp) {
        if let Some(suppressed) = self.check.query_line.allow(now) {
            tracing::error!(
                suppressed,
                "a proxy queried /check with an invalid query string, and got 400: {error}"
            );
        }
        let answer = self.begin(StatusCode::BAD_REQUEST, head.version, keeps_alive);
        answer.end_with(&format!("{error}\n"), head.method == b"HEAD");
    }

    /// Answers with an error and ends the conversation, because the start of the next request cannot be found.
    fn refuse(&mut self, refusal: Refusal, now: Timestamp) {
        match refusal {
            // A wrong port is the operator's mistake.
            Refusal::Foreign(_) => {
                self.check.foreign_line.warn(now, || format!("http connection refused: {refusal}"));
            }
            _ => tracing::debug!("http connection refused: {refusal}"),
        }
        let status = if refusal == Refusal::TooLarge {
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE
        } else {
            StatusCode::BAD_REQUEST
        };
        self.begin(status, Version::HTTP_11, false).end();
    }

    /// Begins an answer. An answer that does not keep the connection alive is the last one.
    fn begin(&mut self, status: StatusCode, version: Version, keeps_alive: bool) -> HttpAnswer<'_> {
        self.is_over |= !keeps_alive;
        HttpAnswer::begin(&mut self.out, version, status, &self.date, keeps_alive)
    }
}

/// The length of the empty lines before a request, which are ignored (RFC 9112, section 2.2).
fn empty_lines(bytes: &[u8]) -> usize {
    let mut length = 0;
    loop {
        length += match &bytes[length..] {
            [b'\n', ..] => 1,
            [b'\r', b'\n', ..] => 2,
            _ => return length,
        };
    }
}

/// If the client disconnects, its held request is taken back.
impl Drop for Conversation {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            self.agent.metrics.plain.holds_abandoned.inc();
            self.agent.take_back(&held.decision);
        }
    }
}

fn quota(policy: &Policy, slo: SloId, remaining: u32, options: CheckOptions) -> Option<Quota> {
    if options.ratelimit { policy.quota(slo, remaining) } else { None }
}

/// The maximum length of a query string that a connection remembers. All options together are shorter.
const QUERY_BYTES_MAX: usize = 128;

/// The first query string of a connection, and its meaning. A proxy always sends the same string, so it is parsed once.
#[derive(Debug, Default)]
struct FirstQuery(Option<(Option<Box<[u8]>>, CheckOptions)>);

impl FirstQuery {
    fn options(&mut self, query: Option<&[u8]>) -> Result<CheckOptions, QueryError> {
        if let Some((first, options)) = &self.0
            && first.as_deref() == query
        {
            return Ok(*options);
        }
        let options = CheckOptions::of(query.map(String::from_utf8_lossy).as_deref())?;
        // Only the first query string is kept. Any other query string is parsed each time.
        if self.0.is_none() && query.is_none_or(|query| query.len() <= QUERY_BYTES_MAX) {
            self.0 = Some((query.map(Into::into), options));
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_lines_before_a_request_mean_nothing() {
        for (bytes, length) in
            [(&b""[..], 0), (b"GET", 0), (b"\r", 0), (b"\rGET", 0), (b"\r\nGET", 2), (b"\n\n\r\n\r", 4)]
        {
            assert_eq!(empty_lines(bytes), length, "{bytes:?}");
        }
    }

    #[test]
    fn every_query_of_a_connection_means_what_it_says() {
        let long = format!("max_delay={}6s", "0".repeat(QUERY_BYTES_MAX));
        let queries =
            [Some("hold=off"), None, Some("deny=429"), Some("hold=off"), Some(""), Some(&long), Some("x=1")];
        for first in queries {
            let mut connection = FirstQuery::default();
            for query in [first].into_iter().chain(queries) {
                let reported = connection.options(query.map(str::as_bytes));
                assert_eq!(reported, CheckOptions::of(query), "{query:?} after {first:?}");
            }
        }
    }
}
