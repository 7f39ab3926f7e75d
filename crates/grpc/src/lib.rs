//! gRPC as plain values: Envoy's rate limit, authorization and access log services, and the health check.
//!
//! ```text
//! the body of an HTTP/2 request ─▶ unframed ─▶ decoded ─▶ a message
//! the bytes of a stream ─▶ next_message ─▶ decoded ─▶ a message, and so on
//! a message ─▶ framed ─▶ the body of the response, and a GrpcStatus in its trailers
//! ```
//! The messages have only the fields that slowlane reads or writes; protobuf skips other fields. Text that a
//! client of the proxy can choose is `Bytes`, not `String`: if a request were refused because its text is not
//! UTF-8, a proxy that fails open would let the request pass.
//!
//! ```
//! use grpc::ratelimit::{Code, RateLimitResponse};
//!
//! let body = grpc::framed(&RateLimitResponse { overall_code: Code::OverLimit.into(), ..Default::default() });
//! assert_eq!(body, [0, 0, 0, 0, 2, 0x08, 2]);
//! let message: RateLimitResponse = grpc::decoded(&grpc::unframed(&body.into()).unwrap()).unwrap();
//! assert_eq!(message.overall_code, 2);
//! ```

pub mod accesslog;
pub mod auth;
mod call;
mod frame;
pub mod health;
pub mod ratelimit;
mod structure;

pub use call::{GrpcStatus, Method, StatusCode};
pub use frame::{BODY_BYTES_MAX, MESSAGE_BYTES_MAX, TOO_LARGE, decoded, framed, next_message, unframed};
pub use structure::{Entry, HeaderValue, ProtoDuration, Struct, StructEntry, StructureKind, Value};
