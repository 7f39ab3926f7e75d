//! One connection to the admin listener over HTTP/1.1, with its limits.

use std::convert::Infallible;
use std::pin::Pin;
use std::time::Duration;

use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};

use crate::server::shutdown::Shutdown;
use crate::server::stream::{Stream, drain};
use crate::server::write_timeout::{WriteTimeout, limited};

/// The approximate limit for the head of a request: every connection may hold one in memory.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// The limits of one connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct WriteTimeouts {
    /// The longest wait for a whole request.
    pub(super) idle: Duration,
    /// The longest wait for a peer that reads nothing.
    pub(super) stalled: Duration,
}

/// Serves until the client closes, sends no whole request or reads no answer for too long, or the shutdown begins. An
/// error ends only this connection.
pub(super) async fn serve<B, F>(
    stream: Stream,
    patience: WriteTimeouts,
    shutdown: &mut Shutdown,
    answer: impl Fn(Request<Incoming>) -> F,
) where
    B: Body + 'static,
    B::Error: std::error::Error + Send + Sync,
    F: Future<Output = Response<B>>,
{
    let signal = shutdown.signal();
    let mut stream = limited(stream, patience.stalled);
    let Err(error) = requests(&mut stream, patience.idle, shutdown, answer).await else { return };
    tracing::debug!("http connection closed: {error}");
    if error.is_parse() {
        signal.unless_begun(drain(stream)).await;
    }
}

/// Answers the requests of a connection.
async fn requests<B, F>(
    stream: &mut WriteTimeout,
    idle_timeout: Duration,
    shutdown: &mut Shutdown,
    answer: impl Fn(Request<Incoming>) -> F,
) -> hyper::Result<()>
where
    B: Body + 'static,
    B::Error: std::error::Error + Send + Sync,
    F: Future<Output = Response<B>>,
{
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(idle_timeout).max_buf_size(HEAD_BYTES_MAX);
    let service = service_fn(|request| {
        let answer = answer(request);
        async { Ok::<_, Infallible>(answer.await) }
    });
    let mut connection = http.serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        // First, so that the connection has done all that it can when the shutdown is looked at.
        biased;
        result = &mut connection => return result,
        () = shutdown.begun() => {}
    }
    Pin::new(&mut connection).graceful_shutdown();
    shutdown.decides_no_more();
    connection.await
}
