//! The HTTP check for nginx: reads requests from headers, and writes decisions as status and headers.

use std::str;
use std::time::Duration;

use thiserror::Error;

use crate::http::{HttpAnswer, HttpHead, StatusCode};
use crate::proxy::check_fields::{FIELD_PREFIX, FORWARDED_FOR};
use slowlane_core::base::{Amount, AmountError, Ending, KeySecret, Quota, Reply, Verdict, counted, units};

/// The header with nginx's `$request_id`. After an internal redirect, nginx queries again with the same id.
const REQUEST_ID: &str = "x-request-id";

/// The header by which tools recognise slowlane's answer to a path that slowlane does not serve.
pub const VERSION: &str = "x-slowlane-version";

const VERDICT: &str = "x-slowlane-verdict";
const SLO: &str = "x-slowlane-slo";
const DELAY: &str = "x-slowlane-delay";
const REMAINING: &str = "x-slowlane-remaining";
pub(super) const RATELIMIT: &str = "ratelimit";
pub(super) const RATELIMIT_POLICY: &str = "ratelimit-policy";
pub(super) const TICKET: &str = "x-slowlane-ticket";
const COST: &str = "x-slowlane-cost";
const SECONDS: &str = "x-slowlane-seconds";
const BYTES: &str = "x-slowlane-bytes";
pub(super) const RETRY_AFTER: &str = "retry-after";

/// The form of the answer, chosen by the query string or by the path of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckOptions {
    /// The status of a request that may proceed: 204, or 200 with `/check/200/`.
    pub pass: StatusCode,
    /// The status of a refusal: 403, as nginx requires, or 429 with `deny=429`.
    pub deny: StatusCode,
    /// Whether to hold the answer for the delay. With `hold=off`, the answer is sent at once and contains the delay.
    pub hold: bool,
    /// The longest delay, set with `max_delay=6s`. Requests with longer delays are denied, because otherwise the proxy
    /// would time out and let the requests pass.
    pub max_delay: Duration,
    /// Whether to add headers with the client's quota, set with `ratelimit=on`.
    pub ratelimit: bool,
}

/// An invalid query of `/check`. The message says what is expected.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{part:?}: expected {expected}")]
pub struct QueryError {
    part: String,
    expected: &'static str,
}

const KEYS: [&str; 4] = ["deny", "hold", "max_delay", "ratelimit"];

impl Default for CheckOptions {
    /// The options of a check without a query string.
    fn default() -> CheckOptions {
        CheckOptions {
            pass: StatusCode::NO_CONTENT,
            deny: StatusCode::FORBIDDEN,
            hold: true,
            max_delay: Duration::MAX,
            ratelimit: false,
        }
    }
}

impl CheckOptions {
    /// The options for a proxy that appends its client's path to `/check`. Envoy accepts only 200 for a request that
    /// may proceed, and appends the path to `/check/200`.
    pub fn appended(path: &[u8]) -> CheckOptions {
        let takes_200 = path.strip_prefix(CHECK_200).is_some_and(|rest| rest.is_empty() || rest[0] == b'/');
        let pass = if takes_200 { StatusCode::OK } else { StatusCode::NO_CONTENT };
        CheckOptions { pass, ..CheckOptions::default() }
    }

    /// Reads the options from the query string.
    ///
    /// # Errors
    /// An unknown key, a key given twice, or an invalid value: a typo would otherwise silently change nothing.
    pub fn of(query: Option<&str>) -> Result<CheckOptions, QueryError> {
        let mut options = CheckOptions::default();
        let mut given = [false; KEYS.len()];
        for part in query.unwrap_or_default().split('&').filter(|part| !part.is_empty()) {
            let wrong = |expected| QueryError { part: part.to_owned(), expected };
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            let place = KEYS.iter().position(|known| *known == key);
            let place = place.ok_or_else(|| wrong("deny=, hold=, max_delay= or ratelimit="))?;
            if std::mem::replace(&mut given[place], true) {
                return Err(wrong("each key once"));
            }
            options.set(key, value).map_err(wrong)?;
        }
        Ok(options)
    }

    /// Sets the option of a key. The error names the values expected for this key.
    fn set(&mut self, key: &str, value: &str) -> Result<(), &'static str> {
        match (key, value) {
            ("deny", "403") => self.deny = StatusCode::FORBIDDEN,
            ("deny", "429") => self.deny = StatusCode::TOO_MANY_REQUESTS,
            ("deny", _) => return Err("deny=403 or deny=429"),
            ("hold", "on") => self.hold = true,
            ("hold", "off") => self.hold = false,
            ("hold", _) => return Err("hold=on or hold=off"),
            ("ratelimit", "on") => self.ratelimit = true,
            ("ratelimit", "off") => self.ratelimit = false,
            ("ratelimit", _) => return Err("ratelimit=on or ratelimit=off"),
            _ => self.max_delay = units::duration(value).map_err(|_| "max_delay= and a duration, like 6s")?,
        }
        Ok(())
    }

    /// The denial that replaces a delay over `max_delay`; `None` for other verdicts.
    pub fn refusal(&self, verdict: Verdict) -> Option<Verdict> {
        let over = verdict.wait().checked_sub(self.max_delay).filter(|over| !over.is_zero())?;
        let retry_after_s = u32::try_from(over.as_millis().div_ceil(1_000)).unwrap_or(u32::MAX);
        Some(Verdict::Deny { retry_after_s })
    }
}

/// The path of a check, or the beginning of its path if the proxy appends the path of its client's request.
pub const CHECK: &[u8] = b"/check";

pub(super) const CHECK_200: &[u8] = b"/check/200";

/// Everything that the decision depends on, in parts without line breaks, if nginx may repeat this query. `None` if the
/// request has no id from nginx.
///
/// `deny=429` or a longer path means another proxy, whose clients may choose the ids, so ids are ignored.
pub fn repeatable<'a>(
    head: &HttpHead<'a>,
    options: CheckOptions,
) -> Option<impl Iterator<Item = &'a [u8]> + use<'a>> {
    let has_id = head.header(REQUEST_ID).is_some_and(|id| !id.is_empty());
    if !has_id || options.deny != StatusCode::FORBIDDEN || head.path != CHECK {
        return None;
    }
    // Of all headers, a decision depends only on these and, behind trusted proxies, on the list of hops.
    let asks = |name: &[u8]| {
        name.starts_with(FIELD_PREFIX.as_bytes())
            || [REQUEST_ID, FORWARDED_FOR].iter().any(|asks| name == asks.as_bytes())
    };
    let headers = head.headers().filter(move |(name, _)| asks(name)).flat_map(|(name, value)| [name, value]);
    Some([head.method, head.target].into_iter().chain(headers))
}

/// The ticket in a `/done` request, still sealed.
pub fn ticket<'a>(head: &HttpHead<'a>) -> Option<&'a str> {
    str::from_utf8(head.header(TICKET)?).ok()
}

/// The measures in a `/done` request.
///
/// # Errors
/// A measure is not a valid amount.
pub fn ending(head: &HttpHead<'_>) -> Result<Ending, AmountError> {
    let given = |name| head.header(name).filter(|value| !value.is_empty());
    Ok(Ending {
        cost: given(COST).map(Amount::read).transpose()?,
        seconds: given(SECONDS).map(Amount::sum).transpose()?,
        bytes: given(BYTES).map(Amount::read).transpose()?,
    })
}

/// Writes a reply, with headers for `quota` if given. `begin` begins an answer with a status.
///
/// The body is empty, because nginx closes the connection after an answer with a body.
pub fn answer<'o>(
    reply: &Reply,
    options: CheckOptions,
    secret: KeySecret,
    quota: Option<Quota>,
    begin: impl FnOnce(StatusCode) -> HttpAnswer<'o>,
) {
    let slo = reply.slo.number();
    let mut answer = begin(match reply.verdict {
        Verdict::Pass | Verdict::Delay(_) => options.pass,
        Verdict::Deny { .. } => options.deny,
    })
    .text(VERDICT, reply.verdict.name())
    .number(SLO, slo.into());
    if let Some(remaining) = counted(reply.remaining) {
        answer = answer.number(REMAINING, remaining.into());
    }
    if let Some(quota) = quota {
        answer =
            answer.text(RATELIMIT, &limit(reply)).header(RATELIMIT_POLICY, format_args!("\"{slo}\";{quota}"));
    }
    if let Some(ticket) = &reply.ticket {
        answer = answer.header(TICKET, ticket.sealed(secret));
    }
    answer = match reply.verdict {
        Verdict::Delay(_) if !options.hold => answer.number(DELAY, reply.verdict.delay_ms()),
        Verdict::Pass | Verdict::Delay(_) => answer,
        Verdict::Deny { retry_after_s } => answer.number(RETRY_AFTER, retry_after_s.into()),
    };
    answer.end();
}

/// The item of the `RateLimit` header: the remaining requests and, for a denial, the seconds until more are allowed.
pub(crate) fn limit(reply: &Reply) -> String {
    let item = format!("\"{}\";r={}", reply.slo.number(), reply.remaining);
    match reply.verdict {
        Verdict::Deny { retry_after_s } => format!("{item};t={retry_after_s}"),
        Verdict::Pass | Verdict::Delay(_) => item,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::http::{Date, Version};
    use slowlane_core::base::{Assurance, Decision, Ends, Judged, Key, SloId, Ticket, Timestamp};

    pub(in crate::proxy) fn head(target: &str, headers: &[(&str, &str)]) -> HttpHead<'static> {
        let lines: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let bytes = format!("GET {target} HTTP/1.1\r\n{lines}\r\n").into_bytes();
        HttpHead::cut(bytes.leak(), Box::leak(Box::default())).unwrap().unwrap().0
    }

    /// An answer, as a head that can be read.
    fn answered(
        decision: &Decision,
        options: CheckOptions,
        quota: Option<Quota>,
    ) -> (u16, HttpHead<'static>) {
        let (mut out, date, mut status) = (Vec::new(), Date::at(Timestamp::default()), 0);
        answer(&Reply::to(decision), options, KeySecret::KNOWN, quota, |reported| {
            status = reported.as_u16();
            HttpAnswer::begin(&mut out, Version::HTTP_11, reported, &date, true)
        });
        let text = String::from_utf8(out).unwrap();
        let (_, headers) = text.split_once("\r\n").unwrap();
        let bytes = format!("GET / HTTP/1.1\r\n{headers}").into_bytes();
        (status, HttpHead::cut(bytes.leak(), Box::leak(Box::default())).unwrap().unwrap().0)
    }

    fn text(head: &HttpHead<'_>, name: &str) -> Option<String> {
        Some(String::from_utf8(head.header(name)?.to_vec()).unwrap())
    }

    pub(in crate::proxy) fn options(query: Option<&str>) -> CheckOptions {
        CheckOptions::of(query).unwrap()
    }

    #[test]
    fn a_query_that_makes_no_sense_is_refused() {
        let error = |query| CheckOptions::of(Some(query)).unwrap_err().to_string();
        assert_eq!(error("deny=503"), "\"deny=503\": expected deny=403 or deny=429");
        assert_eq!(
            error("hold=off&max_delay=6"),
            "\"max_delay=6\": expected max_delay= and a duration, like 6s"
        );
        assert_eq!(error("maxdelay=6s"), "\"maxdelay=6s\": expected deny=, hold=, max_delay= or ratelimit=");
        for query in
            ["max_delay=abc", "max_delay=", "hold", "hold=", "hold=OFF", "ratelimit=1", "=", "x", "%"]
        {
            assert!(CheckOptions::of(Some(query)).is_err(), "{query:?}");
        }
        assert_eq!(error("hold=off&deny=429&hold=off"), "\"hold=off\": expected each key once");
        assert_eq!(CheckOptions::of(Some("")), CheckOptions::of(None));
    }

    #[test]
    fn a_question_is_repeatable_as_a_whole_and_only_for_nginx() {
        let parts = |uri: &str, fields: &[(&str, &str)]| {
            let (question, asked) = (head(uri, fields), options(uri.split('?').nth(1)));
            Some(repeatable(&question, asked)?.map(<[u8]>::to_vec).collect::<Vec<_>>())
        };
        let (id, website) = (("x-request-id", "1"), ("x-slowlane-website", "a"));
        let one = parts("/check", &[id, website]);
        assert!(one.is_some());
        for (uri, fields) in [
            ("/check?hold=off", &[id, website][..]),
            ("/check", &[id, ("x-slowlane-website", "b")]),
            ("/check", &[id, website, ("x-slowlane-source", "192.0.2.1")]),
            ("/check", &[("x-request-id", "2"), website]),
            ("/check", &[id]),
        ] {
            let other = parts(uri, fields);
            assert!(other.is_some() && other != one, "{uri} {fields:?}");
        }
        assert_eq!(parts("/check?deny=429", &[id, website]), None);
        assert_eq!(parts("/check/cart", &[id, website]), None);
        assert_eq!(parts("/check", &[("x-request-id", ""), website]), None);
    }

    /// The source of a check with these lists of hops, behind 10.0.0.0/8 and 2001:db8:cd::/48.
    #[test]
    fn a_client_may_get_its_quota_and_the_remaining_requests() {
        assert!(options(Some("hold=off&ratelimit=on")).ratelimit);
        assert!(!options(Some("ratelimit=off")).ratelimit);
        let reported = |verdict| {
            let (slo, key) = (SloId::new(3001).unwrap(), Key::from_bits(1));
            let judged = Judged {
                slo,
                key,
                verdict,
                remaining: 4,
                cost: 1,
                is_dry_run: false,
                ends: Ends::Never,
                assurance: Assurance::NONE,
            };
            let decision = Decision::of(&[judged], 1, Timestamp::from_millis(90_000));
            let quota = Some(Quota::Concurrent { requests: 20 });
            let (_, head) = answered(&decision, options(None), quota);
            ["ratelimit", "ratelimit-policy"].map(|name| text(&head, name).unwrap())
        };
        let policy = "\"3001\";q=20;qu=\"concurrent-requests\"";
        assert_eq!(reported(Verdict::Pass), ["\"3001\";r=4", policy]);
        assert_eq!(reported(Verdict::Deny { retry_after_s: 3 }), ["\"3001\";r=4;t=3", policy]);
    }

    #[test]
    fn a_delay_beyond_max_delay_is_a_refusal_with_retry_after() {
        let refusal = |query, ms| options(query).refusal(Verdict::after(Duration::from_millis(ms)));
        let deny = |retry_after_s| Some(Verdict::Deny { retry_after_s });
        assert_eq!(
            [0, 6_000, 6_001, 7_001].map(|ms| refusal(Some("max_delay=6s"), ms)),
            [None, None, deny(1), deny(2)]
        );
        assert_eq!([1, 86_400_000].map(|ms| refusal(Some("max_delay=0s"), ms)), [deny(1), deny(86_400)]);
        assert_eq!(refusal(None, 86_400_000), None);
        assert_eq!(options(Some("max_delay=0s")).refusal(Verdict::Deny { retry_after_s: 3 }), None);
    }

    #[test]
    fn each_manner_has_its_answers() {
        let answer = |verdict, query| {
            let (slo, key) = (SloId::new(3001).unwrap(), Key::from_bits(1));
            let judged = Judged {
                slo,
                key,
                verdict,
                remaining: 4,
                cost: 1,
                is_dry_run: false,
                ends: Ends::InFlight,
                assurance: Assurance::NONE,
            };
            let decision = Decision::of(&[judged], 1, Timestamp::from_millis(90_000));
            let (status, head) = answered(&decision, options(query), None);
            let header = |name| text(&head, name);
            assert_eq!(header("x-slowlane-verdict").unwrap(), verdict.name());
            assert_eq!(header("x-slowlane-slo").unwrap(), "3001");
            assert_eq!(header("x-slowlane-remaining").unwrap(), "4");
            let ticket = ticket(&head).map(|text| Ticket::open(text, KeySecret::KNOWN).unwrap());
            assert_eq!(ticket, decision.ticket());
            (status, header("x-slowlane-delay"), header("retry-after"))
        };
        let delay = Verdict::Delay(Duration::from_millis(250));
        let deny = Verdict::Deny { retry_after_s: 3 };
        assert_eq!(answer(Verdict::Pass, None), (204, None, None));
        assert_eq!(answer(delay, None), (204, None, None));
        assert_eq!(answer(delay, Some("hold=off")), (204, Some("250".into()), None));
        assert_eq!(answer(deny, None), (403, None, Some("3".into())));
        assert_eq!(answer(deny, Some("deny=429&hold=off")), (429, None, Some("3".into())));
        assert_eq!(answer(deny, Some("&deny=403&hold=on&")), (403, None, Some("3".into())));
    }
}
