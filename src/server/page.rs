//! The status page, and the numbers that it shows.

use std::hash::{BuildHasher, RandomState};

use http_body_util::Full;
use hyper::Response;
use hyper::body::Bytes;
use hyper::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};

use crate::server::Agent;
use crate::status::Sources;

/// The whole page: it needs nothing else but `/api/`.
const PAGE: &str = include_str!("page.html");

/// What stands in the page for a word that nobody can know before it is served.
const NONCE: &str = "NONCE";

pub(super) fn page() -> Response<Full<Bytes>> {
    let nonce = nonce();
    let mut answer = answer("text/html; charset=utf-8", PAGE.replace(NONCE, &nonce).into());
    // It may ask its own server for numbers, and nobody else for anything. Its one script and its one style stand in
    // it; what else came into it would be neither. No other page may frame it.
    let csp = format!(
        "default-src 'none'; connect-src 'self'; img-src data:; style-src 'nonce-{nonce}'; \
         script-src 'nonce-{nonce}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    let csp = HeaderValue::try_from(csp).expect("these are plain letters");
    answer.headers_mut().insert(CONTENT_SECURITY_POLICY, csp);
    answer
}

/// The standard library draws its keys from the system.
fn nonce() -> String {
    let random = || RandomState::new().hash_one(0);
    format!("{:016x}{:016x}", random(), random())
}

/// A snapshot as JSON.
pub(super) fn status(agent: &Agent) -> Response<Full<Bytes>> {
    let sources = Sources {
        throttle: &agent.throttle,
        metrics: &agent.metrics,
        holds_max: agent.holds.holds_max(),
        uptime: agent.clock.uptime(),
        now: agent.clock.now(),
    };
    answer("application/json", agent.status.json(&sources))
}

fn answer(kind: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::new(body));
    let headers = [
        (CONTENT_TYPE, kind),
        (CONTENT_SECURITY_POLICY, "default-src 'none'"),
        (CACHE_CONTROL, "no-store"),
        (REFERRER_POLICY, "no-referrer"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
    ];
    for (name, value) in headers {
        answer.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    answer
}
