//! Connections that are passed from one process to the next.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use serde::{Deserialize, Serialize};
use socket2::{Domain, SockRef};
use tokio::net::UnixStream;

use crate::server::Stream;
use crate::server::spoe::SpopState;

/// A connection that continues in another process.
#[derive(Debug)]
pub(crate) struct Transfer {
    pub(crate) stream: Stream,
    pub(crate) state: TransferState,
}

/// The state of a connection, by its protocol.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum TransferState {
    /// A connection of HAProxy.
    Spop(SpopState),
    /// A connection of nginx or another proxy: the bytes that were read but not used.
    Http(Vec<u8>),
}

impl TransferState {
    /// The name of the acceptor that continues it.
    pub(crate) fn acceptor(&self) -> &'static str {
        match self {
            TransferState::Spop(_) => "spop",
            TransferState::Http(_) => "http",
        }
    }
}

impl Transfer {
    /// Converts a socket from another process to a stream, for the runtime of the caller.
    ///
    /// # Errors
    /// The runtime does not accept the socket.
    pub(crate) fn open(socket: OwnedFd, state: TransferState) -> io::Result<Transfer> {
        let stream = match SockRef::from(&socket).domain()? == Domain::UNIX {
            false => Stream::Fresh(Some(socket.into())),
            true => Stream::Unix(UnixStream::from_std(socket.into())?),
        };
        Ok(Transfer { stream, state })
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
