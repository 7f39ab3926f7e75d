//! The server to test, and connections to it.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "it connects to a server, and waits for it"
)]

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Instant, sleep, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use slowlane_core::base::Address;

/// The pause before another attempt to connect: a supervisor may be restarting the server.
pub(super) const RETRY_PAUSE: Duration = Duration::from_millis(20);

#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    pub address: Address,
    /// The longest wait for a connection, for a write, and for an answer.
    pub limit: Duration,
    /// `None` means no TLS. A Unix socket never has TLS.
    pub tls: Option<Arc<ClientConfig>>,
}

/// A connection over TCP, TLS or a Unix socket.
pub(super) trait Socket: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Socket for S {}

impl Endpoint {
    /// Opens a connection.
    pub(super) async fn connect(&self) -> Result<Box<dyn Socket>, String> {
        let deadline = Instant::now() + self.limit;
        loop {
            let connected = timeout_at(deadline, self.connected()).await;
            let too_late = |_| Err(io::Error::new(ErrorKind::TimedOut, "connection timed out"));
            let error = match connected.unwrap_or_else(too_late) {
                Ok(socket) => return Ok(socket),
                Err(error) => error,
            };
            // A Unix socket whose backlog is full would block.
            let may_pass = [ErrorKind::ConnectionRefused, ErrorKind::NotFound, ErrorKind::WouldBlock];
            if !may_pass.contains(&error.kind()) || Instant::now() + RETRY_PAUSE >= deadline {
                return Err(format!("cannot connect: {error}"));
            }
            sleep(RETRY_PAUSE).await;
        }
    }

    /// Tries every address of a name.
    async fn connected(&self) -> io::Result<Box<dyn Socket>> {
        let text = match &self.address {
            Address::Unix(path) => return Ok(Box::new(UnixStream::connect(path).await?)),
            Address::Tcp(text) => text,
        };
        let stream = TcpStream::connect(text).await?;
        stream.set_nodelay(true)?;
        let Some(tls) = &self.tls else { return Ok(Box::new(stream)) };
        let name = ServerName::try_from(host(text).to_owned()).map_err(io::Error::other)?;
        Ok(Box::new(TlsConnector::from(tls.clone()).connect(name, stream).await?))
    }
}

/// The host of an address, without the brackets of IPv6.
fn host(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}

#[cfg(test)]
mod tests {
    use tokio::net::UnixSocket;

    use super::*;

    #[tokio::test]
    async fn a_unix_socket_that_accepts_nobody_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("agent.sock");
        let listener = UnixSocket::new_stream().unwrap();
        listener.bind(&path).unwrap();
        let _listener = listener.listen(0).unwrap();
        let agent = Endpoint { address: Address::Unix(path), limit: Duration::from_millis(10), tls: None };
        let _first = agent.connect().await.expect("the backlog has room for one");
        let Err(second) = agent.connect().await else { panic!("a second one") };
        assert!(second.starts_with("cannot connect: "), "{second}");
    }
}
