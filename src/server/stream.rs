//! Streams: connections over TCP, TLS or Unix sockets.

use std::io::{self, Write};
use std::net::{self, IpAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf, copy, sink};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_io_timeout::TimeoutWriter;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::{TlsConnector, TlsStream};

use slowlane_core::base::Address;

/// Probes that detect within minutes that the machine of a proxy has disappeared without closing its connections.
const KEEPALIVE: TcpKeepalive = TcpKeepalive::new().with_time(Duration::from_secs(KEEPALIVE_S));

pub(super) const KEEPALIVE_S: u64 = 60;

/// The longest wait for the peer to close.
const DRAIN: Duration = Duration::from_secs(1);

/// The maximum number of bytes that are read while waiting for the peer to close.
const BYTES_MAX: u64 = 16 << 20;

/// A connection of any kind.
#[derive(Debug)]
pub enum Stream {
    Tcp(TcpStream),
    /// A TCP socket that has never waited, so the runtime does not watch it yet. `None` if the runtime has refused it.
    Fresh(Option<net::TcpStream>),
    /// A TLS connection after its handshake. Bytes that it has accepted may need a flush.
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

    /// Performs the client's TLS handshake over TCP; a Unix socket is left unchanged. `host` is the name to verify.
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

    /// The IP address of the peer. `None` for a Unix socket, or if the peer has already disconnected.
    pub(super) fn peer_ip(&self) -> Option<IpAddr> {
        Some(SockRef::from(self).peer_addr().ok()?.as_socket()?.ip().to_canonical())
    }

    /// Registers a fresh socket with the runtime, which watches it from now on.
    pub(super) fn watch(&mut self) -> io::Result<()> {
        if let Stream::Fresh(socket) = self {
            let socket = socket.take().ok_or(io::ErrorKind::NotConnected)?;
            *self = Stream::Tcp(TcpStream::from_std(socket)?);
        }
        Ok(())
    }

    /// Writes as much as the socket accepts, without waiting. TLS accepts nothing this way: its records may need a
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

/// Sets the options of a TCP socket. Connections inherit the options of their listener.
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

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Fresh(socket) => socket.as_ref().expect("a refused socket ends its connection").as_fd(),
            Stream::Tls(stream) => stream.get_ref().0.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
        }
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

/// Reads and drops bytes until the peer closes, for at most a second or [`BYTES_MAX`].
///
/// A close with unread bytes resets the connection, and the peer may lose the last answer. The proxy then has no
/// answer, and the request passes.
pub(crate) async fn drain(stream: impl AsyncRead + Unpin) {
    let (mut rest, mut nowhere) = (stream.take(BYTES_MAX), sink());
    // A peer that has disconnected, or that keeps sending, has had time to read its answer.
    let _ = timeout(DRAIN, copy(&mut rest, &mut nowhere)).await;
}

/// A stream whose writes fail with `TimedOut` if the client reads nothing for too long.
pub(crate) type WriteTimeout = Pin<Box<TimeoutWriter<Stream>>>;

/// Limits the wait for a client that reads nothing, because its connection occupies one of a limited number of places.
pub(crate) fn limited(stream: Stream, stalled_max: Duration) -> WriteTimeout {
    let mut stream = TimeoutWriter::new(stream);
    stream.set_timeout(Some(stalled_max));
    Box::pin(stream)
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::sync::Arc;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixStream;
    use tokio::sync::mpsc::channel;
    use tokio::time::{Instant, sleep, timeout};

    use super::*;
    use crate::observe::clock::Clock;
    use crate::observe::metrics::Metrics;
    use crate::observe::status::Status;
    use crate::server::acceptor::{Accepted, Service};
    use crate::server::admin::Admin;
    use crate::server::admin_socket::AdminSocket;
    use crate::server::agent::Agent;
    use crate::server::hosts::Hosts;
    use crate::server::http::Check;
    use crate::server::shutdown;
    use slowlane_core::base::{HoldLimits, Key, WhenFull};
    use slowlane_core::policy::Policy;
    use slowlane_core::table::Sizing;
    use slowlane_core::throttle::Throttle;

    /// An agent with more rows in its table than the buffers of a socket can hold.
    fn agent() -> Arc<Agent> {
        let sizing = Sizing { entries_max: 50_000, expire: Duration::from_secs(3_600) };
        let throttle = Arc::new(Throttle::new(Policy::builtin(), sizing, 0));
        let hold = HoldLimits { holds_max: 1, hold_max: Duration::from_secs(1), when_full: WhenFull::Pass };
        let (metrics, status) = (Arc::new(Metrics::new()), Arc::new(Status::default()));
        let agent = Agent::new(throttle, Clock::start(), hold, metrics, status);
        for bits in 0..40_000u64 {
            let key = Key::from_bits(bits.wrapping_mul(0x9E37_79B9_7F4A_7C15));
            agent.throttle.table().with(key, agent.clock.now(), Duration::ZERO, |entry| entry.gpt0 = 1_000);
        }
        Arc::new(agent)
    }

    /// A listener that can show the whole table.
    #[derive(Clone, Copy, Debug)]
    enum Way {
        Socket,
        Http,
    }

    const WAYS: [Way; 2] = [Way::Socket, Way::Http];

    impl Way {
        fn question(self) -> &'static [u8] {
            match self {
                Way::Socket => b"show table slowlane\n",
                Way::Http => {
                    b"POST /api/runtime HTTP/1.1\r\nHost: s\r\nConnection: close\r\nContent-Length: 19\r\n\r\nshow table slowlane"
                }
            }
        }

        async fn serve(self, agent: Arc<Agent>, stream: UnixStream) -> Duration {
            match self {
                Way::Socket => serve(AdminSocket, agent, stream).await,
                Way::Http => {
                    let (token, hosts, upgrades) = (None, Hosts::default(), channel(1).0);
                    serve(Admin { token, hosts, upgrades }, agent, stream).await
                }
            }
        }
    }

    /// Serves one connection and returns the time that it took.
    async fn serve(service: impl Service, agent: Arc<Agent>, stream: UnixStream) -> Duration {
        let (_trigger, shutdown) = shutdown::channel();
        let (started, stream) = (Instant::now(), Stream::Unix(stream));
        Arc::new(service).call(Accepted { stream, earlier: None, guest: None, agent, shutdown }).await;
        started.elapsed()
    }

    fn is_about(reported: Duration, seconds: u64) -> bool {
        reported.as_secs_f64().round() as u64 == seconds
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_is_closed_after_a_minute() {
        let agent = agent();
        for way in WAYS {
            let (mut client, server) = UnixStream::pair().unwrap();
            client.write_all(way.question()).await.unwrap();
            let served = way.serve(agent.clone(), server).await;
            assert!(is_about(served, 60), "{way:?}: {served:?}");
            let mut answer = Vec::new();
            client.read_to_end(&mut answer).await.unwrap();
            assert!(!answer.is_empty() && !answer.ends_with(b"\n\n"), "{way:?}: the answer is cut off");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_reader_gets_the_whole_answer() {
        let agent = agent();
        for way in WAYS {
            let (mut client, server) = UnixStream::pair().unwrap();
            client.write_all(way.question()).await.unwrap();
            let served = tokio::spawn(way.serve(agent.clone(), server));
            let (mut answer, mut piece) = (Vec::new(), vec![0; 256 * 1024]);
            loop {
                sleep(Duration::from_secs(50)).await;
                match client.read(&mut piece).await.unwrap() {
                    0 => break,
                    count => answer.extend_from_slice(&piece[..count]),
                }
            }
            assert!(served.await.unwrap() > Duration::from_secs(300), "{way:?}");
            let rows = String::from_utf8(answer).unwrap().matches(" key=").count();
            assert_eq!(rows as u64, agent.throttle.usage().entries, "{way:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn single_bytes_do_not_extend_the_timeout() {
        let agent = agent();
        for (way, seconds) in [(Way::Socket, 60), (Way::Http, 75)] {
            for letters in [&b""[..], b"GET /api/status"] {
                let (mut client, server) = UnixStream::pair().unwrap();
                let served = tokio::spawn(way.serve(agent.clone(), server));
                for letter in letters {
                    sleep(Duration::from_secs(9)).await;
                    match client.write_all(&[*letter]).await {
                        Ok(()) => {}
                        Err(error) if error.kind() == ErrorKind::BrokenPipe => break,
                        Err(error) => panic!("{error}"),
                    }
                }
                let served = served.await.unwrap();
                assert!(is_about(served, seconds), "{way:?}: {served:?}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_asks_on_and_never_reads_is_closed() {
        for is_check in [true, false] {
            let (mut client, server) = UnixStream::pair().unwrap();
            tokio::spawn(async move {
                let line = if is_check { "GET /check" } else { "GET /healthz" };
                let questions = format!("{line} HTTP/1.1\r\nHost: s\r\n\r\n").repeat(100);
                while client.write_all(questions.as_bytes()).await.is_ok() {}
                sleep(Duration::from_secs(1_000)).await;
            });
            let served = async {
                match is_check {
                    true => serve(Check::new(Duration::from_secs(75), Vec::new()), agent(), server).await,
                    false => Way::Http.serve(agent(), server).await,
                }
            };
            let served = timeout(Duration::from_secs(600), served).await.expect("the connection is closed");
            assert!(is_about(served, if is_check { 75 } else { 60 }), "{served:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_come_is_waited_for_ten_seconds() {
        let (mut client, server) = UnixStream::pair().unwrap();
        let served = tokio::spawn(Way::Http.serve(agent(), server));
        client.write_all(&Way::Http.question()[..90]).await.unwrap();
        let mut answer = String::new();
        timeout(Duration::from_secs(11), client.read_to_string(&mut answer)).await.unwrap().unwrap();
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
        assert!(is_about(served.await.unwrap(), 10));
    }
}
