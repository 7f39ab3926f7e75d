//! Listeners for TCP, UDP or Unix sockets: bound by this process, or opened by another process.

use std::net::{self, IpAddr, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::{env, fmt, fs, io, iter, os};

use listenfd::ListenFd;
use rustix::fs::fstat;
use rustix::net::{SocketFlags, accept_with};
use socket2::{Domain, SockRef, Type};
use thiserror::Error;
use tokio::io::Interest;
use tokio::net::{TcpSocket, TcpStream, UdpSocket, UnixListener};

use crate::server::{Stream, set_options};
use slowlane_core::base::{Address, is_loopback};

/// The default permissions of a Unix socket: its owner and its group may connect.
pub(crate) const UNIX_MODE: u32 = 0o660;

/// The longest queue of connections that are not yet accepted.
///
/// nginx, and HAProxy up to 3.0, open one connection for each waiting request: hundreds within a millisecond. With the
/// usual limit of 128, clients would retry the excess connections only after a second.
const BACKLOG: u32 = 4096;

/// The requested receive buffer of a UDP socket: room for 5,000 lines, which HAProxy may write in 100 ms. The kernel
/// grants at most `net.core.rmem_max`.
const RECEIVE_BYTES: usize = 4 << 20;

/// A bound socket.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: Socket,
    /// The socket's address in the config. `None` if systemd has opened the socket.
    pub(crate) address: Option<Address>,
    /// Whether another process listens at the socket's path.
    is_left: AtomicBool,
}

#[derive(Debug)]
enum Socket {
    /// A listening socket, despite its type: tokio's `TcpListener` would watch every connection, even one that never
    /// waits.
    Tcp(TcpStream),
    Unix(UnixListener),
    /// A socket that receives messages, not connections.
    Udp(UdpSocket),
}

impl Listener {
    /// Binds an address, and registers the socket with the caller's runtime. Blocks while a host name is resolved. A
    /// Unix socket gets the permissions `unix_mode`.
    pub(crate) fn bind(address: &Address, unix_mode: u32) -> Result<Listener, BindError> {
        let socket = match address {
            Address::Tcp(address) => bound(address, listen).and_then(watched),
            Address::Unix(path) => bind_unix(path, unix_mode).map(Socket::Unix),
        };
        let socket = socket.map_err(|source| BindError { address: address.to_string(), source })?;
        Ok(Listener::of(socket, Some(address.clone())))
    }

    /// Binds a host and a port for UDP, and registers the socket with the caller's runtime.
    pub(crate) fn bind_udp(address: &Address) -> Result<Listener, BindError> {
        let socket = match address {
            Address::Tcp(address) => bound(address, net::UdpSocket::bind).and_then(watched_udp),
            Address::Unix(_) => Err(io::ErrorKind::AddrNotAvailable.into()),
        };
        let socket = socket.map_err(|source| BindError { address: address.to_string(), source })?;
        Ok(Listener::of(socket, Some(address.clone())))
    }

    /// Takes a bound socket, and registers it with the caller's runtime. A socket without an address is from systemd.
    ///
    /// # Errors
    /// The runtime does not accept the socket.
    pub(crate) fn taken(socket: OwnedFd, address: Option<Address>) -> io::Result<Listener> {
        let socket = if SockRef::from(&socket).domain()? == Domain::UNIX {
            let listener = os::unix::net::UnixListener::from(socket);
            listener.set_nonblocking(true)?;
            Socket::Unix(UnixListener::from_std(listener)?)
        } else if SockRef::from(&socket).r#type()? == Type::DGRAM {
            watched_udp(socket.into())?
        } else {
            let listener = net::TcpListener::from(socket);
            listener.set_nonblocking(true)?;
            watched(listener)?
        };
        Ok(Listener::of(socket, address))
    }

    fn of(socket: Socket, address: Option<Address>) -> Listener {
        if let Socket::Tcp(listener) = &socket {
            set_options(listener);
        }
        Listener { socket, address, is_left: AtomicBool::new(false) }
    }

    pub(crate) async fn accept(&self) -> io::Result<Stream> {
        Ok(match &self.socket {
            Socket::Tcp(listener) => {
                let accept = || Ok(accept_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)?);
                Stream::Fresh(Some(listener.async_io(Interest::READABLE, accept).await?.into()))
            }
            Socket::Unix(listener) => Stream::Unix(listener.accept().await?.0),
            Socket::Udp(_) => return Err(io::ErrorKind::Unsupported.into()),
        })
    }

    /// Receives the next UDP message, and returns its length and sender. Truncates a message longer than the buffer.
    pub(crate) async fn receive(&self, buffer: &mut [u8]) -> io::Result<(usize, IpAddr)> {
        let Socket::Udp(socket) = &self.socket else { return Err(io::ErrorKind::Unsupported.into()) };
        let (bytes, from) = socket.recv_from(buffer).await?;
        Ok((bytes, from.ip()))
    }

    /// The number of messages that the kernel has dropped because the buffer of this UDP socket was full.
    pub(crate) fn lost(&self) -> io::Result<u64> {
        let inode = fstat(self)?.st_ino.to_string();
        for path in ["/proc/net/udp", "/proc/net/udp6"] {
            for line in fs::read_to_string(path)?.lines() {
                let words: Vec<&str> = line.split_whitespace().collect();
                if words.get(INODE) == Some(&inode.as_str())
                    && let Some(Ok(lost)) = words.last().map(|last| last.parse())
                {
                    return Ok(lost);
                }
            }
        }
        Err(io::ErrorKind::NotFound.into())
    }

    /// Leaves the path of a Unix socket to another process, which listens there from now on.
    pub(crate) fn leave(&self) {
        self.is_left.store(true, Relaxed);
    }

    /// Whether only this machine can reach the listener.
    pub(crate) fn is_local(&self) -> bool {
        let bound = SockRef::from(self).local_addr();
        bound.is_ok_and(|bound| bound.as_socket().is_none_or(|bound| is_loopback(bound.ip())))
    }
}

/// Removes the socket file, unless another process listens there.
impl Drop for Listener {
    fn drop(&mut self) {
        if let (Some(Address::Unix(path)), false) = (&self.address, *self.is_left.get_mut()) {
            let _ = fs::remove_file(path);
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            Socket::Tcp(listener) => listener.as_fd(),
            Socket::Unix(listener) => listener.as_fd(),
            Socket::Udp(socket) => socket.as_fd(),
        }
    }
}

impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ok(bound) = SockRef::from(self).local_addr() else { return f.write_str("a socket") };
        match (bound.as_socket(), bound.as_pathname()) {
            (Some(address), _) => address.fmt(f),
            (_, Some(path)) => write!(f, "unix:{}", path.display()),
            _ => f.write_str("unix"),
        }
    }
}

/// The address cannot be bound. The error message ends with a remedy.
#[derive(Debug, Error)]
#[error("cannot listen on {address}: {source}; {}", remedy(.source))]
pub(crate) struct BindError {
    address: String,
    source: io::Error,
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => "stop the program that listens there, or choose another address",
        io::ErrorKind::PermissionDenied => "choose an address that this user may use",
        io::ErrorKind::NotFound => "create the socket's directory first, or choose another address",
        io::ErrorKind::AddrNotAvailable => "choose an address that this machine has",
        _ => "choose another address",
    }
}

/// A listener without a token that other machines could reach.
#[derive(Debug, Error)]
#[error(
    "{section} on {address} is open to others: set a token ({}), or listen on 127.0.0.1 or unix:/path",
    if *section == "admin" { "[admin] token or token_file" } else { "[cluster] token_file" }
)]
pub(crate) struct OpenListener {
    pub(crate) section: &'static str,
    pub(crate) address: String,
}

/// Resolves a name, and binds the first of its addresses that can be bound.
fn bound<T>(address: &str, bind: impl Fn(SocketAddr) -> io::Result<T>) -> io::Result<T> {
    let mut result = Err(io::ErrorKind::AddrNotAvailable.into());
    for address in address.to_socket_addrs()? {
        result = bind(address);
        if result.is_ok() {
            break;
        }
    }
    result
}

fn listen(address: SocketAddr) -> io::Result<net::TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // After a restart, connections of the previous process may still be in TIME-WAIT.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)?.into_std()
}

fn watched(listener: net::TcpListener) -> io::Result<Socket> {
    TcpStream::from_std(OwnedFd::from(listener).into()).map(Socket::Tcp)
}

fn watched_udp(socket: net::UdpSocket) -> io::Result<Socket> {
    socket.set_nonblocking(true)?;
    SockRef::from(&socket).set_recv_buffer_size(RECEIVE_BYTES)?;
    UdpSocket::from_std(socket).map(Socket::Udp)
}

/// The position of the inode in a line of `/proc/net/udp`, counted in words. The last word is the number of drops.
const INODE: usize = 9;

/// Binds a Unix socket. Replaces an existing file only if it is a socket that has no listener.
fn bind_unix(path: &Path, mode: u32) -> io::Result<UnixListener> {
    if fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
        match os::unix::net::UnixStream::connect(path) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path)?,
            _ => return Err(io::ErrorKind::AddrInUse.into()),
        }
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    Ok(listener)
}

/// The sockets of listeners that another process has opened: systemd (socket activation), or the old process of an
/// upgrade.
#[derive(Debug, Default)]
pub(crate) struct Inherited(Vec<InheritedSocket>);

/// A socket that is not yet part of a tokio runtime.
#[derive(Debug)]
struct InheritedSocket {
    acceptor: String,
    /// The address in the config. `None` for a socket from systemd, which replaces all of the acceptor's addresses.
    address: Option<Address>,
    socket: OwnedFd,
}

impl Inherited {
    /// Takes the sockets in `LISTEN_FDS`, which `FileDescriptorName=` has named. Logs and skips sockets that are not
    /// listeners. A socket with an unknown name serves SPOP.
    pub(crate) fn from_systemd() -> Inherited {
        let names = env::var("LISTEN_FDNAMES").unwrap_or_default();
        let mut names = names.split(':');
        let mut offered = ListenFd::from_env();
        let mut inherited = Inherited::default();
        for number in 0..offered.len() {
            let name = names.next().unwrap_or_default();
            let acceptor = if ["http", "grpc", "admin"].contains(&name) { name } else { "spop" };
            match take(&mut offered, number) {
                Ok(socket) => inherited.add(acceptor.to_owned(), None, socket),
                Err(error) => of_no_use(name, &error),
            }
        }
        inherited
    }

    /// Adds a socket of a listener.
    pub(crate) fn add(&mut self, acceptor: String, address: Option<Address>, socket: OwnedFd) {
        self.0.push(InheritedSocket { acceptor, address, socket });
    }

    /// Takes the next usable socket of the acceptor with this address or, if `address` is `None`, the next socket from
    /// systemd. The socket is registered with the caller's runtime.
    pub(crate) fn take(&mut self, acceptor: &str, address: Option<&Address>) -> Option<Listener> {
        let is_it =
            |socket: &InheritedSocket| socket.acceptor == acceptor && socket.address.as_ref() == address;
        iter::from_fn(|| Some(self.0.remove(self.0.iter().position(is_it)?))).find_map(
            |InheritedSocket { socket, address, .. }| {
                Listener::taken(socket, address).inspect_err(|error| of_no_use(acceptor, error)).ok()
            },
        )
    }
}

fn take(offered: &mut ListenFd, number: usize) -> io::Result<OwnedFd> {
    if let Ok(Some(listener)) = offered.take_tcp_listener(number) {
        return Ok(listener.into());
    }
    offered.take_unix_listener(number)?.map(OwnedFd::from).ok_or_else(|| io::ErrorKind::NotFound.into())
}

fn of_no_use(name: &str, error: &io::Error) {
    tracing::warn!("cannot use the socket {name:?} that was handed over: {error}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::stream::KEEPALIVE_S;

    #[tokio::test]
    async fn connections_inherit_the_options_of_their_listener() {
        let bound = Listener::bind(&"127.0.0.1:0".parse().unwrap(), UNIX_MODE).unwrap();
        let taken = Listener::taken(net::TcpListener::bind("127.0.0.1:0").unwrap().into(), None).unwrap();
        for listener in [bound, taken] {
            let _peer = net::TcpStream::connect(listener.to_string()).unwrap();
            let stream = listener.accept().await.unwrap();
            let socket = SockRef::from(&stream);
            assert!(socket.tcp_nodelay().unwrap() && socket.keepalive().unwrap());
            assert_eq!(socket.tcp_keepalive_time().unwrap().as_secs(), KEEPALIVE_S);
        }
    }
}
