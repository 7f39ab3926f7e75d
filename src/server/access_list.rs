//! The access list of a listener: the networks that may connect, and TLS.

use std::net::IpAddr;
use std::sync::Arc;

use crate::observe::OncePerSecond;
use crate::server::{Shutdown, Stream, Tls};
use slowlane_core::base::{Network, Timestamp};

/// TCP connections are checked before a byte of them is read. Unix sockets have their permissions instead.
#[derive(Debug, Default)]
pub(crate) struct AccessList {
    /// The networks that may connect. Empty: all.
    pub(crate) allow: Vec<Network>,
    pub(crate) tls: Option<Arc<Tls>>,
    pub(crate) refused_line: OncePerSecond,
}

impl AccessList {
    /// Whether everybody on the network may connect: there is neither TLS nor a list of networks.
    pub(crate) fn is_open(&self) -> bool {
        self.tls.is_none() && self.allow.is_empty()
    }

    /// Whether the peer may connect. If not, this is logged.
    pub(super) fn admits(&self, stream: &Stream, now: Timestamp) -> bool {
        if self.allow.is_empty() || matches!(stream, Stream::Unix(_)) {
            return true;
        }
        // A peer that has already disconnected has no address.
        let peer = stream.peer_ip();
        let is_allowed = peer.is_some_and(|peer| self.allows(peer));
        if !is_allowed {
            let peer = peer.map(|peer| peer.to_string()).unwrap_or_default();
            let text = || format!("a connection from {peer} is closed: `allow` does not list its network");
            self.refused_line.warn(now, text);
        }
        is_allowed
    }

    pub(super) fn allows(&self, peer: IpAddr) -> bool {
        self.allow.is_empty() || self.allow.iter().any(|network| network.contains(peer))
    }

    /// The stream of a connection, after its handshake. None: the handshake failed, or the shutdown began.
    pub(super) async fn open(&self, mut stream: Stream, shutdown: &Shutdown) -> Option<Stream> {
        let Some(tls) = &self.tls else { return Some(stream) };
        stream.watch().ok()?;
        let Stream::Tcp(stream) = stream else { return Some(stream) };
        // In a box, so that a connection without TLS needs no room for it.
        let handshake = Box::pin(tls.handshake(stream));
        shutdown.signal.unless_begun(handshake).await.flatten().map(Stream::Tls)
    }
}
