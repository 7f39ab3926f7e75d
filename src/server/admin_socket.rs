//! The admin socket, which offers the Runtime API to clients like socat.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::time::timeout;

use crate::server::runtime_api::{PIECE_BYTES, RuntimeAnswer, answer, commands};
use crate::server::{Accepted, Agent, Service, Shutdown, Stream, WriteTimeout, limited};

/// The maximum length of a line, as in HAProxy, where `tune.bufsize` sets it.
pub(super) const LINE_BYTES_MAX: usize = 16 * 1024;

/// The longest wait for a whole line, and for a client to read its answer.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// The service of the admin socket.
#[derive(Debug)]
pub(crate) struct AdminSocket;

impl Service for AdminSocket {
    fn call(self: Arc<Self>, Accepted { stream, agent, shutdown, .. }: Accepted) -> BoxFuture<'static, ()> {
        Box::pin(serve(stream, agent, shutdown))
    }
}

/// Answers one line and closes, unless the client closes first or the shutdown begins.
async fn serve(stream: Stream, agent: Arc<Agent>, shutdown: Shutdown) {
    let mut stream = BufReader::new(limited(stream, IDLE_TIMEOUT));
    if let Some(Err(error)) = shutdown.signal.unless_begun(converse(&mut stream, &agent)).await {
        tracing::debug!("admin socket closed: {error}");
    }
}

async fn converse(stream: &mut BufReader<WriteTimeout>, agent: &Agent) -> io::Result<()> {
    // The timeout is for the whole line, so a client cannot extend it by sending single bytes.
    let Some(line) = timeout(IDLE_TIMEOUT, line(stream)).await.unwrap_or(Ok(None))? else { return Ok(()) };
    for words in commands(&line) {
        let answer = answer(&words, &agent.throttle, agent.clock.now());
        if answer.is_end {
            break;
        }
        write(stream, answer, agent).await?;
    }
    close(stream).await
}

/// The line without its line break; `None` at the end of the input, or if the line is too long.
async fn line(stream: &mut BufReader<WriteTimeout>) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    stream.take(LINE_BYTES_MAX as u64 + 1).read_until(b'\n', &mut line).await?;
    let has_break = line.pop_if(|last| *last == b'\n').is_some();
    // At the end of the input, a line needs no line break.
    let is_line = has_break || (1..=LINE_BYTES_MAX).contains(&line.len());
    Ok(is_line.then_some(line))
}

/// Writes an answer and an empty line.
async fn write(
    stream: &mut BufReader<WriteTimeout>,
    mut answer: RuntimeAnswer,
    agent: &Agent,
) -> io::Result<()> {
    let mut piece = String::with_capacity(PIECE_BYTES);
    while answer.more(&agent.throttle, agent.clock.now(), &mut piece) {
        stream.write_all(piece.as_bytes()).await?;
        piece.clear();
        // Yield after each piece, so that other clients are served in the meantime.
        tokio::task::yield_now().await;
    }
    piece.push('\n');
    stream.write_all(piece.as_bytes()).await
}

/// Closes the connection, but first reads the remaining bytes, because unread bytes cause a connection reset.
async fn close(stream: &mut BufReader<WriteTimeout>) -> io::Result<()> {
    let mut unread = [0; LINE_BYTES_MAX];
    tokio::select! {
        biased;
        _ = stream.get_mut().read(&mut unread) => {}
        () = std::future::ready(()) => {}
    }
    stream.shutdown().await
}
