//! A stream whose other end must take what it asked for.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::server::socket::Stream;

/// Gives a connection up whose other end has read nothing for so long: it holds one of a bounded number of places.
pub(super) struct Patience {
    stream: Stream,
    stalled_max: Duration,
    stalled_until: Option<Pin<Box<Sleep>>>,
}

impl Patience {
    pub(super) fn with(stream: Stream, stalled_max: Duration) -> Patience {
        Patience { stream, stalled_max, stalled_until: None }
    }
}

impl AsyncRead for Patience {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Patience {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let patience = self.get_mut();
        if let Poll::Ready(written) = Pin::new(&mut patience.stream).poll_write(cx, bytes) {
            patience.stalled_until = None;
            return Poll::Ready(written);
        }
        let until = Instant::now() + patience.stalled_max;
        let stalled = patience.stalled_until.get_or_insert_with(|| Box::pin(sleep_until(until)));
        stalled.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
