//! Streams: connections over TCP, TLS or Unix sockets.

use std::io::{self, Write};
use std::net::{self, IpAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf, copy, sink};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::{TlsConnector, TlsStream};

use slowlane_core::base::Address;

/// Detects within minutes that the machine of a proxy has disappeared without closing.
const KEEPALIVE: TcpKeepalive = TcpKeepalive::new().with_time(Duration::from_secs(KEEPALIVE_S));

pub(super) const KEEPALIVE_S: u64 = 60;

/// The longest wait for the peer to close.
const DRAIN: Duration = Duration::from_secs(1);

/// The maximum number of bytes that are read in the meantime.
const BYTES_MAX: u64 = 16 << 20;

/// A connection of any kind.
#[derive(Debug)]
pub enum Stream {
    Tcp(TcpStream),
    /// A TCP socket that has never waited: the runtime does not watch it yet. None: the runtime has refused it.
    Fresh(Option<net::TcpStream>),
    /// After its handshake. Bytes that it has accepted may need a flush.
    Tls(Box<TlsStream<TcpStream>>),
    Unix(UnixStream),
}

impl Stream {
    /// Connects to an address.
    pub(crate) async fn connect(address: &Address) -> io::Result<Stream> {
        let stream = match address {
            Address::Tcp(address) => Stream::Tcp(TcpStream::connect(address).await?),
            Address::Unix(path) => Stream::Unix(UnixStream::connect(path).await?),
        };
        if let Stream::Tcp(stream) = &stream {
            set_options(stream);
        }
        Ok(stream)
    }

    /// Performs the client's handshake over TCP, and verifies that the server has the name of the host.
    pub(crate) async fn secured(self, host: &str, tls: Arc<ClientConfig>) -> io::Result<Stream> {
        let Stream::Tcp(stream) = self else { return Ok(self) };
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        Ok(Stream::Tls(Box::new(TlsConnector::from(tls).connect(name, stream).await?.into())))
    }

    /// The peer's address without a port, or `unix`.
    pub(crate) fn peer(&self) -> String {
        match self {
            Stream::Unix(_) => "unix".to_owned(),
            _ => self.peer_ip().map(|peer| peer.to_string()).unwrap_or_default(),
        }
    }

    /// None: it is a Unix socket, or the peer has already disconnected.
    pub(super) fn peer_ip(&self) -> Option<IpAddr> {
        Some(SockRef::from(self).peer_addr().ok()?.as_socket()?.ip().to_canonical())
    }

    /// The runtime watches a fresh socket from now on.
    pub(super) fn watch(&mut self) -> io::Result<()> {
        if let Stream::Fresh(socket) = self {
            let socket = socket.take().ok_or(io::ErrorKind::NotConnected)?;
            *self = Stream::Tcp(TcpStream::from_std(socket)?);
        }
        Ok(())
    }

    /// Writes without waiting, as much as the socket accepts. TLS accepts nothing this way: its records may need a
    /// flush.
    pub(super) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.try_write(bytes),
            Stream::Fresh(Some(socket)) => (&*socket).write(bytes),
            Stream::Fresh(None) => Err(io::ErrorKind::NotConnected.into()),
            Stream::Tls(_) => Err(io::ErrorKind::WouldBlock.into()),
            Stream::Unix(stream) => stream.try_write(bytes),
        }
    }
}

/// Sets the options of a TCP socket. Connections inherit those of their listener.
pub(crate) fn set_options<'s>(socket: impl Into<SockRef<'s>>) {
    let socket = socket.into();
    // Each answer is a single write, so Nagle's algorithm would only add latency. A failure means that the other side
    // has closed, which the first read reports.
    let _ = socket.set_tcp_nodelay(true);
    let _ = socket.set_tcp_keepalive(&KEEPALIVE);
}

/// Every kind of connection, as the runtime sees it.
trait Io: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Io for T {}

impl Stream {
    fn io(self: Pin<&mut Self>) -> io::Result<Pin<&mut dyn Io>> {
        let stream = self.get_mut();
        stream.watch()?;
        Ok(match stream {
            Stream::Tcp(stream) => Pin::new(stream),
            Stream::Tls(stream) => Pin::new(stream),
            Stream::Unix(stream) => Pin::new(stream),
            Stream::Fresh(_) => return Err(io::ErrorKind::NotConnected.into()),
        })
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.io()?.poll_read(cx, buf) {
            // Many peers close TLS without a close_notify. A truncated frame or request is detected anyway.
            Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => Poll::Ready(Ok(())),
            read => read,
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.io()?.poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io()?.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io()?.poll_shutdown(cx)
    }
}

/// Reads and drops bytes until the peer closes, for at most a second.
///
/// A close with unread bytes resets the connection, and the peer may lose the last answer. The proxy then has no
/// answer, and the request passes.
pub(crate) async fn drain(stream: impl AsyncRead + Unpin) {
    let (mut rest, mut nowhere) = (stream.take(BYTES_MAX), sink());
    // A peer that has disconnected, or that keeps sending, has had its answer.
    let _ = timeout(DRAIN, copy(&mut rest, &mut nowhere)).await;
}
