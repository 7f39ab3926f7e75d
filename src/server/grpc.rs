//! The gRPC listener: Envoy's rate limit, authorization and access log services, and the health check, over HTTP/2.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::BytesMut;
use fastrand::Rng;
use futures_util::future::BoxFuture;
use grpc::accesslog::LogMessage;
use grpc::auth::{CheckRequest, CheckResponse};
use grpc::ratelimit::{Descriptor, RateLimitRequest, RateLimitResponse};
use grpc::{
    BODY_BYTES_MAX, GrpcStatus, Method, StatusCode as Code, decoded, framed, health, next_message, unframed,
};
use http_body_util::combinators::WithTrailers;
use http_body_util::{BodyExt, Either, Empty, Full, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use crate::proxy::envoy::{self, DescriptorRuling, Origins};
use crate::server::{Accepted, Agent, Service, Shutdown, Signal, Stream, limited};
use slowlane_core::base::{self, Field, SloId, Timestamp};
use slowlane_core::policy::{Policy, Slo};

/// The maximum number of concurrent calls on one connection. Envoy sends a burst before it knows this number, and lets
/// the requests of refused calls pass, so the number is high.
const STREAMS_MAX: u32 = 1_024;

/// The maximum number of messages that are read concurrently on one connection. Other messages wait, within the flow
/// control window.
const READS_MAX: usize = 64;

/// The maximum number of access logs on one connection. Each thread of Envoy sends one log, on its own connection.
const LOGS_MAX: usize = 16;

/// The maximum size of the headers of a call. Envoy forwards the `tracestate` of its client, which may have 60 KiB.
const HEADERS_BYTES_MAX: u32 = 96 * 1024;

/// The maximum number of streams that arrive together and are reset before they are served. More streams end the
/// connection (CVE-2023-44487). A client of the proxy can cause some, because its own resets cancel calls.
const RESETS_PENDING_MAX: usize = 4_096;

/// The maximum number of streams that are refused, or reset because of an error, over the life of a connection. More
/// streams end the connection (CVE-2025-8671).
const ERRORS_MAX: usize = 100_000;

/// The flow control windows of a stream and of a connection: the number of bytes that may arrive before they are read.
const STREAM_WINDOW_BYTES: u32 = 64 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;

/// The longest wait for the message of a call.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest wait for a call. Envoy opens a connection again when it needs one.
const IDLE_TIMEOUT: Duration = Duration::from_secs(75);

/// The longest wait for calls in flight at the end of a connection. It is short, because an upgrade waits at most a
/// second for all decisions to stop, and a client may leave the GOAWAY unread.
const LAST_CALLS_MAX: Duration = Duration::from_millis(400);

/// The longest wait for a client that does not read its responses.
const STALLED_MAX: Duration = Duration::from_secs(60);

const GRPC: &[u8] = b"application/grpc";
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// The service of the gRPC listener, shared by all its connections.
#[derive(Debug)]
pub(crate) struct Grpc {
    pub(crate) origins: Origins,
}

impl Grpc {
    /// Serves a connection until the client closes it, is idle for too long or does not read its responses, or the
    /// shutdown begins. An idle client, or the shutdown, causes a GOAWAY, and calls in flight are answered.
    async fn serve(self: Arc<Self>, stream: Stream, agent: Arc<Agent>, mut shutdown: Shutdown) {
        let signal = shutdown.signal.clone();
        let called = AtomicU64::new(agent.clock.now().as_nanos());
        let reads = Semaphore::new(READS_MAX);
        let logs = Semaphore::new(LOGS_MAX);
        let calls = Arc::new(Calls { grpc: self, agent, signal: signal.clone(), called, reads, logs });
        let answer = |request| {
            let calls = calls.clone();
            async move { Ok::<_, Infallible>(calls.answer(request).await) }
        };
        let mut http = http2::Builder::new(TokioExecutor::new());
        http.timer(TokioTimer::new())
            .auto_date_header(false)
            .max_concurrent_streams(STREAMS_MAX)
            .max_header_list_size(HEADERS_BYTES_MAX)
            .max_pending_accept_reset_streams(RESETS_PENDING_MAX)
            .max_local_error_reset_streams(ERRORS_MAX)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES);
        let stream = TokioIo::new(limited(stream, STALLED_MAX));
        let served = {
            let mut connection = pin!(http.serve_connection(stream, service_fn(answer)));
            let served = tokio::select! {
                biased;
                served = &mut connection => Some(served),
                () = signal.begun() => None,
                () = calls.idle() => None,
            };
            match served {
                Some(served) => Ok(served),
                None => {
                    connection.as_mut().graceful_shutdown();
                    timeout(LAST_CALLS_MAX, connection).await
                }
            }
        };
        // Waits for access logs, because the ends that they report belong to the state that an upgrade hands over.
        let _ = timeout(LAST_CALLS_MAX, calls.logs.acquire_many(LOGS_MAX as u32)).await;
        shutdown.decides_no_more();
        if let Ok(Err(error)) = served {
            tracing::debug!("grpc connection closed: {error}");
        }
    }
}

impl Service for Grpc {
    fn call(self: Arc<Self>, Accepted { stream, agent, shutdown, .. }: Accepted) -> BoxFuture<'static, ()> {
        Box::pin(self.serve(stream, agent, shutdown))
    }
}

/// The calls of one connection.
#[derive(Debug)]
struct Calls {
    grpc: Arc<Grpc>,
    agent: Arc<Agent>,
    signal: Signal,
    /// The time of the latest call, in nanoseconds; at first, the connection's start. Open access logs renew it.
    called: AtomicU64,
    /// Places for messages that are being read.
    reads: Semaphore,
    /// Places for access logs.
    logs: Semaphore,
}

impl Calls {
    /// Returns when no call has arrived for [`IDLE_TIMEOUT`].
    async fn idle(&self) {
        loop {
            let due = Timestamp::from_nanos(self.called.load(Relaxed)) + IDLE_TIMEOUT;
            match due.since(self.agent.clock.now()) {
                Duration::ZERO => return,
                left => sleep(left).await,
            }
        }
    }

    /// Restarts the wait for the next call.
    fn is_called(&self) {
        self.called.store(self.agent.clock.now().as_nanos(), Relaxed);
    }

    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Response<MessageBody> {
        self.is_called();
        if !is_grpc(request.headers()) {
            let mut response = Response::new(Either::Right(Empty::new()));
            *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
            return response;
        }
        match self.call(request).await {
            Ok(message) => of_grpc(succeeded(message)),
            Err(GrpcStatus { code, message }) => {
                self.agent.metrics.plain.grpc_failed(code.name());
                let mut response = of_grpc(Either::Right(Empty::new()));
                response.headers_mut().insert(GRPC_STATUS, number(code));
                response.headers_mut().insert(GRPC_MESSAGE, HeaderValue::from_static(message));
                response
            }
        }
    }

    /// Carries out a call, and returns the message of the response.
    async fn call(self: &Arc<Self>, request: Request<Incoming>) -> Result<Vec<u8>, GrpcStatus> {
        let method = Method::at(request.uri().path())
            .ok_or(GrpcStatus::new(Code::Unimplemented, "there is no such method"))?;
        let body = request.into_body();
        Ok(match method {
            Method::ShouldRateLimit => framed(&self.rate_limit(&decoded(&self.message(body).await?)?)?),
            Method::Check => framed(&self.check(&decoded(&self.message(body).await?)?)),
            Method::StreamAccessLogs => {
                // Answering at shutdown makes Envoy open another log. Messages already sent are still read.
                let reading = tokio::spawn(self.clone().read_log(body));
                if let Some(Ok(Err(status))) = self.signal.unless_begun(reading).await {
                    return Err(status);
                }
                framed(&())
            }
            Method::Health => {
                framed(&health::health(&decoded(&self.message(body).await?)?, self.signal.has_ended())?)
            }
        })
    }

    /// Reads the only message of a call.
    async fn message(&self, of: Incoming) -> Result<Bytes, GrpcStatus> {
        let _place = self.reads.acquire().await;
        unframed(&body(of).await?)
    }

    /// Reads an access log until Envoy ends it.
    async fn read_log(self: Arc<Self>, mut body: Incoming) -> Result<(), GrpcStatus> {
        let Ok(_place) = self.logs.try_acquire() else { return Err(TOO_MANY_LOGS) };
        let mut unread = BytesMut::new();
        loop {
            let frame = timeout(IDLE_TIMEOUT / 2, body.frame()).await;
            // A log keeps its connection open, however rarely a request ends.
            self.is_called();
            match frame {
                Err(_) => continue,
                Ok(Some(Ok(frame))) => unread.extend_from_slice(&frame.into_data().unwrap_or_default()),
                Ok(None | Some(Err(_))) => return Ok(()),
            }
            while let Some(message) = next_message(&mut unread)? {
                self.end_all(&message);
            }
        }
    }

    /// Ends the requests that a log message reports. An unreadable message is skipped, because the next message may be
    /// readable.
    fn end_all(&self, message: &Bytes) {
        match decoded::<LogMessage>(message) {
            Ok(message) => envoy::ends(&message).for_each(|(ticket, ending)| {
                self.agent.metrics.plain.end_lines.inc();
                self.agent.end(ticket, Ok(ending), self.agent.clock.now());
            }),
            Err(status) => self.agent.metrics.plain.grpc_failed(status.code.name()),
        }
    }

    fn rate_limit(&self, request: &RateLimitRequest) -> Result<RateLimitResponse, GrpcStatus> {
        envoy::check(request)?;
        let (agent, now) = (&*self.agent, self.agent.clock.now());
        let policy = agent.throttle.policy();
        let texts: Vec<String> = request.descriptors.iter().map(envoy::descriptor_text).collect();
        let fields_of = |at: usize| {
            envoy::descriptor_fields(request, &request.descriptors[at], &texts[at], &self.grpc.origins)
        };
        let replaced = replaced(&policy, request, fields_of);
        let limited = |(at, descriptor): (usize, &Descriptor)| {
            if replaced[at] {
                return DescriptorRuling::replaced(now);
            }
            let own = envoy::own_slo(descriptor);
            let own = own.map(|slo| (envoy::own_key(request, &texts[at], &slo, agent.secret), slo));
            let own = own.as_ref().map(|(key, slo)| (*key, slo));
            let decision = agent.decide_descriptor(&policy, || fields_of(at), own, now);
            let slo = own.map(|(_, slo)| slo).or_else(|| policy.slo(decision.slo));
            let counts = slo.filter(|slo| slo.work.is_none() && !slo.objective.rate.is_unlimited());
            let is_unlimited = |slo: &Slo| slo.id != SloId::DEFAULT && slo.is_unlimited();
            DescriptorRuling {
                is_unlimited: slo.is_some_and(is_unlimited),
                is_quota: slo.is_some_and(|slo| slo.is_quota),
                rate: counts.map(|slo| slo.objective.rate),
                name: slo.and_then(|slo| slo.name.clone()).unwrap_or_default(),
                resets_in: counts.and_then(|slo| agent.throttle.resets_in(slo, decision.key, now)),
                decision,
            }
        };
        let limited: Vec<DescriptorRuling> = request.descriptors.iter().enumerate().map(limited).collect();
        let decision = envoy::deciding(&limited).expect("there is a descriptor").decision;
        if !decision.is_let_through() {
            limited.iter().for_each(|one| agent.leave(&policy, &one.decision, now));
        }
        let asks = (0..limited.len()).any(|at| envoy::asks_quota(fields_of(at)));
        let quota = if asks { policy.quota(decision.slo, decision.remaining) } else { None };
        Ok(envoy::rate_limited(&limited, &decision, quota, agent.secret))
    }

    fn check(&self, request: &CheckRequest) -> CheckResponse {
        let fields = || envoy::attribute_fields(request, &self.grpc.origins);
        let (agent, policy) = (&self.agent, self.agent.throttle.policy());
        let decision = agent.decide(&policy, fields, false, |_| None, &mut Rng::new(), agent.clock.now());
        let asks = envoy::asks_quota(fields());
        let quota = if asks { policy.quota(decision.slo, decision.remaining) } else { None };
        envoy::authorized(&decision, quota, agent.secret)
    }
}

const TOO_MANY_LOGS: GrpcStatus =
    GrpcStatus::new(Code::ResourceExhausted, "this connection already has 16 access logs");

/// For each descriptor, whether the SLO of another descriptor replaces its SLO.
fn replaced<'f, F: Iterator<Item = Field<'f>>>(
    policy: &Policy,
    request: &RateLimitRequest,
    fields_of: impl Fn(usize) -> F,
) -> Vec<bool> {
    let descriptors = request.descriptors.iter().enumerate();
    if !policy.has_replacements() {
        return vec![false; descriptors.len()];
    }
    let slo_of = |(at, descriptor): (usize, &Descriptor)| {
        let mut fields = base::Request::new();
        fields_of(at).for_each(|field| fields.push(field.name, field.value));
        descriptor.limit.is_none().then(|| policy.cases(&fields).list[0].slo)
    };
    let slos: Vec<Option<&Slo>> = descriptors.map(slo_of).collect();
    let replaces = |name: &String| slos.iter().flatten().any(|slo| slo.replaces.contains(name));
    slos.iter().map(|slo| slo.is_some_and(|slo| slo.name.as_ref().is_some_and(replaces))).collect()
}

/// Whether the request is a gRPC call: its content type is `application/grpc`, perhaps with a suffix like `+proto`.
fn is_grpc(headers: &HeaderMap) -> bool {
    let rest = headers.get(CONTENT_TYPE).and_then(|kind| kind.as_bytes().strip_prefix(GRPC));
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}

/// Reads the body of a request, and limits its length and the time it may take.
async fn body(body: Incoming) -> Result<Bytes, GrpcStatus> {
    let whole = Limited::new(body, BODY_BYTES_MAX).collect();
    match timeout(MESSAGE_TIMEOUT, whole).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(grpc::TOO_LARGE),
        Ok(Err(_)) => Err(GrpcStatus::new(Code::Internal, "the message ended early")),
        Err(_) => Err(GrpcStatus::new(Code::DeadlineExceeded, "the message took too long")),
    }
}

fn of_grpc(message: MessageBody) -> Response<MessageBody> {
    let mut response = Response::new(message);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

fn number(code: Code) -> HeaderValue {
    HeaderValue::from(u16::from(code.number()))
}

/// The body of a response: a message with the status in the trailers, or nothing with the status in the headers.
type MessageBody =
    Either<WithTrailers<Full<Bytes>, Ready<Option<Result<HeaderMap, Infallible>>>>, Empty<Bytes>>;

fn succeeded(message: Vec<u8>) -> MessageBody {
    let trailers = HeaderMap::from_iter([(GRPC_STATUS, number(Code::Ok))]);
    Either::Left(Full::from(message).with_trailers(ready(Some(Ok(trailers)))))
}
