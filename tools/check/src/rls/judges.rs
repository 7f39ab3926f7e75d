//! Judges: each accepts an answer and says what was seen, or returns the reason why not.

use bytes::Bytes;
use grpc::health::{HealthCheckResponse, ServingStatus};
use grpc::ratelimit::{Code, RateLimitResponse};
use grpc::{GrpcStatus, decoded, unframed};
use http::StatusCode;

use crate::rls::client::Answer;

pub(super) type Judged = Result<String, String>;

pub(super) type Judge = fn(&Answer) -> Judged;

pub(super) const UNIMPLEMENTED: u8 = grpc::StatusCode::Unimplemented.number();
pub(super) const NOT_FOUND: u8 = grpc::StatusCode::NotFound.number();

/// OK or OVER_LIMIT. By default, Envoy passes the request after any other answer.
pub(super) fn answered(answer: &Answer) -> Judged {
    limited(answer).map(|response| name(response.overall_code()).into())
}

/// A status for each of this many descriptors. If one descriptor is over its limit, so is the request.
pub(super) fn statuses<const DESCRIPTORS: usize>(answer: &Answer) -> Judged {
    let response = limited(answer)?;
    let codes: Vec<Code> = response.statuses.iter().map(|status| status.code()).collect();
    let names: Vec<&str> = codes.iter().copied().map(name).collect();
    let seen = format!("{}, statuses: {}", name(response.overall_code()), names.join(" "));
    let agree = codes.iter().max() == Some(&response.overall_code()) && !codes.contains(&Code::Unknown);
    if codes.len() == DESCRIPTORS && agree { Ok(seen) } else { Err(seen) }
}

/// An error, or OK or OVER_LIMIT.
pub(super) fn answered_or_refused(answer: &Answer) -> Judged {
    refused(answer).or_else(|_| answered(answer))
}

/// An error.
pub(super) fn refused(answer: &Answer) -> Judged {
    if status(answer)? == 0 { Err(ending(answer)) } else { Ok(ending(answer)) }
}

/// An error with this status.
pub(super) fn refused_as<const CODE: u8>(answer: &Answer) -> Judged {
    if status(answer)? == CODE { Ok(ending(answer)) } else { Err(ending(answer)) }
}

pub(super) fn unsupported(answer: &Answer) -> Judged {
    let seen = format!("HTTP status {}", answer.status());
    if answer.status() == StatusCode::UNSUPPORTED_MEDIA_TYPE { Ok(seen) } else { Err(seen) }
}

pub(super) fn serving(answer: &Answer) -> Judged {
    let response: HealthCheckResponse = decoded(&message(answer)?).map_err(unreadable)?;
    match response.status() {
        ServingStatus::Serving => Ok("SERVING".into()),
        _ => Err(format!("the status is {}", response.status)),
    }
}

const fn name(code: Code) -> &'static str {
    match code {
        Code::Unknown => "UNKNOWN",
        Code::Ok => "OK",
        Code::OverLimit => "OVER_LIMIT",
    }
}

fn limited(answer: &Answer) -> Result<RateLimitResponse, String> {
    let response: RateLimitResponse = decoded(&message(answer)?).map_err(unreadable)?;
    match response.overall_code() {
        Code::Unknown => Err(format!("the overall code is {}", response.overall_code)),
        Code::Ok | Code::OverLimit => Ok(response),
    }
}

/// The message of an answer without an error.
fn message(answer: &Answer) -> Result<Bytes, String> {
    if status(answer)? == 0 { unframed(answer.body()).map_err(unreadable) } else { Err(ending(answer)) }
}

fn unreadable(status: GrpcStatus) -> String {
    format!("the answer is no message: {}", status.message)
}

/// The status of the call.
fn status(answer: &Answer) -> Result<u8, String> {
    let kind = header(answer, "content-type").unwrap_or_default();
    if answer.status() != StatusCode::OK || !kind.starts_with("application/grpc") {
        return Err(format!("HTTP status {}, content-type {kind:?}", answer.status()));
    }
    let status = header(answer, "grpc-status").and_then(|status| status.parse().ok());
    status.ok_or_else(|| "the answer has no grpc-status".into())
}

/// The status and its message, for use in a reason.
fn ending(answer: &Answer) -> String {
    let status = header(answer, "grpc-status").unwrap_or_default();
    let name = status.parse().ok().and_then(grpc::StatusCode::name_of);
    let message = header(answer, "grpc-message").filter(|message| !message.is_empty());
    format!("{}{}", name.unwrap_or(status), message.map(|message| format!(": {message}")).unwrap_or_default())
}

fn header<'a>(answer: &'a Answer, name: &str) -> Option<&'a str> {
    answer.headers().get(name)?.to_str().ok()
}
