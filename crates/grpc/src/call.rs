//! A call: its method and its status.

/// A method that has an implementation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    ShouldRateLimit,
    Check,
    /// A stream of messages, answered by one response when the stream ends.
    StreamAccessLogs,
    Health,
}

impl Method {
    /// All methods. Each belongs to a different service.
    pub const ALL: [Method; 4] =
        [Method::ShouldRateLimit, Method::Check, Method::StreamAccessLogs, Method::Health];

    /// The method at the path of a request, `/service/method`.
    ///
    /// ```
    /// use grpc::Method;
    /// assert_eq!(Method::at("/envoy.service.auth.v3.Authorization/Check"), Some(Method::Check));
    /// assert_eq!(Method::at(Method::Health.path()), Some(Method::Health));
    /// assert_eq!(Method::at("/grpc.health.v1.Health/Watch"), None);
    /// ```
    pub fn at(path: &str) -> Option<Method> {
        Method::ALL.into_iter().find(|method| method.path() == path)
    }

    /// The path of the method in a request.
    pub const fn path(self) -> &'static str {
        match self {
            Method::ShouldRateLimit => "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
            Method::Check => "/envoy.service.auth.v3.Authorization/Check",
            Method::StreamAccessLogs => "/envoy.service.accesslog.v3.AccessLogService/StreamAccessLogs",
            Method::Health => "/grpc.health.v1.Health/Check",
        }
    }

    /// The name of the method's service.
    pub fn service(self) -> &'static str {
        self.path().split('/').nth(1).expect("every path begins with the name of the service")
    }
}

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
    /// The code's number in the header `grpc-status`.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The code's name, as gRPC spells it.
    pub fn name(self) -> &'static str {
        StatusCode::name_of(self.number()).expect("every status code has a name")
    }

    /// The name of the status code with this number. None if there is no such code.
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

/// The names of the status codes, in order from 0.
const NAMES: &str = "OK CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS PERMISSION_DENIED \
    RESOURCE_EXHAUSTED FAILED_PRECONDITION ABORTED OUT_OF_RANGE UNIMPLEMENTED INTERNAL UNAVAILABLE DATA_LOSS UNAUTHENTICATED";

/// The failure of a call. Its message is ASCII without `%`, so the `grpc-message` header needs no encoding.
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
