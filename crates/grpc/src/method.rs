//! The methods of the services.

/// A method that has an implementation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    ShouldRateLimit,
    Check,
    /// A stream of messages, and one response at its end.
    StreamAccessLogs,
    Health,
}

const RATE_LIMIT: &str = "envoy.service.ratelimit.v3.RateLimitService";
const AUTHORIZATION: &str = "envoy.service.auth.v3.Authorization";
const ACCESS_LOG: &str = "envoy.service.accesslog.v3.AccessLogService";
const HEALTH: &str = "grpc.health.v1.Health";

impl Method {
    /// The names of the services.
    pub const SERVICES: [&str; 4] = [RATE_LIMIT, AUTHORIZATION, ACCESS_LOG, HEALTH];

    /// The method at the path of a request, `/service/method`.
    ///
    /// ```
    /// use grpc::Method;
    /// assert_eq!(Method::at("/envoy.service.auth.v3.Authorization/Check"), Some(Method::Check));
    /// assert_eq!(Method::at(&Method::Health.path()), Some(Method::Health));
    /// assert_eq!(Method::at("/grpc.health.v1.Health/Watch"), None);
    /// ```
    pub fn at(path: &str) -> Option<Method> {
        Some(match path.strip_prefix('/')?.split_once('/')? {
            (RATE_LIMIT, "ShouldRateLimit") => Method::ShouldRateLimit,
            (AUTHORIZATION, "Check") => Method::Check,
            (ACCESS_LOG, "StreamAccessLogs") => Method::StreamAccessLogs,
            (HEALTH, "Check") => Method::Health,
            _ => return None,
        })
    }

    /// Its path in a request.
    pub fn path(self) -> String {
        let (service, name) = match self {
            Method::ShouldRateLimit => (RATE_LIMIT, "ShouldRateLimit"),
            Method::Check => (AUTHORIZATION, "Check"),
            Method::StreamAccessLogs => (ACCESS_LOG, "StreamAccessLogs"),
            Method::Health => (HEALTH, "Check"),
        };
        format!("/{service}/{name}")
    }
}
