//! Connections on their way from one process to the next.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use bytes::Bytes;
use socket2::{Domain, SockRef};
use tokio::net::{TcpStream, UnixStream};

use crate::server::spop_state::SpopState;
use crate::server::stream::Stream;

/// A connection that goes on in another process, with what was read of it and not yet used.
#[derive(Debug)]
pub(crate) enum Transfer {
    Spop(Stream, SpopState),
    Http(Stream, Bytes),
}

/// The connections from an earlier process, by their protocol.
#[derive(Debug, Default)]
pub(crate) struct Transfers {
    pub spop: Vec<(Stream, SpopState)>,
    pub http: Vec<(Stream, Bytes)>,
}

impl Transfers {
    pub(crate) fn of(transfers: impl IntoIterator<Item = Transfer>) -> Transfers {
        let mut sorted = Transfers::default();
        for transfer in transfers {
            match transfer {
                Transfer::Spop(stream, spop_state) => sorted.spop.push((stream, spop_state)),
                Transfer::Http(stream, unread) => sorted.http.push((stream, unread)),
            }
        }
        sorted
    }
}

impl AsFd for Transfer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Transfer::Spop(stream, _) | Transfer::Http(stream, _) => stream.as_fd(),
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Tls(stream) => stream.get_ref().0.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
        }
    }
}

/// Makes a stream of a socket from another process, for the runtime of the caller.
///
/// # Errors
/// The runtime does not take the socket.
pub(crate) fn stream(socket: OwnedFd) -> io::Result<Stream> {
    Ok(match SockRef::from(&socket).domain()? == Domain::UNIX {
        false => Stream::Tcp(TcpStream::from_std(socket.into())?),
        true => Stream::Unix(UnixStream::from_std(socket.into())?),
    })
}
