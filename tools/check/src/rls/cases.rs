//! The cases of the suite: calls that Envoy relies on, and requests that are not calls at all.

use grpc::Entry;
use grpc::health::HealthCheckRequest;
use grpc::ratelimit::{Descriptor, RateLimitRequest};
use grpc::{Method, framed};
use http::{HeaderValue, Uri};

use crate::card::{Case, Level};
use crate::rls::client::{Call, call};
use crate::rls::judges::{
    Judge, NOT_FOUND, UNIMPLEMENTED, answered, answered_or_refused, refused, refused_as, serving, statuses,
    unsupported,
};

/// What is sent, and how the answers are judged.
#[derive(Clone, Debug)]
pub(super) enum Way {
    Call(Box<Call>, Judge),
    /// Many plain calls are in flight.
    AtOnce,
    /// Plain calls have Envoy's default timeout.
    InTime,
    /// A plain call is reset.
    Cancelled,
    Ping,
}

/// The compressed-flag, and the length of the message behind it.
const PREFIX_BYTES: usize = 5;

/// Tag and value of `hits_addend`, which no encoder writes for 0.
const HITS_0: &[u8] = &[0x18, 0];

/// The cases. The first case is the plain call, on which the others build.
pub(super) fn trials(plain: &RateLimitRequest) -> Vec<(Case, Way)> {
    let body = |judge, body: Vec<u8>| way(call(Method::ShouldRateLimit, body), judge);
    let changed = |judge, change: &dyn Fn(&mut RateLimitRequest)| {
        let mut request = plain.clone();
        change(&mut request);
        body(judge, framed(&request))
    };
    let hits = |hits| changed(answered, &|request| request.hits_addend = hits);
    let entries = |judge, count: usize, value: &[u8]| {
        let entry = |number| Entry { key: format!("key-{number}").into(), value: value.to_vec().into() };
        let descriptor = Descriptor { entries: (0..count).map(entry).collect(), ..Descriptor::default() };
        changed(judge, &|request| request.descriptors = vec![descriptor.clone()])
    };
    let health = |judge, service: &str| {
        way(call(Method::Health, framed(&HealthCheckRequest { service: service.into() })), judge)
    };
    let plain_body = framed(plain);
    let message = &plain_body[PREFIX_BYTES..];
    let mut suite = Trials::default();

    suite.must("answer", "rls", "answers OK or OVER_LIMIT", changed(answered, &|_| ()));
    suite.must("statuses", "rls", "has a status for a descriptor", changed(statuses::<1>, &|_| ()));
    let ten = changed(statuses::<10>, &|request| {
        request.descriptors = vec![plain.descriptors.clone(); 10].concat()
    });
    suite.must("descriptors-10", "rls", "has a status for each of ten descriptors", ten);
    let none = changed(answered_or_refused, &|request| request.descriptors.clear());
    suite.must("descriptors-none", "rls", "answers or refuses a request without descriptors", none);
    let unknown = changed(answered_or_refused, &|request| request.domain = "rls-check.invalid".into());
    suite.must("domain-unknown", "rls", "answers or refuses an unknown domain", unknown);
    let hits_0 = body(answered, frame(0, &[message, HITS_0].concat()));
    suite.must("hits-0", "rls", "answers hits_addend 0", hits_0);
    suite.must("hits-1", "rls", "answers hits_addend 1", hits(1));
    suite.must("hits-max", "rls", "answers hits_addend 4294967295", hits(u32::MAX.into()));

    suite.must("value-empty", "envoy", "answers an empty value", entries(answered, 1, b""));
    let bytes = entries(answered, 1, b"\xff\xfe");
    suite.must("value-not-utf8", "envoy", "answers a value that is not UTF-8: clients choose values", bytes);
    let headers = entries(answered, 1, &[b'a'; 60 << 10]);
    suite.must("value-60k", "envoy", "answers a value of 60 KiB, Envoy's limit for headers", headers);
    let many = entries(answered, 1_000, b"a");
    suite.should("entries-1000", "envoy", "answers a descriptor of 1000 entries", many);
    let claim = "answers at least one of 20 calls in 20 ms, Envoy's default timeout";
    suite.must("deadline", "envoy", claim, Way::InTime);

    let megabyte = entries(answered_or_refused, 1, &[b'a'; 1 << 20]);
    suite.must("megabyte", "grpc", "answers or refuses a message of a megabyte", megabyte);
    let broken = body(refused, frame(0, &[0xff; 64]));
    suite.must("message-broken", "grpc", "refuses a message that is not protobuf", broken);
    let cut = body(refused, plain_body[..plain_body.len() - 1].to_vec());
    suite.must("message-cut", "grpc", "refuses a message that ends early", cut);
    let mut encoded = call(Method::ShouldRateLimit, frame(1, message));
    encoded.headers_mut().insert("grpc-encoding", HeaderValue::from_static("rls-check"));
    let claim = "refuses a message of an unknown encoding as UNIMPLEMENTED";
    suite.must("encoding-unknown", "grpc", claim, way(encoded, refused_as::<UNIMPLEMENTED>));
    let mut unknown = call(Method::ShouldRateLimit, plain_body.clone());
    *unknown.uri_mut() =
        Uri::from_static("http://localhost/envoy.service.ratelimit.v3.RateLimitService/Other");
    let claim = "refuses an unknown method as UNIMPLEMENTED";
    suite.must("method-unknown", "grpc", claim, way(unknown, refused_as::<UNIMPLEMENTED>));
    let mut json = call(Method::ShouldRateLimit, plain_body.clone());
    json.headers_mut().insert("content-type", HeaderValue::from_static("application/json"));
    let claim = "refuses another content type with HTTP status 415";
    suite.should("content-type", "grpc", claim, way(json, unsupported));

    suite.must("calls-64", "http2", "answers 64 simultaneous calls", Way::AtOnce);
    suite.must("cancelled", "http2", "answers other calls while one is reset", Way::Cancelled);
    suite.must("ping", "http2", "answers a PING", Way::Ping);

    suite.should("health", "health", "is SERVING", health(serving, ""));
    let service = health(serving, Method::ShouldRateLimit.service());
    suite.should("health-service", "health", "is SERVING as the rate limit service", service);
    let unknown = health(refused_as::<NOT_FOUND>, "rls-check.Unknown");
    suite.should("health-unknown", "health", "answers NOT_FOUND for an unknown service", unknown);
    suite.0
}

type Text = &'static str;

#[derive(Debug, Default)]
struct Trials(Vec<(Case, Way)>);

impl Trials {
    /// Adds a required case.
    fn must(&mut self, name: Text, section: Text, claim: Text, way: Way) {
        self.0.push((Case { name, section, level: Level::Required, claim }, way));
    }

    /// Adds an advised case.
    fn should(&mut self, name: Text, section: Text, claim: Text, way: Way) {
        self.0.push((Case { name, section, level: Level::Advised, claim }, way));
    }
}

fn way(call: Call, judge: Judge) -> Way {
    Way::Call(Box::new(call), judge)
}

/// A message with any compressed-flag.
fn frame(flag: u8, message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).expect("no case is longer than a megabyte");
    [&[flag], length.to_be_bytes().as_slice(), message].concat()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_case_has_a_name_of_its_own() {
        let trials = trials(&RateLimitRequest::default());
        let names: BTreeSet<&str> = trials.iter().map(|(case, _)| case.name).collect();
        assert_eq!(names.len(), trials.len());
    }
}
