//! The HTTP check in nginx's words: headers to a request, a decision to a status and headers.

use hyper::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};

use crate::request::{Request, Value};
use crate::verdict::{Decision, Verdict};

/// What follows this in a header's name is the name of a field.
const FIELD_PREFIX: &str = "x-slowlane-";

/// nginx's `$request_id`. Internal redirects ask twice under the same one.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

const VERDICT: HeaderName = HeaderName::from_static("x-slowlane-verdict");
const SLO: HeaderName = HeaderName::from_static("x-slowlane-slo");
const DELAY: HeaderName = HeaderName::from_static("x-slowlane-delay");

/// The header names that answers use are no fields: a proxy that copies an answer's headers into its next
/// question would otherwise invent some.
const ANSWERS: [&str; 3] = ["verdict", "slo", "delay"];

/// How a proxy wants to be answered, as the query of `/check` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Manner {
    /// A refusal is 403, all that nginx takes, or with `deny=429` the real thing.
    pub deny: StatusCode,
    /// The answer is held for the delay, or with `hold=off` only tells it.
    pub hold: bool,
}

impl Manner {
    /// Anything that is not understood in the query is ignored.
    pub fn of(query: Option<&str>) -> Manner {
        let mut manner = Manner { deny: StatusCode::FORBIDDEN, hold: true };
        for pair in query.unwrap_or_default().split('&') {
            match pair {
                "deny=429" => manner.deny = StatusCode::TOO_MANY_REQUESTS,
                "hold=off" => manner.hold = false,
                _ => {}
            }
        }
        manner
    }
}

/// The request that the headers describe: `X-Slowlane-Api-Key: k` is the field `api_key`.
///
/// An empty header is a field that the proxy knew nothing of. Of two headers of one name the first counts. All
/// values are text; the policy knows which of them are addresses.
pub fn request(headers: &HeaderMap) -> Request<'_> {
    let mut request = Request::new();
    for (name, value) in headers {
        let Some(field) = name.as_str().strip_prefix(FIELD_PREFIX) else { continue };
        if ANSWERS.contains(&field) || value.is_empty() {
            continue;
        }
        request.push(field.as_bytes(), Value::Text(value.as_bytes()));
    }
    request
}

/// The id under which nginx asks about one request, however often it asks.
pub fn request_id(headers: &HeaderMap) -> Option<&[u8]> {
    headers.get(REQUEST_ID).map(HeaderValue::as_bytes).filter(|id| !id.is_empty())
}

/// The answer to a decision. Its body is empty: one with a body would cost nginx the connection.
pub fn response<B: Default>(decision: &Decision, manner: Manner) -> Response<B> {
    let mut response = Response::new(B::default());
    *response.status_mut() = match decision.verdict {
        Verdict::Pass | Verdict::Delay(_) => StatusCode::NO_CONTENT,
        Verdict::Deny { .. } => manner.deny,
    };
    let headers = response.headers_mut();
    headers.insert(VERDICT, HeaderValue::from_static(decision.verdict.name()));
    headers.insert(SLO, HeaderValue::from(decision.slo.number()));
    match decision.verdict {
        Verdict::Pass => {}
        Verdict::Delay(_) if manner.hold => {}
        Verdict::Delay(_) => {
            headers.insert(DELAY, HeaderValue::from(decision.verdict.delay_ms()));
        }
        Verdict::Deny { retry_after_s } => {
            headers.insert(RETRY_AFTER, HeaderValue::from(retry_after_s));
        }
    }
    response
}
