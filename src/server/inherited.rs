//! Listeners opened by another process: systemd (socket activation), or the slowlane before an upgrade.

use std::env;
use std::io;
use std::iter;
use std::os::fd::OwnedFd;

use listenfd::ListenFd;

use crate::server::Listener;
use slowlane_core::base::Address;

/// The sockets that were handed to this process, each for a listener.
#[derive(Debug, Default)]
pub(crate) struct Inherited(Vec<Socket>);

/// A socket that is not yet part of a tokio runtime.
#[derive(Debug)]
struct Socket {
    acceptor: String,
    /// Its address in the config. None: it is from systemd, and replaces all addresses.
    address: Option<Address>,
    socket: OwnedFd,
}

impl Inherited {
    /// Takes the sockets of `LISTEN_FDS`, by the names of `FileDescriptorName=`. It logs and skips sockets that are
    /// not listeners. A socket with an unknown name serves SPOP.
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
        self.0.push(Socket { acceptor, address, socket });
    }

    /// Takes the next socket of an address, for the runtime of the caller. Without an address, a socket from systemd.
    pub(crate) fn take(&mut self, acceptor: &str, address: Option<&Address>) -> Option<Listener> {
        let is_it = |socket: &Socket| socket.acceptor == acceptor && socket.address.as_ref() == address;
        iter::from_fn(|| Some(self.0.remove(self.0.iter().position(is_it)?))).find_map(
            |Socket { socket, address, .. }| {
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
