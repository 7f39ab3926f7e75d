//! The status of a call.

/// A status code of gRPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum StatusCode {
    Ok = 0,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    ResourceExhausted = 8,
    Unimplemented = 12,
    Internal = 13,
}

impl StatusCode {
    /// Its number in the header `grpc-status`.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Its name in lower case, for metrics.
    pub const fn name(self) -> &'static str {
        match self {
            StatusCode::Ok => "ok",
            StatusCode::InvalidArgument => "invalid_argument",
            StatusCode::DeadlineExceeded => "deadline_exceeded",
            StatusCode::NotFound => "not_found",
            StatusCode::ResourceExhausted => "resource_exhausted",
            StatusCode::Unimplemented => "unimplemented",
            StatusCode::Internal => "internal",
        }
    }
}

/// The failure of a call. Its message is ASCII without `%`, so the header `grpc-message` needs no encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    pub code: StatusCode,
    pub message: &'static str,
}

impl Status {
    pub const fn new(code: StatusCode, message: &'static str) -> Status {
        Status { code, message }
    }
}
