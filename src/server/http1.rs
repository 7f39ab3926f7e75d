//! One HTTP/1.1 connection, with its limits.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use hyper::body::{Body, Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncReadExt, copy, sink};
use tokio::time::timeout;

use crate::server::patience::Patience;
use crate::server::shutdown::Shutdown;
use crate::server::stream::Stream;

/// The approximate limit for the head of a request: every connection may hold one in memory.
///
/// It exceeds the limits of proxies for their clients (nginx 32 KiB, HAProxy 16 KiB).
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// The time to read and drop what a peer still sends after a refused head.
///
/// A close with unread bytes resets the connection, and the peer may lose the answer. To nginx that is no answer, and
/// the request passes.
const LINGER: Duration = Duration::from_secs(1);

/// The most such bytes.
const LINGER_BYTES_MAX: u64 = 16 << 20;

/// The limits of one connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patiences {
    /// The longest wait for a whole request.
    pub(super) idle: Duration,
    /// The longest wait for a peer that reads nothing.
    pub(super) stalled: Duration,
}

/// A connection that another process can go on with: its stream, and what was read of it and not yet used.
pub(super) type Idle = (Stream, Bytes);

/// Serves until the client closes, sends no whole request or reads no answer for too long, or the shutdown begins.
/// `unread` comes before the bytes of the stream.
///
/// An error ends only this connection. In a handover, a connection that waits for no answer is returned; any other
/// gets its answer, and is closed after it.
pub(super) async fn serve<B, F>(
    stream: Stream,
    unread: Bytes,
    patience: Patiences,
    shutdown: &mut Shutdown,
    answer: impl Fn(Request<Incoming>) -> F,
) -> Option<Idle>
where
    B: Body + 'static,
    B::Error: std::error::Error + Send + Sync,
    F: Future<Output = Response<B>>,
{
    let signal = shutdown.signal();
    let mut stream = Patience::with(stream, patience.stalled).after(unread);
    let error = match requests(&mut stream, patience.idle, shutdown, answer).await {
        Ok(unread) => {
            let (stream, later) = stream.into_parts();
            return unread.map(|unread| (stream, [unread, later].concat().into()));
        }
        Err(error) => error,
    };
    tracing::debug!("http connection closed: {error}");
    if error.is_parse() {
        let (mut rest, mut nowhere) = (stream.take(LINGER_BYTES_MAX), sink());
        tokio::select! {
            _ = timeout(LINGER, copy(&mut rest, &mut nowhere)) => {}
            () = signal.begun() => {}
        }
    }
    None
}

/// Answers the requests of a connection. Returns the bytes that were read and not used, if another process can go on.
async fn requests<B, F>(
    stream: &mut Patience,
    idle_timeout: Duration,
    shutdown: &mut Shutdown,
    answer: impl Fn(Request<Incoming>) -> F,
) -> hyper::Result<Option<Bytes>>
where
    B: Body + 'static,
    B::Error: std::error::Error + Send + Sync,
    F: Future<Output = Response<B>>,
{
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(idle_timeout).max_buf_size(HEAD_BYTES_MAX);
    let (is_stalled, is_answering) = (stream.is_stalled(), AtomicBool::new(false));
    let is_movable = !stream.is_tls();
    let service = service_fn(|request| {
        is_answering.store(true, Relaxed);
        let answer = answer(request);
        async {
            let answer = answer.await;
            is_answering.store(false, Relaxed);
            Ok::<_, Infallible>(answer)
        }
    });
    let mut connection = http.serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        // First, so that the connection has done all that it can when the shutdown is looked at.
        biased;
        result = &mut connection => return result.map(|()| None),
        () = shutdown.begun() => {}
    }
    let is_idle = !is_answering.load(Relaxed) && !is_stalled.load(Relaxed);
    if is_idle && is_movable && shutdown.is_handover() {
        return Ok(Some(connection.into_parts().read_buf));
    }
    Pin::new(&mut connection).graceful_shutdown();
    shutdown.decides_no_more();
    connection.await.map(|()| None)
}
