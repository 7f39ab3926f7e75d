//! Listeners and streams, TCP or Unix, bound here or handed over by systemd.

use std::fmt;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use listenfd::ListenFd;
use socket2::{SockRef, TcpKeepalive};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener, UnixStream, lookup_host};

use crate::base::address::{Address, is_loopback};

/// Who may connect to a Unix socket, unless told otherwise: its owner and its group.
pub const UNIX_MODE: u32 = 0o660;

/// A proxy whose machine has vanished says nothing more; its connections are found out in some minutes.
const KEEPALIVE: TcpKeepalive = TcpKeepalive::new().with_time(Duration::from_secs(60));

/// The most connections that wait to be accepted. nginx, and HAProxy up to 3.0, open one for each request that waits, hundreds
/// within a millisecond; a connection that finds the queue full (128 by default) is tried again only after a second.
const BACKLOG: u32 = 4096;

/// An admin listener that others could reach, without a token.
#[derive(Debug, Error)]
#[error(
    "admin on {0} is open to others: set a token ([admin] token or token_file), or listen on 127.0.0.1 or unix:/path"
)]
pub struct OpenAdmin(String);

impl OpenAdmin {
    pub fn unless_local(address: &Address) -> Result<(), OpenAdmin> {
        if address.is_local() { Ok(()) } else { Err(OpenAdmin(address.to_string())) }
    }

    /// The same of what a name has come to, or systemd has opened.
    pub fn unless_bound_locally(listener: &Listener) -> Result<(), OpenAdmin> {
        let is_local = match listener {
            Listener::Tcp(tcp) => tcp.local_addr().is_ok_and(|bound| is_loopback(bound.ip())),
            Listener::Unix(..) => true,
        };
        if is_local { Ok(()) } else { Err(OpenAdmin(listener.to_string())) }
    }
}

/// A listener that cannot be had, and what would help.
#[derive(Debug, Error)]
#[error("cannot listen on {address}: {source}; {}", remedy(.source))]
pub struct BindError {
    address: String,
    source: io::Error,
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => "stop what listens there, or choose another address",
        io::ErrorKind::PermissionDenied => "choose a place that this user may use",
        io::ErrorKind::NotFound => "make its directory first, or choose another address",
        io::ErrorKind::AddrNotAvailable => "choose an address that this machine has",
        _ => "choose another address",
    }
}

/// A bound socket.
#[derive(Debug)]
pub enum Listener {
    Tcp(TcpListener),
    /// The path is removed when the listener goes; a socket from systemd has none to remove.
    Unix(UnixListener, Option<PathGuard>),
}

impl Listener {
    /// A Unix socket gets the permissions of `unix_mode`.
    pub async fn bind(address: &Address, unix_mode: u32) -> Result<Listener, BindError> {
        let listener = match address {
            Address::Tcp(address) => bind_tcp(address).await,
            Address::Unix(path) => bind_unix(path, unix_mode).await,
        };
        listener.map_err(|source| BindError { address: address.to_string(), source })
    }

    pub async fn accept(&self) -> io::Result<Stream> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                // Each answer is one write already; waiting for a second would only add latency. Where it is
                // refused the other side has gone, and the first read says so.
                let _ = stream.set_nodelay(true);
                let _ = SockRef::from(&stream).set_tcp_keepalive(&KEEPALIVE);
                Ok(Stream::Tcp(stream))
            }
            Listener::Unix(listener, _) => Ok(Stream::Unix(listener.accept().await?.0)),
        }
    }
}

impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Listener::Tcp(listener) => match listener.local_addr() {
                Ok(address) => address.fmt(f),
                Err(_) => f.write_str("tcp"),
            },
            Listener::Unix(listener, _) => {
                let address = listener.local_addr().ok();
                match address.as_ref().and_then(|address| address.as_pathname()) {
                    Some(path) => write!(f, "unix:{}", path.display()),
                    None => f.write_str("unix"),
                }
            }
        }
    }
}

/// The sockets that systemd has opened, by the names that their units give them.
#[derive(Debug, Default)]
pub struct Handed(Vec<(String, Offered)>);

/// A socket that is of no runtime yet: the one that takes it serves it.
#[derive(Debug)]
enum Offered {
    Tcp(std::net::TcpListener),
    Unix(std::os::unix::net::UnixListener),
}

impl Offered {
    fn take(self) -> io::Result<Listener> {
        match self {
            Offered::Tcp(listener) => {
                listener.set_nonblocking(true)?;
                TcpListener::from_std(listener).map(Listener::Tcp)
            }
            Offered::Unix(listener) => {
                listener.set_nonblocking(true)?;
                UnixListener::from_std(listener).map(|listener| Listener::Unix(listener, None))
            }
        }
    }
}

impl Handed {
    /// Takes what `LISTEN_FDS` offers. A socket that is no listener is left alone.
    pub fn from_systemd() -> Handed {
        let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
        let mut names = names.split(':').map(str::to_owned);
        let mut offered = ListenFd::from_env();
        let mut handed = Vec::new();
        for number in 0..offered.len() {
            let name = names.next().unwrap_or_default();
            match take(&mut offered, number) {
                Ok(socket) => handed.push((name, socket)),
                Err(error) => of_no_use(&name, &error),
            }
        }
        Handed(handed)
    }

    /// The sockets of this name, for the runtime that this is called in. One without a name of ours is taken for SPOP.
    pub fn take(&mut self, name: &str) -> Vec<Listener> {
        let is_ours = |given: &str| given == name || (name == "spop" && !["http", "admin"].contains(&given));
        let (ours, others) = std::mem::take(&mut self.0).into_iter().partition(|(given, _)| is_ours(given));
        self.0 = others;
        let ours: Vec<(String, Offered)> = ours;
        let take = |(name, socket): (String, Offered)| {
            socket.take().inspect_err(|error| of_no_use(&name, error)).ok()
        };
        ours.into_iter().filter_map(take).collect()
    }
}

fn take(offered: &mut ListenFd, number: usize) -> io::Result<Offered> {
    if let Ok(Some(listener)) = offered.take_tcp_listener(number) {
        return Ok(Offered::Tcp(listener));
    }
    offered.take_unix_listener(number)?.map(Offered::Unix).ok_or_else(|| io::ErrorKind::NotFound.into())
}

fn of_no_use(name: &str, error: &io::Error) {
    tracing::warn!("socket {name:?} from systemd is of no use: {error}");
}

/// Binds the first of the addresses that a name has and that can be had.
async fn bind_tcp(address: &str) -> io::Result<Listener> {
    let mut result = Err(io::ErrorKind::AddrNotAvailable.into());
    for address in lookup_host(address).await? {
        result = listen(address).map(Listener::Tcp);
        if result.is_ok() {
            break;
        }
    }
    result
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A restart may find connections of the one before still in TIME-WAIT.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Takes the place of a socket file that nobody listens on any more, and of nothing else.
async fn bind_unix(path: &Path, mode: u32) -> io::Result<Listener> {
    if fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
        match UnixStream::connect(path).await {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path)?,
            _ => return Err(io::ErrorKind::AddrInUse.into()),
        }
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    Ok(Listener::Unix(listener, Some(PathGuard(path.to_owned()))))
}

/// Removes a socket file with its listener.
#[derive(Debug)]
pub struct PathGuard(PathBuf);

impl Drop for PathGuard {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// A connection of either kind.
#[derive(Debug)]
pub enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    /// Who is at the other end, without a port: an address, or `unix`.
    pub(super) fn peer(&self) -> String {
        match self {
            Stream::Tcp(stream) => match stream.peer_addr() {
                Ok(peer) => peer.ip().to_canonical().to_string(),
                Err(_) => String::new(),
            },
            Stream::Unix(_) => "unix".to_owned(),
        }
    }

    /// Writes what is taken at once.
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
