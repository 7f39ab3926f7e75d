//! Envoy's rate limit and authorization services over gRPC: decisions, and calls that are no good.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use bytes::Bytes;
use grpc::auth::{Address, Attributes, AuthAnswer, CheckRequest, CheckResponse, HeaderMap, HttpRequest};
use grpc::auth::{Peer, Request as OfRequest, SocketAddress};
use grpc::health::{HealthCheckRequest, HealthCheckResponse};
use grpc::ratelimit::{Code, Descriptor, RateLimit, RateLimitRequest, RateLimitResponse, Unit};
use grpc::{Entry, HeaderValue, MESSAGE_BYTES_MAX, Method, StatusCode, framed};

use crate::support::chromium::Chromium;
use crate::support::grpc::Client;
use crate::support::slowlane::{Slowlane, signal};
use crate::support::tls::Authority;
use crate::support::{PATIENCE, eventually, own_address};

const POLICY: &[(&str, &str)] = &[
    (
        "slo.map",
        "0 rate=unlimited\n2001 burst=2 rate=1/m law=token-bucket\n2002 burst=1 rate=10/s max_delay=60s\n\
         3001 burst=3 rate=1/h law=token-bucket\n1001 burst=1 rate=1/h law=token-bucket\n",
    ),
    ("website.map", "shop.example 2001\nslow.example 2002\n"),
    ("source.map", "192.0.2.0/24 3001\n"),
    ("owner.map", "ann 1001\n"),
];

/// A slowlane that serves gRPC at this address.
fn slowlane(at: SocketAddr, more: &str) -> Slowlane {
    Slowlane::with_config(POLICY, &format!("[grpc]\nlisten = [\"{at}\"]\n{more}"))
}

fn entry(key: &str, value: &[u8]) -> Entry {
    Entry { key: key.to_owned().into(), value: value.to_vec().into() }
}

fn descriptor(entries: &[(&str, &[u8])]) -> Descriptor {
    let entries = entries.iter().map(|&(key, value)| entry(key, value)).collect();
    Descriptor { entries, ..Descriptor::default() }
}

/// A request with one descriptor.
fn limited(entries: &[(&str, &[u8])]) -> RateLimitRequest {
    of_several(vec![descriptor(entries)])
}

fn of_several(descriptors: Vec<Descriptor>) -> RateLimitRequest {
    RateLimitRequest { domain: Bytes::from_static(b"www"), descriptors, hits_addend: 0 }
}

fn ask(client: &mut Client, entries: &[(&str, &[u8])]) -> RateLimitResponse {
    client.call(Method::ShouldRateLimit, &limited(entries)).unwrap()
}

fn code(client: &mut Client, entries: &[(&str, &[u8])]) -> Code {
    ask(client, entries).overall_code.try_into().unwrap()
}

fn of(headers: &[HeaderValue], name: &str) -> Option<String> {
    let found = headers.iter().find(|header| header.key == name)?;
    Some(String::from_utf8(found.value.to_vec()).unwrap())
}

#[test]
fn its_connections_are_counted_by_the_status() {
    let at = own_address();
    let slowlane = slowlane(at, "");
    let mut clients = [(); 3].map(|()| Client::connect(at));
    clients.iter_mut().for_each(|client| _ = ask(client, &[("host", b"other.example")]));
    let status = eventually("the status has them", || {
        let status = crate::cli::ran(&["status", "--admin", &slowlane.admin.to_string()]).out;
        status.contains("SPOP 0 HTTP 0 gRPC 3").then_some(status)
    });
    assert!(status.contains("      3  gRPC (Envoy)\n"), "{status}");
    let json = crate::support::client::get(slowlane.admin, "/api/status", &[]).body;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["connections"]["grpc"], 3);
    let mut page = Chromium::open(&format!("http://{}/", slowlane.admin), 1200, 900);
    page.shows("#listeners", "gRPC 3");
    page.shows("#connections", "3");
    assert_eq!(page.problems(), [""; 0]);
}

#[test]
fn the_rate_limit_service_passes_delays_and_denies() {
    let at = own_address();
    let slowlane = slowlane(at, "");
    let mut client = Client::connect(at);
    let slow: &[(&str, &[u8])] = &[("remote_address", b"198.51.100.1"), ("host", b"slow.example")];
    let first = ask(&mut client, slow);
    assert_eq!(
        (first.overall_code(), of(&first.request_headers_to_add, "x-envoy-fault-delay-request")),
        (Code::Ok, None)
    );
    let second = ask(&mut client, slow);
    assert_eq!((second.overall_code(), second.statuses.len()), (Code::Ok, 1));
    let delay_ms: f64 =
        of(&second.request_headers_to_add, "x-envoy-fault-delay-request").unwrap().parse().unwrap();
    assert!((1.0..=100.0).contains(&delay_ms), "{delay_ms}");
    let limit = second.statuses[0].current_limit.clone().unwrap();
    assert_eq!((limit.requests_per_unit, limit.unit()), (10, Unit::Second));
    let facts = second.dynamic_metadata.unwrap().fields;
    let fact = |name: &str| {
        let found =
            facts.iter().find(|fact| fact.key == name).and_then(|fact| fact.value.as_ref()?.kind.as_ref());
        format!("{:?}", found.unwrap())
    };
    assert_eq!((fact("verdict"), fact("slo")), ("Text(b\"delay\")".into(), "Number(2002.0)".into()));
    assert_eq!(fact("delay"), format!("Number({delay_ms:?})"));
    assert_eq!(fact("key").len(), "Text(b\"0123456789ABCDEF\")".len());

    let shop: &[(&str, &[u8])] = &[("host", b"shop.example"), ("ratelimit", b"on")];
    let passed = ask(&mut client, shop);
    assert_eq!(passed.statuses[0].limit_remaining, 1);
    assert_eq!(of(&passed.response_headers_to_add, "ratelimit").as_deref(), Some("\"2001\";r=1"));
    assert_eq!(
        of(&passed.response_headers_to_add, "ratelimit-policy").as_deref(),
        Some("\"2001\";q=2;w=120")
    );
    assert_eq!(code(&mut client, shop), Code::Ok);
    let denied = ask(&mut client, shop);
    assert_eq!((denied.overall_code(), denied.statuses[0].code()), (Code::OverLimit, Code::OverLimit));
    let retry_after: i64 = of(&denied.response_headers_to_add, "retry-after").unwrap().parse().unwrap();
    assert!((1..=60).contains(&retry_after), "{retry_after}");
    assert_eq!(denied.statuses[0].duration_until_reset.unwrap().seconds, retry_after);
    assert!(denied.request_headers_to_add.is_empty());
    assert_eq!(code(&mut client, &[("host", b"other.example")]), Code::Ok);
    assert_eq!(slowlane.metric("slowlane_verdicts_total", "slo=\"2001\",verdict=\"deny\""), 1.0);
}

#[test]
fn keys_of_descriptors_are_fields_and_values_are_any_bytes() {
    let at = own_address();
    let slowlane = slowlane(at, "[grpc.fields]\nowner = \"api-key\"\n");
    let mut client = Client::connect(at);
    // By its address, whatever else is in the descriptors; of two addresses, the first counts.
    let of_source: &[(&str, &[u8])] =
        &[("remote_address", b"192.0.2.7"), ("remote_address", b"198.51.100.1"), ("agent", b"\xff\xfe")];
    for expected in [Code::Ok, Code::Ok, Code::Ok, Code::OverLimit] {
        assert_eq!(code(&mut client, of_source), expected);
    }
    let ann: &[(&str, &[u8])] = &[("api-key", b"ann")];
    assert_eq!([code(&mut client, ann), code(&mut client, ann)], [Code::Ok, Code::OverLimit]);
    // A website that is no UTF-8 is one like any other, and not a reason to let requests pass unchecked.
    assert_eq!(code(&mut client, &[("host", b"\xff.example")]), Code::Ok);
    assert_eq!(slowlane.metric("slowlane_grpc_failures_total", ""), 0.0);
}

#[test]
fn hits_are_the_cost() {
    let at = own_address();
    let _slowlane = slowlane(at, "");
    let mut client = Client::connect(at);
    let mut hits = |of_request: u64, own: Option<u64>| {
        let mut request = limited(&[("host", b"shop.example")]);
        request.hits_addend = of_request;
        request.descriptors[0].hits_addend = own;
        client
            .call::<RateLimitResponse>(Method::ShouldRateLimit, &request)
            .map(|response| response.overall_code())
    };
    assert_eq!(hits(3, None), Ok(Code::OverLimit), "more than the burst");
    assert_eq!(hits(9, Some(0)), Ok(Code::Ok), "free");
    assert_eq!(hits(2, None), Ok(Code::Ok));
    assert_eq!(hits(0, None), Ok(Code::OverLimit), "one");
    assert_eq!(hits(u32::MAX.into(), None), Ok(Code::OverLimit));
    // A descriptor that costs nothing makes no other one free.
    let mut both =
        of_several(vec![descriptor(&[("host", b"shop.example")]), descriptor(&[("tokens", b"1")])]);
    both.descriptors[1].hits_addend = Some(0);
    let mut other = Client::connect(at);
    let response: RateLimitResponse = other.call(Method::ShouldRateLimit, &both).unwrap();
    assert_eq!(response.overall_code(), Code::OverLimit);
    let invalid = Err(StatusCode::InvalidArgument.number());
    // A negative number is a large one on the wire.
    assert_eq!([hits(u64::MAX, None), hits(1, Some(1 << 32))], [invalid, invalid]);
}

/// Three rules by the text of a descriptor, a quota of a shared pool, a pace, and two rules without a rate.
const DESCRIBED: &[(&str, &str)] = &[
    (
        "slo.map",
        "0 rate=unlimited\n\
         6001 burst=0 rate=3/h law=fixed-window reset=calendar\n\
         6002 burst=0 rate=2/h law=fixed-window reset=calendar\n\
         6003 burst=0 rate=100/7d law=fixed-window reset=calendar\n\
         6004 burst=0 rate=1/h law=fixed-window reset=calendar quota=yes\n\
         6005 burst=0 rate=2/h law=fixed-window reset=calendar quota=yes\n\
         6006 burst=0 rate=10/s\n\
         6007 rate=unlimited\n\
         6008 law=protect\n",
    ),
    (
        "rules.map",
        "^www\\+path=/[^,]*$ 6001\n^www\\+user=[^,]*$ 6002\n^www\\+tokens=[^,]*$ 6003\n^www\\+pool=small$ 6004\n\
         ^www\\+pool=large$ 6005\n^www\\+crawler=[^,]*$ 6006\n^www\\+free=yes$ 6007\n^www\\+shop=yes$ 6008\n",
    ),
];

fn described(at: SocketAddr) -> Slowlane {
    let config = format!(
        "[grpc]\nlisten = [\"{at}\"]\n[policy.types]\n6 = [\"domain\", \"descriptor\"]\n[[policy.lookups]]\n\
         fields = [\"domain\", \"descriptor\"]\nmap = \"rules.map\"\nmatch = \"reg\"\n"
    );
    Slowlane::with_config(DESCRIBED, &config)
}

/// The code of the whole, and those of the descriptors.
fn codes(client: &mut Client, request: &RateLimitRequest) -> (Code, Vec<Code>) {
    let response: RateLimitResponse = client.call(Method::ShouldRateLimit, request).unwrap();
    (response.overall_code(), response.statuses.iter().map(|status| status.code()).collect())
}

#[test]
fn each_descriptor_is_decided_by_itself_and_the_strictest_decides() {
    let at = own_address();
    let _slowlane = described(at);
    let mut client = Client::connect(at);
    let request = of_several(vec![
        descriptor(&[("path", b"/a")]),
        descriptor(&[("user", b"ann")]),
        descriptor(&[("other", b"x")]),
    ]);
    let first: RateLimitResponse = client.call(Method::ShouldRateLimit, &request).unwrap();
    let left = first.statuses.iter().map(|status| status.limit_remaining);
    assert_eq!(left.collect::<Vec<_>>(), [2, 1, 0]);
    let limits = first
        .statuses
        .iter()
        .map(|status| status.current_limit.as_ref().map(|limit| limit.requests_per_unit));
    assert_eq!(limits.collect::<Vec<_>>(), [Some(3), Some(2), None]);
    let reset = first.statuses[1].duration_until_reset.unwrap().seconds;
    assert!((1..=3_600).contains(&reset), "the end of the hour: {reset}");
    let (ok, over) = (Code::Ok, Code::OverLimit);
    assert_eq!(codes(&mut client, &request), (ok, vec![ok; 3]));
    assert_eq!(codes(&mut client, &request), (over, vec![ok, over, ok]));
    let left = |client: &mut Client, name: &str| {
        let request = limited(&[(name, b"yes")]);
        let response: RateLimitResponse = client.call(Method::ShouldRateLimit, &request).unwrap();
        response.statuses[0].limit_remaining
    };
    // law=protect is a limit, although it has no rate.
    assert_eq!(["free", "shop"].map(|name| left(&mut client, name)), [u32::MAX, 0]);
    // The path had its third hit all the same, as in Envoy's service.
    assert_eq!(codes(&mut client, &limited(&[("path", b"/a")])), (over, vec![over]));
    // What a client writes into a value is no second entry.
    let forged = limited(&[("path", b"/b,user=eve")]);
    assert_eq!(codes(&mut client, &forged), (ok, vec![ok]));
    assert_eq!(codes(&mut client, &limited(&[("user", b"eve"), ("path", b"/b")])), (ok, vec![ok]), "no rule");
}

#[test]
fn hits_are_told_after_the_answer_and_count_beyond_the_limit() {
    let at = own_address();
    let slowlane = described(at);
    let mut client = Client::connect(at);
    let mut tokens = |hits: u64| {
        let mut request = limited(&[("tokens", b"ann")]);
        request.descriptors[0].hits_addend = Some(hits);
        let response: RateLimitResponse = client.call(Method::ShouldRateLimit, &request).unwrap();
        let limit = response.statuses[0].current_limit.clone().unwrap();
        assert_eq!((limit.requests_per_unit, limit.unit()), (100, Unit::Week));
        (response.overall_code(), response.statuses[0].limit_remaining)
    };
    assert_eq!(tokens(0), (Code::Ok, 100), "asked before");
    assert_eq!(tokens(60), (Code::Ok, 40), "told after");
    assert_eq!(tokens(0), (Code::Ok, 40));
    assert_eq!(tokens(60).0, Code::OverLimit, "more than was left, and spent all the same");
    assert_eq!(tokens(0).0, Code::OverLimit);
    assert_eq!(slowlane.metric("slowlane_verdicts_total", "slo=\"6003\",verdict=\"deny\""), 2.0);
}

#[test]
fn a_quota_refuses_when_all_quotas_are_used_up() {
    let at = own_address();
    let _slowlane = described(at);
    let mut client = Client::connect(at);
    let both = of_several(vec![descriptor(&[("pool", b"small")]), descriptor(&[("pool", b"large")])]);
    let (ok, over) = (Code::Ok, Code::OverLimit);
    assert_eq!(codes(&mut client, &both), (ok, vec![ok, ok]));
    assert_eq!(codes(&mut client, &both), (ok, vec![over, ok]));
    assert_eq!(codes(&mut client, &both), (over, vec![over, over]));
    assert_eq!(codes(&mut client, &limited(&[("pool", b"small")])), (over, vec![over]));
}

/// As in the README of Envoy's service: a special limit instead of the usual one, which is not even counted.
#[test]
fn one_limit_replaces_another() {
    let at = own_address();
    let config = format!(
        "[grpc]\nlisten = [\"{at}\"]\n[policy.types]\n6 = [\"domain\", \"descriptor\"]\n[[policy.lookups]]\n\
         fields = [\"domain\", \"descriptor\"]\nmap = \"descriptor.map\"\nmatch = \"str\"\n"
    );
    let policy = [
        (
            "slo.map",
            "0 rate=unlimited\n6001 burst=0 rate=1/h law=fixed-window reset=calendar name=usual\n\
             6002 burst=0 rate=3/h law=fixed-window reset=calendar name=special replaces=usual\n",
        ),
        ("descriptor.map", "www+kind=read 6001\nwww+path=/search 6002\n"),
    ];
    let _slowlane = Slowlane::with_config(&policy, &config);
    let mut client = Client::connect(at);
    let (read, search) = (descriptor(&[("kind", b"read")]), descriptor(&[("path", b"/search")]));
    let (ok, over) = (Code::Ok, Code::OverLimit);
    let both = of_several(vec![read.clone(), search]);
    let first: RateLimitResponse = client.call(Method::ShouldRateLimit, &both).unwrap();
    let names = first.statuses.iter().map(|status| Some(status.current_limit.as_ref()?.name.clone()));
    assert_eq!(names.collect::<Vec<_>>(), [None, Some("special".to_owned())]);
    assert_eq!(
        [(); 3].map(|()| codes(&mut client, &both)),
        [(ok, vec![ok; 2]), (ok, vec![ok; 2]), (over, vec![ok, over])]
    );
    let usual = of_several(vec![read]);
    assert_eq!([codes(&mut client, &usual).0, codes(&mut client, &usual).0], [ok, over]);
}

#[test]
fn the_limit_of_a_descriptor_holds_for_it() {
    let at = own_address();
    let slowlane = described(at);
    let mut client = Client::connect(at);
    let with = |value: &[u8], requests_per_unit: u32, unit: Unit| {
        let limit = Some(RateLimit { requests_per_unit, unit: unit.into(), ..RateLimit::default() });
        of_several(vec![Descriptor { limit, ..descriptor(&[("user", value)]) }])
    };
    let (ok, over) = (Code::Ok, Code::OverLimit);
    let five = with(b"ann", 5, Unit::Year);
    for left in (0..5).rev() {
        let response: RateLimitResponse = client.call(Method::ShouldRateLimit, &five).unwrap();
        let limit = response.statuses[0].current_limit.clone().unwrap();
        assert_eq!((limit.requests_per_unit, limit.unit()), (5, Unit::Year));
        assert_eq!((response.overall_code(), response.statuses[0].limit_remaining), (ok, left));
    }
    assert_eq!(codes(&mut client, &five).0, over);
    assert_eq!(codes(&mut client, &with(b"bob", 5, Unit::Year)).0, ok, "its own bucket");
    assert_eq!(codes(&mut client, &with(b"eve", 0, Unit::Day)).0, over);
    assert_eq!(codes(&mut client, &with(b"eve", u32::MAX, Unit::Second)).0, ok);
    // The rule of the policy counts by itself: two.
    let own = limited(&[("user", b"ann")]);
    assert_eq!([(); 3].map(|()| codes(&mut client, &own).0), [ok, ok, over]);
    // Blocks of operators hold.
    let blocked =
        crate::cli::ran(&["block", "add", "user=bob", "--for", "1h", "--admin", &slowlane.admin.to_string()]);
    assert_eq!(blocked.code, 0, "{:?}", blocked.problems);
    assert_eq!(codes(&mut client, &with(b"bob", 5, Unit::Year)).0, over);
}

#[test]
fn the_longest_delay_of_the_descriptors_holds() {
    let at = own_address();
    let _slowlane = described(at);
    let mut client = Client::connect(at);
    let request = of_several(vec![descriptor(&[("crawler", b"a")]), descriptor(&[("path", b"/c")])]);
    let delays = [(); 4].map(|()| {
        let response: RateLimitResponse = client.call(Method::ShouldRateLimit, &request).unwrap();
        let delay = of(&response.request_headers_to_add, "x-envoy-fault-delay-request");
        (response.overall_code(), delay.map_or(0, |delay| delay.parse::<u64>().unwrap()))
    });
    assert!(delays[..3].iter().all(|(code, _)| *code == Code::Ok), "{delays:?}");
    assert!(delays[2].1 > 100, "{delays:?}");
    assert_eq!(delays[3], (Code::OverLimit, 0), "the path has its limit");
}

/// What Envoy sends for a request.
fn checked(source: &str, host: &str, headers: &[(&str, &[u8])]) -> CheckRequest {
    let address = Address { socket_address: Some(SocketAddress { address: source.to_owned().into() }) };
    let header =
        |&(key, value): &(&str, &[u8])| Entry { key: key.to_owned().into(), value: value.to_vec().into() };
    let http = HttpRequest {
        method: Bytes::from_static(b"GET"),
        path: Bytes::from_static(b"/a?b"),
        host: host.to_owned().into(),
        headers: headers.iter().map(header).collect(),
        header_map: None,
    };
    CheckRequest {
        attributes: Some(Attributes {
            source: Some(Peer { address: Some(address) }),
            request: Some(OfRequest { http: Some(http) }),
            context_extensions: HashMap::new(),
        }),
    }
}

/// The status of a refusal, and the headers of the answer. An allowed request has 0.
fn answered(response: &CheckResponse) -> (i32, Vec<HeaderValue>, &[String]) {
    let set = |headers: &[grpc::auth::HeaderOption]| {
        headers.iter().filter_map(|option| option.header.clone()).collect()
    };
    match response.answer.as_ref().unwrap() {
        AuthAnswer::Denied(denied) => (denied.status.unwrap().code, set(&denied.headers), &[]),
        AuthAnswer::Ok(allowed) => (0, set(&allowed.headers), &allowed.headers_to_remove),
    }
}

#[test]
fn the_authorization_service_passes_delays_and_denies() {
    let at = own_address();
    let slowlane = slowlane(at, "[grpc.fields]\nowner = \"x-api-key\"\n");
    let mut client = Client::connect(at);
    let mut check = |request: &CheckRequest| client.call::<CheckResponse>(Method::Check, request).unwrap();
    let other = checked("198.51.100.1", "other.example", &[]);
    let response = check(&other);
    assert_eq!(response.status.unwrap().code, 0);
    let (status, headers, removed) = answered(&response);
    assert_eq!((status, headers.len()), (0, 0));
    assert!(removed.contains(&"x-envoy-fault-delay-request".to_owned()), "a client's own");

    let slow = checked("198.51.100.1", "slow.example", &[]);
    check(&slow);
    let response = check(&slow);
    let (status, headers, removed) = answered(&response);
    let delay_ms: u32 = of(&headers, "x-envoy-fault-delay-request").unwrap().parse().unwrap();
    assert!(status == 0 && (1..=100).contains(&delay_ms), "{delay_ms}");
    assert!(!removed.contains(&"x-envoy-fault-delay-request".to_owned()));
    assert!(removed.contains(&"x-envoy-fault-delay-request-percentage".to_owned()));

    let statuses = [(); 4].map(|()| answered(&check(&checked("192.0.2.9", "x.example", &[]))).0);
    assert_eq!(statuses, [0, 0, 0, 429]);
    let ann = checked("198.51.100.2", "x.example", &[("x-other", b"1"), ("x-api-key", b"ann")]);
    let mut raw = checked("198.51.100.2", "x.example", &[]);
    let key = HeaderValue {
        key: Bytes::from_static(b"x-api-key"),
        value: Bytes::new(),
        raw_value: Bytes::from_static(b"ann"),
    };
    let http = raw.attributes.as_mut().unwrap().request.as_mut().unwrap().http.as_mut().unwrap();
    http.header_map = Some(HeaderMap { headers: vec![key] });
    assert_eq!(answered(&check(&ann)).0, 0);
    let response = check(&raw);
    assert_eq!(response.status.unwrap().code, i32::from(StatusCode::ResourceExhausted.number()));
    let (status, headers, _) = answered(&response);
    assert_eq!((status, of(&headers, "retry-after").is_some()), (429, true));
    // What the operator says of a route comes before what the request says.
    let mut by_route = checked("198.51.100.3", "x.example", &[]);
    let extensions = &mut by_route.attributes.as_mut().unwrap().context_extensions;
    extensions.insert("website".into(), b"shop.example".to_vec());
    extensions.insert("ratelimit".into(), b"on".to_vec());
    let response = check(&by_route);
    let Some(AuthAnswer::Ok(allowed)) = &response.answer else { panic!("{response:?}") };
    let first = allowed.response_headers_to_add[0].header.clone().unwrap();
    assert_eq!(
        (first.key.as_ref(), first.value.as_ref()),
        (b"ratelimit".as_slice(), b"\"2001\";r=1".as_slice())
    );
    // Nothing is known of a request without attributes: SLO 0 decides.
    assert_eq!(answered(&check(&CheckRequest { attributes: None })).0, 0);
    assert_eq!(slowlane.metric("slowlane_verdicts_total", "slo=\"1001\",verdict=\"deny\""), 1.0);
}

#[test]
fn a_call_that_is_no_good_gets_its_status_and_others_are_served() {
    let at = own_address();
    let slowlane = slowlane(at, "");
    let mut client = Client::connect(at);
    let path = Method::ShouldRateLimit.path();
    let good = framed(&limited(&[("host", b"other.example")]));
    let cut = Bytes::copy_from_slice(&good[..good.len() - 1]);
    let mut compressed = good.clone();
    compressed[0] = 1;
    let many: Vec<(&str, &[u8])> = vec![("k", b"v"); 10_000];
    let large = vec![b'x'; 1 << 20];
    let nested = [[0x12, 0x7f].repeat(200), vec![0]].concat();
    let framing = |message: &[u8]| -> Bytes {
        [&[0], (message.len() as u32).to_be_bytes().as_slice(), message].concat().into()
    };
    let claimed: Bytes = [&[0], u32::MAX.to_be_bytes().as_slice(), b"x"].concat().into();
    let bad: [(&str, &str, Bytes, StatusCode); 14] = [
        ("no descriptor", path, framed(&of_several(vec![])).into(), StatusCode::InvalidArgument),
        ("ten thousand", path, framed(&limited(&many)).into(), StatusCode::InvalidArgument),
        (
            "a key that is no UTF-8",
            path,
            framing(b"\x12\x08\x0a\x06\x0a\x01\xff\x12\x01x"),
            StatusCode::InvalidArgument,
        ),
        ("a megabyte", path, framed(&limited(&[("host", &large)])).into(), StatusCode::ResourceExhausted),
        ("four gigabytes claimed", path, claimed, StatusCode::ResourceExhausted),
        ("cut off", path, cut, StatusCode::Internal),
        ("twice", path, [good.clone(), good.clone()].concat().into(), StatusCode::Internal),
        ("nothing", path, Bytes::new(), StatusCode::Internal),
        ("no message", path, framing(&[0xff; 64]), StatusCode::Internal),
        ("nested", path, framing(&nested), StatusCode::Internal),
        ("compressed", path, compressed.into(), StatusCode::Unimplemented),
        (
            "another method",
            "/envoy.service.ratelimit.v3.RateLimitService/Other",
            good.clone().into(),
            StatusCode::Unimplemented,
        ),
        ("another service", "/", good.clone().into(), StatusCode::Unimplemented),
        ("a stream", "/grpc.health.v1.Health/Watch", framing(b""), StatusCode::Unimplemented),
    ];
    for (name, path, body, expected) in bad {
        let ended = client.send(path, body);
        assert_eq!((ended.http, ended.status), (200, Some(expected.number())), "{name}: {ended:?}");
        assert!(!ended.reason.is_empty(), "{name}");
        assert_eq!(code(&mut client, &[("host", b"other.example")]), Code::Ok, "after {name}");
    }
    assert_eq!(slowlane.metric("slowlane_grpc_failures_total", ""), 14.0);
    assert_eq!(slowlane.metric("slowlane_grpc_failures_total", "status=\"RESOURCE_EXHAUSTED\""), 2.0);
    let ended = client.send_as("application/json", path, good.clone().into()).unwrap();
    assert_eq!((ended.http, ended.status), (415, None));
    // So long a header of a client may be in a call, if Envoy traces.
    let ended = client.send_traced(path, good.into(), &"x".repeat(60 << 10)).unwrap();
    assert_eq!((ended.http, ended.status), (200, Some(0)));
    // A message with all headers that Envoy lets through by default is read.
    let whole = vec![b'x'; 60 << 10];
    assert_eq!(code(&mut client, &[("host", b"shop.example"), ("agent", &whole)]), Code::Ok);
    assert!(whole.len() < MESSAGE_BYTES_MAX);
}

#[test]
fn health_is_that_of_the_server_or_of_a_service() {
    let at = own_address();
    let _slowlane = slowlane(at, "");
    let mut client = Client::connect(at);
    let mut health = |service: &str| {
        let request = HealthCheckRequest { service: service.into() };
        client.call::<HealthCheckResponse>(Method::Health, &request).map(|response| response.status)
    };
    for service in Method::ALL.map(Method::service).into_iter().chain([""]) {
        assert_eq!(health(service), Ok(1), "{service:?}");
    }
    assert_eq!(health("other"), Err(StatusCode::NotFound.number()));
}

#[test]
fn tls_and_unix_sockets_serve_too() {
    let (at, authority) = (own_address(), Authority::new("servers"));
    let slowlane = slowlane(at, &format!("[grpc.tls]\n{}", authority.pair("server").lines()));
    let plain = TcpStream::connect(crate::support::tls::tunnel(at, &authority.client(None))).unwrap();
    plain.set_nonblocking(true).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let stream = runtime.block_on(async { tokio::net::TcpStream::from_std(plain).unwrap() });
    assert_eq!(code(&mut Client::over(runtime, stream), &[("host", b"shop.example")]), Code::Ok);
    assert_eq!(slowlane.metric("slowlane_tls_handshakes_total", "listener=\"grpc\""), 1.0);

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("grpc");
    let config = format!("[grpc]\nlisten = [\"unix:{}\"]\n", path.display());
    let _slowlane = Slowlane::with_config(POLICY, &config);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let stream = runtime.block_on(tokio::net::UnixStream::connect(&path)).unwrap();
    assert_eq!(code(&mut Client::over(runtime, stream), &[("host", b"shop.example")]), Code::Ok);
}

/// Frames of HTTP/2, written by hand.
struct Raw(TcpStream);

impl Raw {
    fn connect(at: SocketAddr) -> Raw {
        let mut stream = TcpStream::connect(at).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
        let mut raw = Raw(stream);
        raw.send(4, 0, 0, b"").unwrap();
        raw
    }

    fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> std::io::Result<()> {
        let length = (payload.len() as u32).to_be_bytes();
        let frame = [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat();
        self.0.write_all(&frame)
    }

    /// Whether the server closes within so many frames, which it need not read.
    fn is_closed_within(
        &mut self,
        frames: usize,
        mut frame: impl FnMut(&mut Raw, usize) -> std::io::Result<()>,
    ) -> bool {
        (0..frames).any(|number| frame(self, number).is_err()) || self.is_closed()
    }

    fn is_closed(&mut self) -> bool {
        let mut bytes = [0; 4_096];
        loop {
            match self.0.read(&mut bytes) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
            }
        }
    }
}

const HEADERS: u8 = 1;
const DATA: u8 = 0;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const CONTINUATION: u8 = 9;

/// `:method: POST`, `:scheme: http`, `:path: /`, as indices of the static table.
const INDEXED: &[u8] = &[0x83, 0x86, 0x84];

#[test]
fn a_flood_ends_its_own_connection_and_others_are_served() {
    let at = own_address();
    let slowlane = slowlane(at, "");
    let process = slowlane.serving_process();
    let resident = || -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    let before = resident();
    let mut others = Client::connect(at);
    let mut is_served = |name: &str| {
        assert_eq!(code(&mut others, &[("host", b"other.example")]), Code::Ok, "{name}");
        let grown = resident().saturating_sub(before);
        assert!(grown < 64 * 1024, "{name}: {grown} kB more");
    };

    // CVE-2023-44487: streams that are reset at once. The server may close, and nobody else notices.
    let mut raw = Raw::connect(at);
    for number in 0..100_000 {
        let stream = 1 + 2 * number;
        let sent = raw.send(HEADERS, 4, stream, INDEXED);
        if sent.and_then(|()| raw.send(RESET, 0, stream, &8_u32.to_be_bytes())).is_err() {
            break;
        }
    }
    is_served("rapid reset");

    // CVE-2024-27316: headers without an end.
    let field = [&[0x00, 0x01, b'a', 0x7f, 0x81, 0x00], [b'x'; 256].as_slice()].concat();
    let closed = Raw::connect(at).is_closed_within(100_000, |raw, number| match number {
        0 => raw.send(HEADERS, 0, 1, INDEXED),
        _ => raw.send(CONTINUATION, 0, 1, &field),
    });
    assert!(closed, "continuation");
    is_served("continuation");

    // Frames that want an answer, from a client that reads none: the server stops reading, and then closes.
    for (name, kind, payload) in [("settings", SETTINGS, [].as_slice()), ("pings", PING, &[0; 8])] {
        let mut raw = Raw::connect(at);
        raw.0.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
        let stopped = (0..5_000_000).any(|_| raw.send(kind, 0, 0, payload).is_err());
        assert!(stopped, "{name}");
        is_served(name);
    }

    // A message in empty frames. The wait for it is bounded.
    let mut raw = Raw::connect(at);
    raw.send(HEADERS, 4, 1, &[INDEXED, &[0x0f, 0x10, 16], b"application/grpc"].concat()).unwrap();
    for _ in 0..200_000 {
        if raw.send(DATA, 0, 1, b"").is_err() {
            break;
        }
    }
    is_served("empty frames");

    // Not HTTP/2 at all.
    let mut stream = TcpStream::connect(at).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: s\r\n\r\n").unwrap();
    assert!(Raw(stream).is_closed());
    is_served("HTTP/1.1");
}

/// Clients of the proxy that leave reset their calls, on the connection of all.
#[test]
fn calls_that_are_reset_hurt_no_other() {
    let at = own_address();
    let _slowlane = slowlane(at, "");
    let mut client = Client::connect(at);
    client.reset(2_000).unwrap();
    assert_eq!(code(&mut client, &[("host", b"other.example")]), Code::Ok);
}

/// Envoy sends a burst before it knows how many streams the server takes. What is refused would pass unchecked.
#[test]
fn a_burst_on_a_new_connection_is_served() {
    let at = own_address();
    let slowlane = slowlane(at, "");
    let message = framed(&limited(&[("host", b"other.example")]));
    let mut raw = Raw::connect(at);
    let mut burst = Vec::new();
    let path = Method::ShouldRateLimit.path();
    // `:path` and `content-type`, not indexed.
    let block =
        [&[0x83, 0x86, 0x04, path.len() as u8][..], path.as_bytes(), &[0x0f, 0x10, 16], b"application/grpc"]
            .concat();
    for number in 0..1_000_u32 {
        for (kind, flags, payload) in [(HEADERS, 4, block.as_slice()), (DATA, 1, message.as_slice())] {
            let length = (payload.len() as u32).to_be_bytes();
            burst.extend([&length[1..], &[kind, flags], &(1 + 2 * number).to_be_bytes(), payload].concat());
        }
    }
    raw.0.write_all(&burst).unwrap();
    let decided = || slowlane.metric("slowlane_verdicts_total", "slo=\"0\",verdict=\"pass\"") as usize;
    eventually("each of them is decided", || (decided() == 1_000).then_some(()));
}

#[test]
fn a_shutdown_says_goodbye_and_an_upgrade_keeps_the_counts() {
    let at = own_address();
    let mut slowlane = slowlane(at, "");
    let mut old = Client::connect(at);
    let shop: &[(&str, &[u8])] = &[("host", b"shop.example")];
    assert_eq!(code(&mut old, shop), Code::Ok);
    slowlane.upgrade();
    assert!(old.closed().is_ok(), "a GOAWAY, and then the end");
    let mut new = Client::connect(at);
    assert_eq!([code(&mut new, shop), code(&mut new, shop)], [Code::Ok, Code::OverLimit]);
    signal(slowlane.serving_process(), "TERM");
    assert!(new.closed().is_ok());
    eventually("it has ended", || TcpStream::connect(at).is_err().then_some(()));
}
