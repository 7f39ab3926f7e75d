//! Listeners that another process has opened: systemd (socket activation), or the slowlane before an upgrade.

use std::env;
use std::io;
use std::os::fd::OwnedFd;

use listenfd::ListenFd;

use crate::server::listener::Listener;
use slowlane_core::base::address::Address;

/// The sockets that were handed to this process, each for a listener.
#[derive(Debug, Default)]
pub(crate) struct Inherited(Vec<Socket>);

/// A socket that is not yet part of a tokio runtime.
#[derive(Debug)]
struct Socket {
    acceptor: String,
    /// Its address in the config. None: it is one of systemd's, and replaces all addresses.
    address: Option<Address>,
    socket: OwnedFd,
}

impl Inherited {
    /// Takes the sockets of `LISTEN_FDS`, by the names of `FileDescriptorName=`. It logs and skips those that are not
    /// listeners. A socket of an unknown name serves SPOP.
    pub(crate) fn from_systemd() -> Inherited {
        let names = env::var("LISTEN_FDNAMES").unwrap_or_default();
        let mut names = names.split(':');
        let mut offered = ListenFd::from_env();
        let mut inherited = Inherited::default();
        for number in 0..offered.len() {
            let name = names.next().unwrap_or_default();
            let acceptor = if ["http", "admin"].contains(&name) { name } else { "spop" };
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

    /// Takes the sockets of systemd's for a listener, for the runtime of the caller.
    pub(crate) fn take(&mut self, acceptor: &str) -> Vec<Listener> {
        let is_ours = |socket: &mut Socket| socket.acceptor == acceptor && socket.address.is_none();
        let ours: Vec<Socket> = self.0.extract_if(.., is_ours).collect();
        let take = |Socket { acceptor, socket, .. }: Socket| {
            Listener::taken(socket, None).inspect_err(|error| of_no_use(&acceptor, error)).ok()
        };
        ours.into_iter().filter_map(take).collect()
    }

    /// Takes the socket of an address, for the runtime of the caller.
    pub(crate) fn take_of(&mut self, acceptor: &str, address: &Address) -> Option<Listener> {
        let is_it = |socket: &Socket| socket.acceptor == acceptor && socket.address.as_ref() == Some(address);
        let Socket { acceptor, address, socket } = self.0.remove(self.0.iter().position(is_it)?);
        Listener::taken(socket, address).inspect_err(|error| of_no_use(&acceptor, error)).ok()
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
