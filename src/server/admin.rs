//! The admin listener: is it alive, is it ready, what has it done.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};

use crate::key::Key;
use crate::server::shutdown::Shutdown;
use crate::server::socket::Stream;
use crate::server::{Agent, http1, page};
use crate::status::Row;

const IDLE_TIMEOUT: Duration = Duration::from_secs(75);

const PLAIN: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const OPENMETRICS: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");

type Answer = Response<Full<Bytes>>;

pub async fn serve(stream: Stream, agent: Arc<Agent>, shutdown: Shutdown) {
    let answer = |request| std::future::ready(answer(&request, &agent, &shutdown));
    http1::serve(stream, IDLE_TIMEOUT, shutdown.clone(), answer).await;
}

fn answer(request: &Request<Incoming>, agent: &Agent, shutdown: &Shutdown) -> Answer {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return plain(StatusCode::METHOD_NOT_ALLOWED, "only GET\n");
    }
    match request.uri().path() {
        "/healthz" => plain(StatusCode::OK, "alive\n"),
        "/readyz" if shutdown.has_begun() => plain(StatusCode::SERVICE_UNAVAILABLE, "ending\n"),
        "/readyz" => plain(StatusCode::OK, "ready\n"),
        "/metrics" => metrics(agent),
        "/" => page::page(),
        "/api/status" => page::status(agent),
        path => match path.strip_prefix("/api/table/") {
            Some(key) => row(key, agent),
            None => plain(
                StatusCode::NOT_FOUND,
                "there are /, /healthz, /readyz, /metrics, /api/status, /api/table/<key>\n",
            ),
        },
    }
}

/// One entry of the table, by the hex of its key.
fn row(key: &str, agent: &Agent) -> Answer {
    let Some(key) = Key::from_hex(key) else {
        return plain(StatusCode::BAD_REQUEST, "a key is sixteen hex digits\n");
    };
    match Row::of(&agent.throttle, key, agent.clock.now()) {
        Some(row) => plain(StatusCode::OK, format!("{row}\n")),
        None => plain(StatusCode::NOT_FOUND, "no entry of this key\n"),
    }
}

/// The table's numbers are read when they are asked for, and not kept up to date on a request's path.
fn metrics(agent: &Agent) -> Answer {
    let usage = agent.throttle.usage();
    agent.metrics.table_entries.set(usage.entries as i64);
    agent.metrics.table_evictions.set(usage.evictions);
    let annexes = agent.throttle.annex_usage();
    agent.metrics.annex_bytes.set(annexes.bytes as i64);
    agent.metrics.law_fallbacks.set(annexes.fallbacks);
    let mut answer = plain(StatusCode::OK, agent.metrics.text());
    answer.headers_mut().insert(CONTENT_TYPE, OPENMETRICS);
    answer
}

fn plain(status: StatusCode, text: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(text.into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, PLAIN);
    answer
}
