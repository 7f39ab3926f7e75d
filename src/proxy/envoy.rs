//! Envoy's gRPC services: reads requests from descriptors or attributes, writes decisions as their responses, and reads
//! the ends of requests from Envoy's access log.

use grpc::accesslog::{CommonProperties, HttpEntry, LogMessage};
use grpc::auth::{Allowed, AuthAnswer, CheckRequest, CheckResponse, Denied, HeaderOption, NumberedStatus};
use std::time::Duration;

use grpc::ratelimit::{
    Code, Descriptor, DescriptorStatus, RateLimit, RateLimitRequest, RateLimitResponse, Unit,
};
use grpc::{GrpcStatus, HeaderValue, ProtoDuration, StatusCode, Struct};
use percent_encoding::{AsciiSet, CONTROLS, PercentEncode, percent_encode};

use crate::http::StatusCode as HttpStatusCode;
use crate::proxy::check_fields::page;
use crate::proxy::nginx::{RATELIMIT, RATELIMIT_POLICY, RETRY_AFTER, TICKET, limit};
use slowlane_core::base::{
    Amount, Assurance, Decision, Ending, Ends, FIELDS_MAX, Field, Judged, Key, KeyHasher, KeySecret, Period,
    Quota, Rate, Reply, SloId, Ticket, Timestamp, UNCOUNTED, Value, Verdict, counted,
};
use slowlane_core::policy::Slo;

/// The header with the delay that Envoy's fault filter applies, in milliseconds. Clients must not send it.
const DELAY: &str = "x-envoy-fault-delay-request";

/// All headers that the fault filter obeys. With the percentage header, a client could switch off its delay.
pub const FAULT_HEADERS: [&str; 7] = [
    DELAY,
    "x-envoy-fault-delay-request-percentage",
    "x-envoy-fault-abort-request",
    "x-envoy-fault-abort-grpc-request",
    "x-envoy-fault-abort-request-percentage",
    "x-envoy-fault-throughput-response",
    "x-envoy-fault-throughput-response-percentage",
];

/// The maximum number of entries in all descriptors of a request. Envoy sends a few, from its own configuration.
const ENTRIES_MAX: usize = 1_000;

/// The entry, or the context extension, that requests the headers `RateLimit` and `RateLimit-Policy`: `ratelimit: on`.
const ASKS_QUOTA: (&[u8], &[u8]) = (b"ratelimit", b"on");

/// The origins of fields that have a different name in Envoy: each field, and the descriptor key or header that holds
/// its value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origins(pub Vec<(String, String)>);

impl Origins {
    /// The field of a descriptor's key.
    fn field<'a>(&'a self, key: &'a [u8]) -> &'a [u8] {
        let own = self.0.iter().find(|(_, origin)| origin.as_bytes() == key);
        match (own, key) {
            (Some((field, _)), _) => field.as_bytes(),
            (None, b"remote_address") => b"source",
            (None, b"host") => b"website",
            (None, key) => key,
        }
    }
}

/// Checks a request of the rate limit service.
///
/// # Errors
/// No descriptor, too many descriptors or entries, a domain or key that is not UTF-8, or hits that are not a `uint32`.
pub fn check(request: &RateLimitRequest) -> Result<(), GrpcStatus> {
    let invalid = |message| Err(GrpcStatus::new(StatusCode::InvalidArgument, message));
    let entries = || request.descriptors.iter().flat_map(|descriptor| &descriptor.entries);
    if request.descriptors.is_empty() {
        return invalid("expected at least one descriptor");
    }
    if entries().count() > ENTRIES_MAX || request.descriptors.len() > ENTRIES_MAX {
        return invalid("expected at most 1000 entries");
    }
    let mut words = entries().map(|entry| &entry.key).chain([&request.domain]);
    if words.any(|word| str::from_utf8(word).is_err()) {
        return invalid("expected UTF-8 in the domain and in the keys");
    }
    if request.descriptors.iter().any(|descriptor| descriptor.is_negative_hits) {
        return invalid("negative hits are not supported");
    }
    let own = request.descriptors.iter().filter_map(|descriptor| descriptor.hits_addend);
    match own.chain([request.hits_addend]).all(|hits| hits <= u32::MAX.into()) {
        true => Ok(()),
        false => invalid("expected hits_addend below 2^32"),
    }
}

/// The fields of one descriptor. If two entries have the same key, the first is used; the `descriptor` field has both.
pub fn descriptor_fields<'a>(
    request: &'a RateLimitRequest,
    descriptor: &'a Descriptor,
    text: &'a str,
    origins: &'a Origins,
) -> impl Iterator<Item = Field<'a>> {
    let domain = Field { name: b"domain", value: Value::Text(&request.domain) };
    // A descriptor without a number of hits takes the request's number, in which 0 means that no number is given.
    let of_request = Some(request.hits_addend).filter(|&hits| hits > 0);
    let cost = descriptor.hits_addend.or(of_request);
    let cost = cost.map(|cost| Field { name: b"cost", value: Value::Number(cost as i64) });
    let whole = Field { name: b"descriptor", value: Value::Text(text.as_bytes()) };
    let named = descriptor.entries.iter().map(|entry| match origins.field(&entry.key) {
        name @ b"path" => Field { name, value: Value::Text(without_query(&entry.value)) },
        name => Field { name, value: Value::Text(&entry.value) },
    });
    cost.into_iter().chain([domain, whole]).chain(named).filter(has_value).take(FIELDS_MAX)
}

/// All entries of a descriptor in order: `message_type=marketing,to_number=2061234567`. Escaping keeps each value
/// whole, whatever a client puts in it.
pub fn descriptor_text(descriptor: &Descriptor) -> String {
    let mut text = String::new();
    for entry in &descriptor.entries {
        let comma = if text.is_empty() { "" } else { "," };
        text += &format!("{comma}{}={}", escaped(&entry.key), escaped(&entry.value));
    }
    text
}

/// A key or a value of a descriptor, percent-encoded for the descriptor's text.
pub fn escaped(bytes: &[u8]) -> PercentEncode<'_> {
    percent_encode(bytes, IN_DESCRIPTOR)
}

/// The characters to escape, which would otherwise end a value or the key of a map.
const IN_DESCRIPTOR: &AsciiSet = &CONTROLS.add(b' ').add(b',').add(b'=').add(b'%').add(b'#');

/// The SLO for a limit in the descriptor itself, which applies whatever the policy says.
pub fn own_slo(descriptor: &Descriptor) -> Option<Slo> {
    let &RateLimit { requests_per_unit, unit, .. } = descriptor.limit.as_ref()?;
    let known = UNITS.iter().find(|(.., known)| *known as i32 == unit);
    let period = known.map_or(Period::Second, |&(_, period, _)| period);
    let line = format!("burst=0 rate={requests_per_unit}/{period} law=fixed-window reset=calendar");
    let closed = || Slo::parse(SloId::DEFAULT, "burst=0 rate=0/s");
    let slo = if requests_per_unit == 0 { closed() } else { Slo::parse(SloId::DEFAULT, &line) };
    // A limit that is too high for slowlane to count has no effect.
    slo.or_else(|_| Slo::parse(SloId::DEFAULT, UNLIMITED_LINE)).ok()
}

const UNLIMITED_LINE: &str = "rate=unlimited";

/// The key of a descriptor that brings its own limit.
pub fn own_key(request: &RateLimitRequest, text: &str, slo: &Slo, secret: KeySecret) -> Key {
    let mut hasher = KeyHasher::new(secret, 0, slo.law.state_tag());
    hasher.part(b"descriptor").part(&request.domain).part(text.as_bytes()).finish()
}

/// The units of the rate limit service, whose months have 30 days.
pub(crate) const UNITS: [(&str, Period, Unit); 7] = [
    ("second", Period::Second, Unit::Second),
    ("minute", Period::Minute, Unit::Minute),
    ("hour", Period::Hour, Unit::Hour),
    ("day", Period::Day, Unit::Day),
    ("week", Period::Seconds(7 * 86_400), Unit::Week),
    ("month", Period::Seconds(30 * 86_400), Unit::Month),
    ("year", Period::Seconds(365 * 86_400), Unit::Year),
];

/// The fields in the attributes of a request: those with an [origin](Origins), the context extensions, and `source`,
/// `website`, `method`, `path` and `page`. If two fields have the same name, the first is used.
pub fn attribute_fields<'a>(
    request: &'a CheckRequest,
    origins: &'a Origins,
) -> impl Iterator<Item = Field<'a>> {
    let attributes = request.attributes.as_ref();
    let http = attributes.and_then(|attributes| attributes.request.as_ref()?.http.as_ref());
    let headers = origins.0.iter().filter_map(move |(field, header)| {
        Some((field.as_bytes(), http?.header(header.as_bytes())?.as_ref()))
    });
    let extensions = attributes.into_iter().flat_map(|attributes| &attributes.context_extensions);
    let extensions = extensions.map(|(name, value)| (name.as_bytes(), value.as_slice()));
    let address = attributes.and_then(|attributes| {
        let socket = attributes.source.as_ref()?.address.as_ref()?.socket_address.as_ref()?;
        Some((b"source".as_slice(), socket.address.as_ref()))
    });
    let of_http = http.into_iter().flat_map(|http| {
        let path = without_query(&http.path);
        let (host, method) = (http.host.as_ref(), http.method.as_ref());
        [(b"website".as_slice(), host), (b"method", method), (b"path", path), (b"page", page(path))]
    });
    let all = headers.chain(extensions).chain(address).chain(of_http);
    all.map(|(name, value)| Field { name, value: Value::Text(value) }).filter(has_value).take(FIELDS_MAX)
}

fn without_query(path: &[u8]) -> &[u8] {
    path.split(|&byte| byte == b'?').next().unwrap_or_default()
}

fn has_value(field: &Field<'_>) -> bool {
    field.value != Value::Text(b"")
}

/// Whether the request asks for its client's quota.
pub fn asks_quota<'a>(mut fields: impl Iterator<Item = Field<'a>>) -> bool {
    let (name, on) = ASKS_QUOTA;
    fields.any(|field| field.name == name && field.value == Value::Text(on))
}

/// The decision on one descriptor, and the facts about its SLO that the status of the descriptor reports.
#[derive(Debug)]
pub struct DescriptorRuling {
    pub decision: Decision,
    pub is_quota: bool,
    /// Whether the policy names an SLO without a limit for the descriptor. False for a descriptor without a rule.
    pub is_unlimited: bool,
    /// `None` if the SLO counts work, or has no limit.
    pub rate: Option<Rate>,
    pub name: String,
    /// The time until the whole quota is available again.
    pub resets_in: Option<Duration>,
}

impl DescriptorRuling {
    /// The ruling on a descriptor whose SLO another descriptor's SLO replaces. The descriptor passes, uncounted.
    pub fn replaced(at: Timestamp) -> DescriptorRuling {
        let unasked = Judged {
            slo: SloId::DEFAULT,
            key: Key::from_bits(0),
            verdict: Verdict::Pass,
            remaining: UNCOUNTED,
            cost: 0,
            is_dry_run: false,
            ends: Ends::Never,
            assurance: Assurance::NONE,
        };
        let decision = Decision::of_one(unasked, 0, at);
        let name = String::new();
        DescriptorRuling { decision, is_quota: false, is_unlimited: false, rate: None, name, resets_in: None }
    }

    fn is_over(&self) -> bool {
        !self.decision.is_let_through()
    }

    fn status(&self) -> DescriptorStatus {
        let reset_s = match self.decision.verdict {
            Verdict::Deny { retry_after_s } => Some(retry_after_s.into()),
            _ => None,
        };
        let left = counted(self.decision.remaining);
        let whole_s = self.resets_in.map(|left| left.as_millis().div_ceil(1_000) as i64);
        DescriptorStatus {
            code: if self.is_over() { Code::OverLimit } else { Code::Ok }.into(),
            current_limit: self.rate.and_then(|rate| current_limit(rate, &self.name)),
            limit_remaining: if self.is_unlimited { u32::MAX } else { left.unwrap_or_default() },
            duration_until_reset: reset_s.or(whole_s).map(|seconds| ProtoDuration { seconds, nanos: 0 }),
        }
    }
}

/// The ruling that applies to the request: the strictest one. A quota that is used up refuses a request only if all
/// quotas of the request are used up.
pub fn deciding(limited: &[DescriptorRuling]) -> Option<&DescriptorRuling> {
    let are_used_up = limited.iter().filter(|one| one.is_quota).all(DescriptorRuling::is_over);
    let counts = |one: &&DescriptorRuling| !one.is_quota || are_used_up || !one.is_over();
    limited.iter().filter(counts).max_by_key(|one| one.decision.verdict)
}

/// The response of the rate limit service. `quota` is the deciding descriptor's quota, if the request asks for quotas.
pub fn rate_limited(
    limited: &[DescriptorRuling],
    decision: &Decision,
    quota: Option<Quota>,
    secret: KeySecret,
) -> RateLimitResponse {
    let code = if decision.is_let_through() { Code::Ok } else { Code::OverLimit };
    let tickets = limited.iter().filter_map(|one| one.decision.ticket());
    let ticket = Ticket::new(decision.at, tickets.flat_map(|ticket| ticket.counted));
    let ticket = Some(ticket).filter(|ticket| decision.is_let_through() && !ticket.counted.is_empty());
    RateLimitResponse {
        overall_code: code.into(),
        statuses: limited.iter().map(DescriptorRuling::status).collect(),
        response_headers_to_add: response_headers(decision, quota).collect(),
        request_headers_to_add: delay(decision).into_iter().collect(),
        dynamic_metadata: Some(metadata(decision, ticket.as_ref(), secret)),
    }
}

/// The response of the authorization service.
pub fn authorized(decision: &Decision, quota: Option<Quota>, secret: KeySecret) -> CheckResponse {
    let response = response_headers(decision, quota).map(HeaderOption::set).collect();
    let (code, answer) = match decision.verdict {
        Verdict::Deny { .. } => {
            let status = NumberedStatus { code: HttpStatusCode::TOO_MANY_REQUESTS.as_u16().into() };
            (RESOURCE_EXHAUSTED, AuthAnswer::Denied(Denied { status: Some(status), headers: response }))
        }
        Verdict::Pass | Verdict::Delay(_) => {
            let delay = delay(decision);
            // Envoy sets headers before it removes others, so it must not be told to remove the delay's header.
            let forged = FAULT_HEADERS.iter().filter(|name| delay.is_none() || **name != DELAY);
            let allowed = Allowed {
                headers_to_remove: forged.map(|&name| name.into()).collect(),
                headers: delay.into_iter().map(HeaderOption::set).collect(),
                response_headers_to_add: response,
            };
            (0, AuthAnswer::Ok(allowed))
        }
    };
    CheckResponse {
        status: Some(NumberedStatus { code }),
        answer: Some(answer),
        dynamic_metadata: Some(metadata(decision, decision.ticket().as_ref(), secret)),
    }
}

/// The number of this status in `google.rpc.Code`.
const RESOURCE_EXHAUSTED: i32 = StatusCode::ResourceExhausted.number() as i32;

/// The header that makes the fault filter hold the request, if the request has to wait.
fn delay(decision: &Decision) -> Option<HeaderValue> {
    let delay_ms = decision.verdict.delay_ms();
    (delay_ms > 0).then(|| HeaderValue::new(DELAY, delay_ms.to_string()))
}

/// The headers for the client.
fn response_headers(decision: &Decision, quota: Option<Quota>) -> impl Iterator<Item = HeaderValue> {
    let retry_after = match decision.verdict {
        Verdict::Deny { retry_after_s } => Some(HeaderValue::new(RETRY_AFTER, retry_after_s.to_string())),
        Verdict::Pass | Verdict::Delay(_) => None,
    };
    let policy = quota.map(|quota| format!("\"{}\";{quota}", decision.slo.number()));
    let policy = policy.map(|policy| HeaderValue::new(RATELIMIT_POLICY, policy));
    let limit = quota.map(|_| HeaderValue::new(RATELIMIT, limit(&Reply::to(decision))));
    retry_after.into_iter().chain(limit).chain(policy)
}

/// The facts of a decision, for the access log and for later filters.
fn metadata(decision: &Decision, ticket: Option<&Ticket>, secret: KeySecret) -> Struct {
    let facts = Struct::default()
        .text("verdict", decision.verdict.name())
        .number("slo", decision.slo.number().into())
        .number("delay", decision.verdict.delay_ms() as f64)
        .text("key", decision.key.to_string());
    match ticket {
        Some(ticket) => facts.text("ticket", ticket.sealed(secret).to_string()),
        None => facts,
    }
}

/// The ticket and the measures of each request whose end the message reports.
///
/// The ticket is in the dynamic metadata, where no client can write: `ticket` of a gRPC answer, or the header of an
/// HTTP answer. If there is none, the ticket in a request header is used, if the operator logs that header.
pub fn ends(message: &LogMessage) -> impl Iterator<Item = (&str, Ending)> {
    message.http.iter().flat_map(|http| &http.entries).filter_map(|entry| {
        let common = entry.common.as_ref().filter(|common| common.is_end())?;
        Some((ticket(entry, common)?, ending(common)))
    })
}

fn ticket<'a>(entry: &'a HttpEntry, common: &'a CommonProperties) -> Option<&'a str> {
    let header = || {
        let headers = &entry.request.as_ref()?.headers;
        headers.iter().find(|header| header.key == TICKET).map(|header| &header.value[..])
    };
    let ticket = common.fact([b"ticket", TICKET.as_bytes()]).or_else(header)?;
    str::from_utf8(ticket).ok()
}

/// The measures of a request. The application's time ends with its last byte, or with the request if it sent no bytes.
fn ending(common: &CommonProperties) -> Ending {
    let micros = |elapsed: Option<ProtoDuration>| elapsed.map(ProtoDuration::micros);
    let end = micros(common.from_upstream).or(micros(common.duration)).unwrap_or(0);
    let seconds = micros(common.to_upstream).map_or(0, |begin| end.saturating_sub(begin));
    Ending {
        cost: None,
        seconds: Some(Amount::from_micros(seconds)),
        bytes: Some(Amount::from_micros(common.bytes_sent.saturating_mul(Amount::UNIT))),
    }
}

/// The rate as a limit of the rate limit service. `None` if the service cannot express it.
fn current_limit(rate: Rate, name: &str) -> Option<RateLimit> {
    let period = rate.named_period();
    let named = UNITS.iter().find(|(_, known, _)| *known == period).map(|&(.., unit)| unit);
    let unit = named.or((period == Period::Month).then_some(Unit::Month))?;
    let requests_per_unit = u32::try_from(rate.requests_in(rate.period())).ok()?;
    Some(RateLimit { requests_per_unit, unit: unit.into(), name: name.to_owned() })
}
