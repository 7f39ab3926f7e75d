//! The messages of `grpc.health.v1.Health`.

use prost::{Enumeration, Message};

use crate::{GrpcStatus, Method, StatusCode};

#[derive(Clone, PartialEq, Message)]
pub struct HealthCheckRequest {
    /// Empty for the server as a whole.
    #[prost(string, tag = "1")]
    pub service: String,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct HealthCheckResponse {
    #[prost(enumeration = "ServingStatus", tag = "1")]
    pub status: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum ServingStatus {
    Unknown = 0,
    Serving = 1,
    NotServing = 2,
}

/// Answers a health check. If `is_ending`, the server is about to stop and answers `NotServing`.
///
/// # Errors
/// The server has no such service.
pub fn health(request: &HealthCheckRequest, is_ending: bool) -> Result<HealthCheckResponse, GrpcStatus> {
    let is_known = Method::ALL.into_iter().any(|method| method.service() == request.service);
    if !request.service.is_empty() && !is_known {
        return Err(GrpcStatus::new(StatusCode::NotFound, "there is no such service"));
    }
    let status = if is_ending { ServingStatus::NotServing } else { ServingStatus::Serving };
    Ok(HealthCheckResponse { status: status.into() })
}
