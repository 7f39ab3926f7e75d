//! One HTTP/1.1 connection, with its limits.

use std::convert::Infallible;
use std::time::Duration;

use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::server::shutdown::Shutdown;

/// The approximate limit for the head of a request: every connection may hold one in memory.
///
/// It exceeds the limits of proxies for their clients (nginx 32 KiB, HAProxy 16 KiB).
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Serves until the client closes, sends no whole request for `idle_timeout`, or the shutdown begins.
///
/// An error ends only this connection.
pub(super) async fn serve<B, F>(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    idle_timeout: Duration,
    mut shutdown: Shutdown,
    answer: impl Fn(Request<Incoming>) -> F,
) where
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
    let mut connection = std::pin::pin!(http.serve_connection(TokioIo::new(stream), service));
    let result = tokio::select! {
        result = connection.as_mut() => result,
        () = shutdown.begun() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = result {
        tracing::debug!("http connection closed: {error}");
    }
}
