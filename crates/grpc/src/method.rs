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

impl Method {
    /// All of them. Each has a service of its own.
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

    /// Its path in a request.
    pub const fn path(self) -> &'static str {
        match self {
            Method::ShouldRateLimit => "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
            Method::Check => "/envoy.service.auth.v3.Authorization/Check",
            Method::StreamAccessLogs => "/envoy.service.accesslog.v3.AccessLogService/StreamAccessLogs",
            Method::Health => "/grpc.health.v1.Health/Check",
        }
    }

    /// The name of its service.
    pub fn service(self) -> &'static str {
        self.path().split('/').nth(1).expect("a path begins with it")
    }
}
