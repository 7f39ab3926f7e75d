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

    /// Its name, as gRPC spells it.
    pub fn name(self) -> &'static str {
        StatusCode::name_of(self.number()).expect("each has a name")
    }

    /// The name of any status code. None: there is no such code.
    ///
    /// ```
    /// use grpc::StatusCode;
    /// assert_eq!(StatusCode::name_of(13), Some(StatusCode::Internal.name()));
    /// assert_eq!((StatusCode::Internal.name(), StatusCode::name_of(17)), ("INTERNAL", None));
    /// ```
    pub fn name_of(number: u8) -> Option<&'static str> {
        NAMES.split(' ').nth(number.into())
    }
}

/// The names, from 0.
const NAMES: &str = "OK CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS PERMISSION_DENIED \
    RESOURCE_EXHAUSTED FAILED_PRECONDITION ABORTED OUT_OF_RANGE UNIMPLEMENTED INTERNAL UNAVAILABLE DATA_LOSS UNAUTHENTICATED";

/// The failure of a call. Its message is ASCII without `%`, so the header `grpc-message` needs no encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrpcStatus {
    pub code: StatusCode,
    pub message: &'static str,
}

impl GrpcStatus {
    pub const fn new(code: StatusCode, message: &'static str) -> GrpcStatus {
        GrpcStatus { code, message }
    }
}
