//! Listeners, TCP or Unix, and their binding.

use std::fmt;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use thiserror::Error;
use tokio::net::{TcpListener, TcpSocket, UnixListener, UnixStream, lookup_host};

use crate::base::address::{Address, is_loopback};
use crate::server::stream::Accepted;

/// The default permissions of a Unix socket: its owner and its group may connect.
pub(crate) const UNIX_MODE: u32 = 0o660;

/// The longest queue of connections that are not yet accepted.
///
/// nginx, and HAProxy up to 3.0, open one connection for each waiting request: hundreds within a millisecond. With the
/// usual 128, clients retry further connections only after a second.
const BACKLOG: u32 = 4096;

/// A bound socket.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
    /// Removes its path when dropped, except for a socket from systemd.
    Unix(UnixListener, #[expect(dead_code, reason = "only its drop is used")] Option<PathGuard>),
}

impl Listener {
    /// Binds an address. A Unix socket gets the permissions `unix_mode`.
    pub(crate) async fn bind(address: &Address, unix_mode: u32) -> Result<Listener, BindError> {
        let listener = match address {
            Address::Tcp(address) => bind_tcp(address).await,
            Address::Unix(path) => bind_unix(path, unix_mode).await,
        };
        listener.map_err(|source| BindError { address: address.to_string(), source })
    }

    pub(crate) async fn accept(&self) -> io::Result<Accepted> {
        Ok(match self {
            Listener::Tcp(listener) => Accepted::Tcp(listener.accept().await?.0),
            Listener::Unix(listener, _) => Accepted::Unix(listener.accept().await?.0),
        })
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

/// The address cannot be bound. The message ends with a remedy.
#[derive(Debug, Error)]
#[error("cannot listen on {address}: {source}; {}", remedy(.source))]
pub(crate) struct BindError {
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

/// The listeners that need a token if other machines can reach them.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Guarded {
    Admin,
    TokenServer,
}

impl Guarded {
    const fn name(self) -> &'static str {
        match self {
            Guarded::Admin => "admin",
            Guarded::TokenServer => "cluster",
        }
    }

    const fn token(self) -> &'static str {
        match self {
            Guarded::Admin => "[admin] token or token_file",
            Guarded::TokenServer => "[cluster] token_file",
        }
    }
}

/// A listener without a token that other machines could reach.
#[derive(Debug, Error)]
#[error(
    "{} on {address} is open to others: set a token ({}), or listen on 127.0.0.1 or unix:/path",
    .listener.name(),
    .listener.token()
)]
pub(crate) struct OpenListener {
    listener: Guarded,
    address: String,
}

impl Guarded {
    pub(crate) fn unless_local(self, address: &Address) -> Result<(), OpenListener> {
        if address.is_local() {
            Ok(())
        } else {
            Err(OpenListener { listener: self, address: address.to_string() })
        }
    }

    /// The same check for a bound socket, whose name is resolved or which systemd has opened.
    pub(crate) fn unless_bound_locally(self, listener: &Listener) -> Result<(), OpenListener> {
        let is_local = match listener {
            Listener::Tcp(tcp) => tcp.local_addr().is_ok_and(|bound| is_loopback(bound.ip())),
            Listener::Unix(..) => true,
        };
        if is_local { Ok(()) } else { Err(OpenListener { listener: self, address: listener.to_string() }) }
    }
}

/// Resolves a name, and binds the first of its addresses that can be bound.
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
    // After a restart, connections of the previous process may still be in TIME-WAIT.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Binds a Unix socket. It replaces a socket file without a listener, but no other file.
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

/// Removes the socket file when its listener is dropped.
#[derive(Debug)]
pub(crate) struct PathGuard(PathBuf);

impl Drop for PathGuard {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
