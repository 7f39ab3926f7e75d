//! The admin listener: health, readiness, metrics, status and the Runtime API over HTTP.

use std::convert::Infallible;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use futures_util::future::BoxFuture;
use futures_util::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::header::{
    ACCEPT, AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderName,
    HeaderValue, ORIGIN, REFERRER_POLICY, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Serialize;
use tokio::sync::{mpsc, oneshot};
use tokio::task::yield_now;
use tokio::time::timeout;

use crate::observe::clock::WALL;
use crate::observe::status::{
    DAY, Lookback, PeersUse, ProtectedLine, Quotas, RankedBy, Sources, StatusRow, Why,
};
use crate::server::runtime_api::{PIECE_BYTES, RuntimeAnswer as Reported, answer, commands};
use crate::server::{
    Accepted, Agent, Hosts, Service, Shutdown, Signal, Stream, admin_socket, blocks, drain, limited, scrape,
};
use slowlane_core::base::{Field, Key, Query, Request as Asked, Timestamp, Token, Value, units};
use slowlane_core::throttle::Throttle;

/// The longest wait for the head of a request.
const IDLE_TIMEOUT: Duration = Duration::from_secs(75);

/// The approximate limit on the head of a request, because every connection may keep a head in memory.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// The longest wait for the body of a request, which is a short command.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// The header in which a browser reports where a request comes from; `none` means that the user, not a page, caused it.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

const PLAIN: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const OPENMETRICS: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");

type AdminAnswer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// The service of the admin listener, shared by all its connections.
#[derive(Debug)]
pub(crate) struct Admin {
    /// With a token, requests without the token get only the page, health and readiness.
    pub(crate) token: Option<Token>,
    /// Without a token, requests over TCP must address one of these hosts.
    pub(crate) hosts: Hosts,
    pub(crate) upgrades: UpgradeRequests,
}

/// A request for an upgrade. The sender takes the answer: a message, or the reason for a failure.
pub(crate) type UpgradeRequest = oneshot::Sender<Result<String, String>>;

pub(crate) type UpgradeRequests = mpsc::Sender<UpgradeRequest>;

impl Admin {
    /// Serves a connection until the client closes it, does not complete a request or read an answer in time, or the
    /// shutdown begins. An error ends only this connection.
    async fn serve(self: Arc<Self>, stream: Stream, agent: Arc<Agent>, mut shutdown: Shutdown) {
        // Browsers cannot open Unix sockets, so requests over them need no check of the host.
        let wants_host = self.token.is_none() && !matches!(stream, Stream::Unix(_));
        let (agent, signal, admin) = (&agent, &shutdown.signal.clone(), &self);
        let answer = |request| async move {
            Ok::<_, Infallible>(guarded(match wants_host && !admin.hosts.allow(&request) {
                true => plain(StatusCode::MISDIRECTED_REQUEST, MISDIRECTED),
                false => admin.answer(request, agent, signal).await,
            }))
        };
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(IDLE_TIMEOUT).max_buf_size(HEAD_BYTES_MAX);
        let mut stream = limited(stream, admin_socket::IDLE_TIMEOUT);
        let mut connection = http.serve_connection(TokioIo::new(&mut stream), service_fn(answer));
        let served = tokio::select! {
            // Polled first, so that the connection has done everything it can before the shutdown is checked.
            biased;
            served = &mut connection => served,
            () = signal.begun() => {
                std::pin::Pin::new(&mut connection).graceful_shutdown();
                shutdown.decides_no_more();
                connection.await
            }
        };
        let Err(error) = served else { return };
        tracing::debug!("http connection closed: {error}");
        if error.is_parse() {
            signal.unless_begun(drain(stream)).await;
        }
    }

    async fn answer(&self, request: Request<Incoming>, agent: &Arc<Agent>, signal: &Signal) -> AdminAnswer {
        let (method, path) = (request.method(), request.uri().path());
        let is_read = matches!(*method, Method::GET | Method::HEAD);
        // The page holds no data. Its requests to `/api/` need the token.
        if !matches!(path, "/" | "/healthz" | "/readyz") && !self.is_open_to(&request) {
            return unauthorized();
        }
        // Of all web pages, only the status page may change anything, because it blocks and unblocks clients.
        let is_for_page = matches!(path, "/api/block" | "/api/unblock") && is_from_own_page(&request);
        if *method == Method::POST && is_from_page(&request) && !is_for_page {
            return plain(StatusCode::FORBIDDEN, FROM_A_PAGE);
        }
        match (path, method == Method::POST) {
            ("/api/runtime", true) => return command(request, agent).await,
            ("/api/clear", true) => return clear(&request, agent),
            ("/api/block", true) => return block(request, agent).await,
            ("/api/unblock", true) => return unblock(&request, agent),
            ("/api/upgrade", true) => return self.upgrade().await,
            ("/api/block" | "/api/unblock" | "/api/clear" | "/api/upgrade", false) => {
                return plain(StatusCode::METHOD_NOT_ALLOWED, "use POST\n");
            }
            ("/api/runtime", false) => return plain(StatusCode::METHOD_NOT_ALLOWED, POST_A_LINE),
            _ if !is_read => return plain(StatusCode::METHOD_NOT_ALLOWED, "use GET\n"),
            _ => {}
        }
        match path {
            "/healthz" => plain(StatusCode::OK, "alive\n"),
            "/readyz" if signal.has_ended() => plain(StatusCode::SERVICE_UNAVAILABLE, "ending\n"),
            "/readyz" => plain(StatusCode::OK, "ready\n"),
            "/metrics" => with_type(OPENMETRICS, scrape::metrics(agent)),
            "/" => page(),
            "/api/status" => status(agent),
            "/api/history" => history(&request, agent),
            "/api/why" => why(&request, agent),
            "/api/quota" => quota(&request, agent),
            "/api/cluster" => cluster(&request, agent),
            "/api/peers" => peers(&request, agent),
            "/api/groups" => groups(&request, agent),
            "/api/protect" => protect(&request, agent),
            "/api/blocks" => shown(wants_json(&request), agent.as_ref(), blocks::json, blocks::text),
            path => match path.strip_prefix("/api/table/") {
                Some(key) => row(key, agent),
                None => plain(StatusCode::NOT_FOUND, NOT_FOUND),
            },
        }
    }

    /// Answers `/api/upgrade` when a new process has taken over or failed to do so.
    async fn upgrade(&self) -> AdminAnswer {
        let (ask, reported) = oneshot::channel();
        // If the request cannot be queued, `ask` is dropped, and `reported` ends with an error.
        let _ = self.upgrades.try_send(ask);
        let reason = match reported.await {
            Ok(Ok(news)) => return plain(StatusCode::OK, format!("{news}\n")),
            Ok(Err(failure)) => format!("{failure}; the old process keeps serving\n"),
            Err(_) => "an upgrade is under way, or this process cannot be upgraded\n".into(),
        };
        plain(StatusCode::CONFLICT, reason)
    }

    fn is_open_to(&self, request: &Request<Incoming>) -> bool {
        let Some(token) = &self.token else { return true };
        request.headers().get(AUTHORIZATION).is_some_and(|given| token.is_in(given.as_bytes()))
    }
}

impl Service for Admin {
    fn call(self: Arc<Self>, Accepted { stream, agent, shutdown, .. }: Accepted) -> BoxFuture<'static, ()> {
        Box::pin(self.serve(stream, agent, shutdown))
    }
}

const MISDIRECTED: &str =
    "the Host header names an unknown host; use 127.0.0.1 or localhost, or add the name to [admin] hosts\n";

const POST_A_LINE: &str = "use POST, with one line of the Runtime API as the body\n";

const NOT_FOUND: &str = "not found; the paths are /, /healthz, /readyz, /metrics, /api/status, /api/history?since=<time>, /api/why?<field>=<value>, /api/quota?<field>=<value>, /api/cluster, /api/peers, /api/groups?over=<time>&by=<measure>&field=<name>, /api/table/<key>, /api/runtime, /api/clear?<field>=<value>, /api/blocks, /api/protect, /api/block?<field>=<value>, /api/unblock?<field>=<value>, /api/upgrade\n";

/// The whole status page, which itself loads only data, from `/api/`.
const PAGE: &str = include_str!("page.html");

/// The placeholder in the page for the nonce of each answer.
const NONCE: &str = "NONCE";

/// Answers `/` with the page.
fn page() -> AdminAnswer {
    // `RandomState` has random keys from the system.
    let random = || RandomState::new().hash_one(0);
    let nonce = format!("{:016x}{:016x}", random(), random());
    // The page may connect only to its own server. Only the script and the style with this nonce are allowed. Other
    // pages may not frame it.
    let policy = format!(
        "default-src 'none'; connect-src 'self'; img-src data:; style-src 'nonce-{nonce}'; \
         script-src 'nonce-{nonce}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    let policy = HeaderValue::try_from(policy).expect("these are plain letters");
    let mut answer = with_type(HTML, PAGE.replace(NONCE, &nonce));
    answer.headers_mut().insert(CONTENT_SECURITY_POLICY, policy);
    answer
}

/// Answers `/api/status`: a status snapshot as JSON.
fn status(agent: &Agent) -> AdminAnswer {
    let sources = Sources {
        throttle: &agent.throttle,
        metrics: &agent.metrics,
        holds_max: agent.holds.limits.holds_max,
        uptime: agent.clock.uptime(),
        now: agent.clock.now(),
        peers: &|| Some(PeersUse::of(&agent.peers.as_ref()?.status(agent.clock.now()))),
    };
    with_type(JSON, agent.status.json(&sources))
}

/// Answers `/api/protect` with the protected applications, as JSON or as text.
fn protect(request: &Request<Incoming>, agent: &Agent) -> AdminAnswer {
    shown(wants_json(request), &ProtectedLine::all(&agent.throttle), json, |lines| {
        let line = |of: &ProtectedLine| format!("slo {} key {}: {}\n", of.slo, of.key, of.state());
        match lines.is_empty() {
            true => "no application with law=protect has received a request recently\n".into(),
            false => lines.iter().map(line).collect(),
        }
    })
}

/// Answers `/api/history` with the keys throttled within the time span of the query.
fn history(request: &Request<Incoming>, agent: &Agent) -> AdminAnswer {
    let span = match request.uri().query().unwrap_or_default().strip_prefix("since=").map(units::duration) {
        Some(Ok(span)) if (Duration::from_secs(1)..=DAY).contains(&span) => span,
        _ => return refused("expected a time from 1s to 24h, like /api/history?since=10m\n"),
    };
    let lines = agent.status.history(agent.clock.now(), span, &agent.throttle.policy());
    with_type(JSON, json(&lines))
}

/// Answers `/api/why` with the verdict that a request would get, and the reasons for it.
fn why(request: &Request<Incoming>, agent: &Agent) -> AdminAnswer {
    let query = Query::read(request.uri().query().unwrap_or_default());
    let now = agent.clock.now();
    let mut why = Why::of(&agent.throttle, &query.request(), now);
    if let Some(peers) = &agent.peers {
        why.add_peers(|key| peers.counts(key, now));
    }
    shown(wants_json(request), &why, Why::json, ToString::to_string)
}

/// Answers `/api/quota` with how much of its quotas a client has used.
fn quota(request: &Request<Incoming>, agent: &Agent) -> AdminAnswer {
    let query = Query::read(request.uri().query().unwrap_or_default());
    let quotas = Quotas::of(&agent.throttle, &query.request(), agent.clock.now(), WALL);
    shown(wants_json(request), &quotas, Quotas::json, ToString::to_string)
}

/// Answers `/api/groups` with the groups that have the most requests, work or delay.
fn groups(request: &Request<Incoming>, agent: &Agent) -> AdminAnswer {
    let query = Query::read(request.uri().query().unwrap_or_default());
    let (mut span, mut by, mut field) = (Some(Lookback::TenMinutes), Ok(RankedBy::Requests), None);
    for Field { name, value } in query.request().fields() {
        let value = if let Value::Text(text) = value { str::from_utf8(text).unwrap_or_default() } else { "" };
        match *name {
            b"over" => span = units::duration(value).ok().and_then(Lookback::of),
            b"by" => by = RankedBy::from_str(value, false),
            b"field" => field = Some(value.to_owned()),
            _ => return refused(GROUPS_OF),
        }
    }
    let (Some(span), Ok(by)) = (span, by) else { return refused(GROUPS_OF) };
    with_type(JSON, json(&agent.status.groups.first(span, by, field.as_deref())))
}

const GROUPS_OF: &str =
    "expected over=1m, 10m or 1h, by=requests, work or delay, and field=<name>, all optional\n";

/// Answers `/api/cluster` with the nodes of the cluster as this node sees them, as JSON or as text.
fn cluster(request: &Request<Incoming>, agent: &Agent) -> AdminAnswer {
    let Some(line) = agent.status.cluster.lock().clone() else {
        return plain(StatusCode::CONFLICT, "this slowlane is in no cluster: it has no [cluster] store\n");
    };
    let wants_json = wants_json(request) || request.uri().query() == Some("json");
    shown(wants_json, &line, json, ToString::to_string)
}

/// Answers `/api/peers` with the proxies that enforce limits locally, as JSON or as text.
fn peers(request: &Request<Incoming>, agent: &Agent) -> AdminAnswer {
    let Some(peers) = &agent.peers else {
        return plain(StatusCode::CONFLICT, "this slowlane has no peers: add [peers] listen to its config\n");
    };
    let status = peers.status(agent.clock.now());
    shown(wants_json(request), &status, json, ToString::to_string)
}

/// Answers with `what`, as JSON or as text.
fn shown<T>(wants_json: bool, what: &T, json: fn(&T) -> String, text: fn(&T) -> String) -> AdminAnswer {
    match wants_json {
        true => with_type(JSON, json(what)),
        false => plain(StatusCode::OK, text(what)),
    }
}

fn json(what: &impl Serialize) -> String {
    serde_json::to_string(what).expect("it is plain data")
}

fn wants_json(request: &Request<Incoming>) -> bool {
    let accept = request.headers().get(ACCEPT).map_or(&b""[..], HeaderValue::as_bytes);
    accept.windows(JSON.len()).any(|part| part == JSON.as_bytes())
}

/// Answers `/api/block`. The duration of the block is in the body.
async fn block(request: Request<Incoming>, agent: &Agent) -> AdminAnswer {
    let (wants_json, query) = (wants_json(&request), request.uri().query().unwrap_or_default().to_owned());
    let body = body(request).await.unwrap_or_default();
    changed(wants_json, blocks::block(agent, &query, &body).await)
}

/// Answers `/api/unblock`.
fn unblock(request: &Request<Incoming>, agent: &Agent) -> AdminAnswer {
    changed(wants_json(request), blocks::unblock(agent, request.uri().query().unwrap_or_default()))
}

fn changed(wants_json: bool, result: Result<blocks::Change, String>) -> AdminAnswer {
    let shown = result.map(|change| shown(wants_json, &change, json, ToString::to_string));
    shown.unwrap_or_else(refused)
}

fn refused(reason: impl Into<Bytes>) -> AdminAnswer {
    plain(StatusCode::BAD_REQUEST, reason)
}

/// Answers `/api/clear` by forgetting the keys of a request, so that each key has its full burst again.
fn clear(request: &Request<Incoming>, agent: &Agent) -> AdminAnswer {
    let query = Query::read(request.uri().query().unwrap_or_default());
    let cleared = cleared(&agent.throttle, &query.request(), agent.clock.now());
    cleared.map_or_else(refused, |keys| plain(StatusCode::OK, keys))
}

/// Forgets the keys of a request, and reports each. A field that the policy does not use is refused, because if its
/// name is misspelt, the keys would not be the intended ones.
fn cleared(throttle: &Throttle, request: &Asked<'_>, now: Timestamp) -> Result<String, String> {
    if request.fields().next().is_none() {
        return Err("expected the fields of a request, like website=shop.example\n".into());
    }
    if let Some(unused) = Why::of(throttle, request, now).unused.first() {
        return Err(format!("the policy uses no field {unused}: nothing was cleared\n"));
    }
    let policy = throttle.policy();
    let mut reported = String::new();
    for case in &policy.explain(request).cases.list {
        let had_row = throttle.table().get(case.key, now).is_some();
        throttle.forget(case.key, |_| true);
        // The entry of the key's assured rate is forgotten, too.
        case.assured.into_iter().for_each(|key| throttle.forget(key, |_| true));
        let result = if had_row { "cleared" } else { "had no entry" };
        reported += &format!("key {} of SLO {}: {result}\n", case.key, case.slo.id);
    }
    Ok(reported)
}

/// The refusal of a request that a web page has sent.
const FROM_A_PAGE: &str = "requests from web pages are refused\n";

/// Whether a web page has sent the request. Browsers mark such requests with these headers.
fn is_from_page(request: &Request<Incoming>) -> bool {
    let fetch_site = request.headers().get(SEC_FETCH_SITE);
    request.headers().contains_key(ORIGIN) || fetch_site.is_some_and(|site| site != "none")
}

/// Whether the web page is this listener's own. The Origin proves it, because browsers do not let a page choose it.
fn is_from_own_page(request: &Request<Incoming>) -> bool {
    let text = |name: &HeaderName| request.headers().get(name).and_then(|value| value.to_str().ok());
    let (Some(origin), Some(host)) = (text(&ORIGIN), text(&HOST)) else { return false };
    let page = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    page == Some(host) && text(&SEC_FETCH_SITE).is_none_or(|site| site == "same-origin")
}

/// The body of a request; `None` if it is too long or does not arrive in time.
async fn body(request: Request<Incoming>) -> Option<Bytes> {
    let body = Limited::new(request.into_body(), admin_socket::LINE_BYTES_MAX).collect();
    Some(timeout(BODY_TIMEOUT, body).await.ok()?.ok()?.to_bytes())
}

/// Answers `/api/runtime`: runs one line of the Runtime API. Unlike on the admin socket, no empty line ends the answer.
async fn command(request: Request<Incoming>, agent: &Arc<Agent>) -> AdminAnswer {
    let Some(line) = body(request).await else {
        return refused("expected one line of the Runtime API, like show table\n");
    };
    let reported = match &commands(line.trim_ascii_end())[..] {
        [words] => answer(words, &agent.throttle, agent.clock.now()),
        _ => Reported::refusal("expected one command at a time\n".into()),
    };
    let status = if reported.is_refusal { StatusCode::BAD_REQUEST } else { StatusCode::OK };
    plain(status, "").map(|_| pieces(reported, agent.clone()))
}

/// An answer of the Runtime API as a body, which produces each piece after the previous piece was written.
fn pieces(reported: Reported, agent: Arc<Agent>) -> UnsyncBoxBody<Bytes, Infallible> {
    let next = |unfinished: Option<(Reported, Arc<Agent>)>| async {
        let (mut reported, agent) = unfinished?;
        // Yield before each piece, so that other clients are served in the meantime.
        yield_now().await;
        let mut piece = String::with_capacity(PIECE_BYTES);
        let goes_on = reported.more(&agent.throttle, agent.clock.now(), &mut piece);
        Some((Ok(Frame::data(piece.into())), goes_on.then_some((reported, agent))))
    };
    StreamBody::new(stream::unfold(Some((reported, agent)), next)).boxed_unsync()
}

/// Answers `/api/table/<key>`: one entry, by its key in hex.
fn row(key: &str, agent: &Agent) -> AdminAnswer {
    let Some(key) = Key::from_hex(key) else {
        return refused("expected a key of sixteen hex digits\n");
    };
    match StatusRow::of(&agent.throttle, key, agent.clock.now()) {
        Some(row) => plain(StatusCode::OK, format!("{row}\n")),
        None => plain(StatusCode::NOT_FOUND, "the table has no entry for this key\n"),
    }
}

/// Adds headers that protect browsers. Answers contain names that clients chose, so a browser must not guess the type
/// of an answer, cache it, or show it in a frame.
fn guarded(mut answer: AdminAnswer) -> AdminAnswer {
    let headers = [
        (CONTENT_SECURITY_POLICY, "default-src 'none'"),
        (CACHE_CONTROL, "no-store"),
        (REFERRER_POLICY, "no-referrer"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
    ];
    for (name, value) in headers {
        // The page sets its own content security policy.
        answer.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    answer
}

fn unauthorized() -> AdminAnswer {
    let mut answer = plain(StatusCode::UNAUTHORIZED, "send the token: Authorization: Bearer <token>\n");
    answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    answer
}

fn plain(status: StatusCode, text: impl Into<Bytes>) -> AdminAnswer {
    let mut answer = with_type(PLAIN, text);
    *answer.status_mut() = status;
    answer
}

fn with_type(kind: HeaderValue, text: impl Into<Bytes>) -> AdminAnswer {
    let mut answer = Response::new(Full::new(text.into()).boxed_unsync());
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    answer
}
