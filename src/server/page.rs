//! The status page, and the numbers that it shows.

use std::hash::{BuildHasher, RandomState};

use hyper::body::Bytes;
use hyper::header::HeaderValue;

use crate::observe::status::Sources;
use crate::server::agent::Agent;

/// The whole page: it needs nothing else but `/api/`.
const PAGE: &str = include_str!("page.html");

/// The placeholder in the page for a random word, new for each answer.
const NONCE: &str = "NONCE";

/// The page, and the content security policy that it is to be sent with.
pub(super) fn page() -> (String, HeaderValue) {
    let nonce = nonce();
    // The page may ask its own server for numbers, and no other server. Only the script and the style with this nonce
    // run. No other page may frame it.
    let policy = format!(
        "default-src 'none'; connect-src 'self'; img-src data:; style-src 'nonce-{nonce}'; \
         script-src 'nonce-{nonce}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    let policy = HeaderValue::try_from(policy).expect("these are plain letters");
    (PAGE.replace(NONCE, &nonce), policy)
}

/// The standard library draws its keys from the system.
fn nonce() -> String {
    let random = || RandomState::new().hash_one(0);
    format!("{:016x}{:016x}", random(), random())
}

/// A snapshot as JSON.
pub(super) fn status(agent: &Agent) -> Bytes {
    let sources = Sources {
        throttle: &agent.throttle,
        metrics: &agent.metrics,
        holds_max: agent.holds.holds_max(),
        uptime: agent.clock.uptime(),
        now: agent.clock.now(),
    };
    agent.status.json(&sources)
}
