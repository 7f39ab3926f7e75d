//! Streams: accepted connections, TCP or Unix.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

/// Detects within minutes that the machine of a proxy has vanished, which would send nothing more.
const KEEPALIVE: TcpKeepalive = TcpKeepalive::new().with_time(Duration::from_secs(60));

/// A connection just after `accept`, without any socket option set.
#[derive(Debug)]
pub(crate) enum Accepted {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Accepted {
    /// Sets the socket options.
    ///
    /// The task that serves the connection calls this, not the loop that accepts. Nothing here waits or fails
    /// yet. A TLS handshake would: its place is here, where it delays no other connection.
    pub(crate) fn open(self) -> Stream {
        match self {
            Accepted::Tcp(stream) => {
                // Each answer is a single write, so Nagle's algorithm would only add latency. A failure means that the
                // other side has closed, which the first read reports.
                let _ = stream.set_nodelay(true);
                let _ = SockRef::from(&stream).set_tcp_keepalive(&KEEPALIVE);
                Stream::Tcp(stream)
            }
            Accepted::Unix(stream) => Stream::Unix(stream),
        }
    }
}

/// A connection of either kind.
#[derive(Debug)]
pub enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    /// The peer's address without a port, or `unix`.
    pub(super) fn peer(&self) -> String {
        match self {
            Stream::Tcp(stream) => match stream.peer_addr() {
                Ok(peer) => peer.ip().to_canonical().to_string(),
                Err(_) => String::new(),
            },
            Stream::Unix(_) => "unix".to_owned(),
        }
    }

    /// Writes without waiting, as much as the socket accepts.
    pub(super) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.try_write(bytes),
            Stream::Unix(stream) => stream.try_write(bytes),
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            Stream::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Stream::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
