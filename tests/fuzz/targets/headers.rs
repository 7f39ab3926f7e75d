//! Any query and headers of a check: its fields are those of the headers, and no answer becomes a field.

use std::time::Duration;

use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use slowlane::base::key::{Key, KeySecret};
use slowlane::base::request::{FIELDS_MAX, Request, Value, is_same_name};
use slowlane::base::slo_id::SloId;
use slowlane::base::ticket::Ticket;
use slowlane::base::time::Timestamp;
use slowlane::base::verdict::{Assurance, Decision, Judged, Verdict};
use slowlane::proxy::nginx::{self, Manner};

use super::input::texts;

const PREFIX: &str = "x-slowlane-";

/// The bytes: a query, then lines with a header each.
pub fn run(bytes: &[u8]) {
    let [query, lines] = texts(bytes);
    let query = String::from_utf8_lossy(query);
    let given = Manner::of(Some(&query));
    let manner = given.clone().unwrap_or_else(|_| Manner::of(None).expect("no query makes sense"));
    let headers = headers(lines);
    let request = nginx::request(&headers, manner);
    expect_fields(&request, &headers, manner);
    expect_answers(manner);

    expect_repeatable(&headers, manner);
    if let Err(error) = given {
        let part = error.to_string();
        assert!(query.split('&').any(|given| part.starts_with(&format!("{given:?}: expected "))), "{part}");
    }
    if let Some(ticket) = nginx::ticket(&headers) {
        assert!(Ticket::open(ticket, KeySecret::KNOWN).is_err(), "{ticket} has no seal");
    }
}

/// The lines that are headers. A header may come several times.
fn headers(lines: &[u8]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in lines.split(|&byte| byte == b'\n') {
        let Some(colon) = line.iter().position(|&byte| byte == b':') else { continue };
        let name = HeaderName::from_bytes(&line[..colon]);
        let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii());
        if let (Ok(name), Ok(value)) = (name, value) {
            headers.append(name, value);
        }
    }
    headers
}

/// Only nginx asks again, and each of its own headers counts.
fn expect_repeatable(headers: &HeaderMap, manner: Manner) {
    let mut question = hyper::Request::get("/check").body(()).expect("the address is valid");
    *question.headers_mut() = headers.clone();
    let parts = nginx::repeatable(&question, manner).map(Iterator::count);
    let id = headers.get("x-request-id").filter(|id| !id.is_empty() && manner.deny == StatusCode::FORBIDDEN);
    let asks = |name: &HeaderName| name.as_str().starts_with(PREFIX) || name == "x-request-id";
    let asking = headers.iter().filter(|(name, _)| asks(name)).count();
    assert_eq!(parts, id.map(|_| 3 + 2 * asking));
}

fn expect_fields(request: &Request<'_>, headers: &HeaderMap, manner: Manner) {
    assert!(request.fields().count() <= FIELDS_MAX);
    for field in request.fields() {
        let Value::Text(value) = field.value else { panic!("{field:?} is no text") };
        let is_own = |name: &HeaderName| {
            name.as_str().strip_prefix(PREFIX).is_some_and(|name| is_same_name(name.as_bytes(), field.name))
        };
        let mut own = headers.iter().filter(|(name, _)| is_own(name)).map(|(_, value)| value.as_bytes());
        assert!(!value.is_empty(), "{field:?} has no value");
        if own.any(|own| own == value) {
            continue;
        }
        assert_eq!(manner.deny, StatusCode::TOO_MANY_REQUESTS, "{field:?} is in no header of ours");
        match field.name {
            b"source" => {
                let last = headers.get_all("x-forwarded-for").iter().next_back().unwrap().as_bytes();
                assert!(last.ends_with(value) && !value.contains(&b','), "{field:?} is not the last address");
            }
            b"website" => assert_eq!(value, headers["x-forwarded-host"].as_bytes()),
            b"method" => assert_eq!(value, headers["x-forwarded-method"].as_bytes()),
            _ => panic!("{field:?} is in no header"),
        }
    }
}

/// Whatever the answer, a proxy may copy its headers into the next check.
fn expect_answers(manner: Manner) {
    let verdicts =
        [Verdict::Pass, Verdict::Delay(Duration::from_secs(7)), Verdict::Deny { retry_after_s: 3 }];
    for verdict in verdicts {
        let refusal = manner.refusal(verdict);
        assert_eq!(refusal.is_some(), verdict.wait() > manner.max_delay);
        let verdict = refusal.unwrap_or(verdict);
        assert_ne!(verdict, Verdict::Deny { retry_after_s: 0 });
        let (slo, key) = (SloId::DEFAULT, Key::from_bits(7));
        let judged = Judged {
            slo,
            key,
            verdict,
            remaining: 1,
            is_dry_run: false,
            counts_end: true,
            assurance: Assurance::NONE,
        };
        let decision = Decision::of(&[judged], 1, Timestamp::from_millis(90_000));
        let response: Response<()> = nginx::response(&decision, manner, KeySecret::KNOWN, None);
        let status = if verdict.is_let_through() { StatusCode::NO_CONTENT } else { manner.deny };
        assert_eq!(response.status(), status);
        let ticket =
            nginx::ticket(response.headers()).map(|text| Ticket::open(text, KeySecret::KNOWN).unwrap());
        assert_eq!(ticket, decision.ticket());
        assert_eq!(nginx::request(response.headers(), manner).fields().count(), 0);
    }
}
