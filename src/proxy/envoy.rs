//! Envoy's gRPC services: reads requests from descriptors or attributes, writes decisions as their responses, and reads
//! the ends of requests from its access log.

use grpc::accesslog::{CommonProperties, Elapsed, HttpEntry, LogMessage};
use grpc::auth::{
    Allowed, AuthAnswer, CheckRequest, CheckResponse, Denied, HeaderOption, HttpStatus, RpcStatus,
};
use grpc::ratelimit::{
    Code, DescriptorStatus, RateLimit, RateLimitRequest, RateLimitResponse, Seconds, Unit,
};
use grpc::{GrpcStatus, HeaderValue, StatusCode, Struct};

use crate::http::StatusCode as HttpStatusCode;
use crate::proxy::nginx::{TICKET, limit};
use slowlane_core::base::{
    Amount, Decision, Ending, FIELDS_MAX, Field, KeySecret, Period, Quota, Rate, Reply, Value, Verdict,
    counted,
};

/// The header that the fault filter of Envoy obeys, in milliseconds. Clients must not send it.
const DELAY: &str = "x-envoy-fault-delay-request";

/// All headers that the fault filter obeys. With the percentage, a client could switch its delay off.
pub const FAULT_HEADERS: [&str; 7] = [
    DELAY,
    "x-envoy-fault-delay-request-percentage",
    "x-envoy-fault-abort-request",
    "x-envoy-fault-abort-grpc-request",
    "x-envoy-fault-abort-request-percentage",
    "x-envoy-fault-throughput-response",
    "x-envoy-fault-throughput-response-percentage",
];

const RETRY_AFTER: &str = "retry-after";
const RATELIMIT: &str = "ratelimit";
const RATELIMIT_POLICY: &str = "ratelimit-policy";

/// The maximum number of entries in all descriptors of a request. Envoy sends a few, from its own configuration.
const ENTRIES_MAX: usize = 1_000;

/// The entry, or the context extension, that asks for the headers `RateLimit` and `RateLimit-Policy`: `ratelimit: on`.
const ASKS_QUOTA: (&[u8], &[u8]) = (b"ratelimit", b"on");

/// Where fields come from that have another name in Envoy: the field, and the key of a descriptor or the header.
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

/// Checks a request of the rate limit service, and returns its cost if it names one.
///
/// # Errors
/// There is no descriptor, too many entries, a key that is not UTF-8, or a number of hits that is not a `uint32`.
pub fn checked(request: &RateLimitRequest) -> Result<Option<i64>, GrpcStatus> {
    let invalid = |message| Err(GrpcStatus::new(StatusCode::InvalidArgument, message));
    let entries = || request.descriptors.iter().flat_map(|descriptor| &descriptor.entries);
    if request.descriptors.is_empty() {
        return invalid("expected at least one descriptor");
    }
    if entries().count() > ENTRIES_MAX {
        return invalid("expected at most 1000 entries");
    }
    let mut words = entries().map(|entry| &entry.key).chain([&request.domain]);
    if words.any(|word| str::from_utf8(word).is_err()) {
        return invalid("expected UTF-8 in the domain and in the keys");
    }
    if request.descriptors.iter().any(|descriptor| descriptor.is_negative_hits) {
        return invalid("negative hits are not supported");
    }
    // That of a descriptor replaces that of the request, and may be 0. The largest counts.
    let of_request = request.hits_addend.max(1);
    let own = request.descriptors.iter().map(|descriptor| descriptor.hits_addend.map(|hits| hits.value));
    let is_given = request.hits_addend > 0 || own.clone().any(|hits| hits.is_some());
    match own.map(|hits| hits.unwrap_or(of_request)).max() {
        Some(hits) if hits > u32::MAX.into() => invalid("expected hits_addend below 2^32"),
        hits => Ok(hits.filter(|_| is_given).map(|hits| hits as i64)),
    }
}

/// The fields in the entries of all descriptors. Of two with one name, the first counts.
pub fn descriptor_fields<'a>(
    request: &'a RateLimitRequest,
    cost: Option<i64>,
    origins: &'a Origins,
) -> impl Iterator<Item = Field<'a>> {
    let domain = Field { name: b"domain", value: Value::Text(&request.domain) };
    let cost = cost.map(|cost| Field { name: b"cost", value: Value::Number(cost) });
    let entries = request.descriptors.iter().flat_map(|descriptor| &descriptor.entries);
    let named = entries.map(|entry| match origins.field(&entry.key) {
        name @ b"path" => Field { name, value: Value::Text(without_query(&entry.value)) },
        name => Field { name, value: Value::Text(&entry.value) },
    });
    cost.into_iter().chain([domain]).chain(named).filter(has_value).take(FIELDS_MAX)
}

/// The fields in the attributes of a request: those with an [origin](Origins), the context extensions, and `source`,
/// `website`, `method` and `path`. Of two with one name, the first counts.
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
        [(b"website".as_slice(), http.host.as_ref()), (b"method", http.method.as_ref()), (b"path", path)]
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

/// Whether the request asks for the quota of its client.
pub fn asks_quota<'a>(mut fields: impl Iterator<Item = Field<'a>>) -> bool {
    let (name, on) = ASKS_QUOTA;
    fields.any(|field| field.name == name && field.value == Value::Text(on))
}

/// The response of the rate limit service to a request with so many descriptors. `rate` is that of the deciding SLO.
pub fn rate_limited(
    decision: &Decision,
    rate: Option<Rate>,
    quota: Option<Quota>,
    descriptors: usize,
    secret: KeySecret,
) -> RateLimitResponse {
    let (code, retry_after_s) = match decision.verdict {
        Verdict::Deny { retry_after_s } => (Code::OverLimit, Some(retry_after_s)),
        Verdict::Pass | Verdict::Delay(_) => (Code::Ok, None),
    };
    let status = DescriptorStatus {
        code: code.into(),
        current_limit: rate.and_then(current_limit),
        limit_remaining: counted(decision.remaining).unwrap_or_default(),
        duration_until_reset: retry_after_s.map(|seconds| Seconds { seconds: seconds.into() }),
    };
    // Envoy writes each limit that it gets into its headers: one is enough.
    let others = vec![DescriptorStatus { current_limit: None, ..status }; descriptors.saturating_sub(1)];
    RateLimitResponse {
        overall_code: code.into(),
        statuses: [status].into_iter().chain(others).collect(),
        response_headers_to_add: response_headers(decision, quota).collect(),
        request_headers_to_add: delay(decision).into_iter().collect(),
        dynamic_metadata: Some(metadata(decision, secret)),
    }
}

/// The response of the authorization service.
pub fn authorized(decision: &Decision, quota: Option<Quota>, secret: KeySecret) -> CheckResponse {
    let response = response_headers(decision, quota).map(HeaderOption::set).collect();
    let (code, answer) = match decision.verdict {
        Verdict::Deny { .. } => {
            let status = HttpStatus { code: HttpStatusCode::TOO_MANY_REQUESTS.as_u16().into() };
            (RESOURCE_EXHAUSTED, AuthAnswer::Denied(Denied { status: Some(status), headers: response }))
        }
        Verdict::Pass | Verdict::Delay(_) => {
            let delay = delay(decision);
            // Envoy removes headers after it has set the others.
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
        status: Some(RpcStatus { code }),
        answer: Some(answer),
        dynamic_metadata: Some(metadata(decision, secret)),
    }
}

/// `google.rpc.Code`.
const RESOURCE_EXHAUSTED: i32 = StatusCode::ResourceExhausted.number() as i32;

/// The header that makes the fault filter hold the request.
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

/// The facts of a decision, for the access log and for further filters.
fn metadata(decision: &Decision, secret: KeySecret) -> Struct {
    let facts = Struct::default()
        .text("verdict", decision.verdict.name())
        .number("slo", decision.slo.number().into())
        .number("delay", decision.verdict.delay_ms() as f64)
        .text("key", decision.key.to_string());
    match decision.ticket() {
        Some(ticket) => facts.text("ticket", ticket.sealed(secret).to_string()),
        None => facts,
    }
}

/// The ticket and the measures of each request whose end is in the message.
///
/// The ticket is in the dynamic metadata, where no client can write: `ticket` of a gRPC answer, or the header of an HTTP
/// answer. Without it, a request header that the operator has logged counts.
pub fn ends(message: &LogMessage) -> impl Iterator<Item = (&str, Ending)> {
    message.http.iter().flat_map(|http| &http.entries).filter_map(|entry| {
        let common = entry.common.as_ref().filter(|common| common.is_end())?;
        Some((ticket(entry, common)?, ending(common)))
    })
}

fn ticket<'a>(entry: &'a HttpEntry, common: &'a CommonProperties) -> Option<&'a str> {
    let header = || {
        let headers = &entry.request.as_ref()?.headers;
        headers.iter().find(|header| header.key == TICKET).map(|header| &header.value)
    };
    let ticket = common.fact([b"ticket", TICKET.as_bytes()]).or_else(header)?;
    str::from_utf8(ticket).ok()
}

/// The application's time ends with its last byte, or with the request if there is none.
fn ending(common: &CommonProperties) -> Ending {
    let micros = |elapsed: Option<Elapsed>| elapsed.map(Elapsed::micros);
    let end = micros(common.from_upstream).or(micros(common.duration)).unwrap_or(0);
    let seconds = micros(common.to_upstream).map_or(0, |begin| end.saturating_sub(begin));
    Ending {
        cost: None,
        seconds: Some(Amount::from_micros(seconds)),
        bytes: Some(Amount::from_micros(common.bytes_sent.saturating_mul(Amount::UNIT))),
    }
}

/// The rate in the words of the rate limit service. None if its numbers do not fit.
fn current_limit(rate: Rate) -> Option<RateLimit> {
    let unit = match rate.named_period() {
        Period::Second => Unit::Second,
        Period::Minute => Unit::Minute,
        Period::Hour => Unit::Hour,
        Period::Day => Unit::Day,
        Period::Month => Unit::Month,
    };
    let requests_per_unit = u32::try_from(rate.requests_in(rate.period())).ok()?;
    Some(RateLimit { requests_per_unit, unit: unit.into() })
}
