//! The status page and its data.

use std::hash::{BuildHasher, RandomState};

use hyper::body::Bytes;
use hyper::header::HeaderValue;

use crate::observe::status::{PeersUse, Sources};
use crate::server::Agent;

/// The whole page. It loads nothing but data from `/api/`.
const PAGE: &str = include_str!("page.html");

/// The placeholder in the page for the nonce of each answer.
const NONCE: &str = "NONCE";

/// The page, and its content security policy.
pub(super) fn page() -> (String, HeaderValue) {
    let nonce = nonce();
    // The page may connect only to its own server. Only the script and the style with this nonce are allowed. Other
    // pages may not frame it.
    let policy = format!(
        "default-src 'none'; connect-src 'self'; img-src data:; style-src 'nonce-{nonce}'; \
         script-src 'nonce-{nonce}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    let policy = HeaderValue::try_from(policy).expect("these are plain letters");
    (PAGE.replace(NONCE, &nonce), policy)
}

/// A random word. `RandomState` has random keys from the system.
fn nonce() -> String {
    let random = || RandomState::new().hash_one(0);
    format!("{:016x}{:016x}", random(), random())
}

/// A status snapshot as JSON.
pub(super) fn status(agent: &Agent) -> Bytes {
    let sources = Sources {
        throttle: &agent.throttle,
        metrics: &agent.metrics,
        holds_max: agent.holds.limits.holds_max,
        uptime: agent.clock.uptime(),
        now: agent.clock.now(),
        peers: &|| Some(PeersUse::of(&agent.peers.as_ref()?.status(agent.clock.now()))),
    };
    agent.status.json(&sources)
}
