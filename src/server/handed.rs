//! Listeners that systemd has opened (socket activation).

use std::io;

use listenfd::ListenFd;
use tokio::net::{TcpListener, UnixListener};

use crate::server::listener::Listener;

/// The sockets that systemd has opened, by the names of `FileDescriptorName=`.
#[derive(Debug, Default)]
pub(crate) struct Handed(Vec<(String, Offered)>);

/// A socket that is not yet part of a tokio runtime.
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
    /// Takes the sockets of `LISTEN_FDS`. It logs and skips those that are not listeners.
    pub(crate) fn from_systemd() -> Handed {
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

    /// Takes the sockets of this name, for the runtime of the caller. A socket of an unknown name serves SPOP.
    pub(crate) fn take(&mut self, name: &str) -> Vec<Listener> {
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
    tracing::warn!("cannot use the socket {name:?} from systemd: {error}");
}
