//! The certificate in force: handshakes under it, and its replacement when the files change.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use prometheus_client::metrics::counter::Counter;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::rustls::{Error, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsStream};

use crate::observe::groups::TlsMetrics;
use crate::observe::{Clock, OncePerSecond};
use crate::server::Lobby;
use crate::server::tls::files::{Loaded, TlsError, TlsFiles};
use slowlane_core::base::{Timestamp, date::written, shown};

/// The maximum number of unfinished handshakes of a listener. A proxy finishes within two round trips; a client that
/// only occupies places does not. So the oldest one is dropped.
const UNFINISHED_MAX: usize = 1_000;

/// The settings of a listener for TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listener {
    /// Its section in the config, which is also its name in metrics.
    pub section: &'static str,
    /// The ALPN protocols. Empty: clients need not name one.
    pub protocols: &'static [&'static [u8]],
    /// The longest handshake.
    pub handshake_max: Duration,
    pub connections_max: usize,
}

/// The TLS of a listener.
#[derive(Debug)]
pub(crate) struct Tls {
    listener: Listener,
    files: TlsFiles,
    in_force: ArcSwap<ServerConfig>,
    unfinished: Arc<Lobby>,
    metrics: TlsMetrics,
    clock: Clock,
    failed_line: OncePerSecond,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// The first file that cannot be used.
    pub(crate) fn load(
        listener: Listener,
        files: TlsFiles,
        metrics: TlsMetrics,
        clock: Clock,
    ) -> Result<Tls, TlsError> {
        let Loaded { config, expires } = files.read(listener.protocols)?;
        metrics.loaded(listener.section, Clock::wall(), expires);
        warn_of_expiry(&files, expires);
        // Half of the places are reserved for connections that have finished their handshake.
        let most = (listener.connections_max / 2).clamp(1, UNFINISHED_MAX);
        Ok(Tls {
            listener,
            files,
            in_force: ArcSwap::new(config),
            unfinished: Lobby::new(most, Counter::default()),
            metrics,
            clock,
            failed_line: OncePerSecond::default(),
        })
    }

    /// Reads the files again, all together. If one cannot be used, the previous ones stay in force.
    ///
    /// Open connections keep their certificate.
    pub(crate) fn reload(&self) {
        let section = self.listener.section;
        match self.files.read(self.listener.protocols) {
            Ok(Loaded { config, expires }) => {
                self.in_force.store(config);
                self.metrics.loaded(section, Clock::wall(), expires);
                let until = expires.map(|end| written(Timestamp::default() + end));
                let until = until.map(|until| format!(", valid until {until}")).unwrap_or_default();
                tracing::info!("[{section}.tls] read again: {}{until}", self.files.cert.display());
                warn_of_expiry(&self.files, expires);
            }
            Err(error) => {
                self.metrics.refused(section);
                tracing::warn!("[{section}.tls] not read again, the previous files stay in force: {error}");
            }
        }
    }

    /// Performs the handshake of a connection. None: it failed, which is counted and logged.
    pub(crate) async fn handshake(&self, stream: TcpStream) -> Option<Box<TlsStream<TcpStream>>> {
        let peer = stream.peer_addr().map(|peer| peer.ip().to_canonical());
        let (_place, lost) = self.unfinished.enter();
        let acceptor = TlsAcceptor::from(self.in_force.load_full());
        let (reason, text) = tokio::select! {
            accepted = timeout(self.listener.handshake_max, acceptor.accept(stream)) => match accepted {
                Ok(Ok(stream)) => {
                    self.metrics.succeeded(self.listener.section);
                    return Some(Box::new(stream.into()));
                }
                Ok(Err(error)) => failure(&error),
                Err(_) => ("timeout", "it took too long".into()),
            },
            _ = lost => ("crowded", "too many others are unfinished, and this is the oldest".into()),
        };
        let section = self.listener.section;
        self.metrics.failed(section, reason);
        let peer = peer.map(|peer| peer.to_string()).unwrap_or_default();
        let line = || format!("[{section}.tls] a handshake with {peer} failed: {text}");
        self.failed_line.warn(self.clock.now(), line);
        None
    }
}

fn warn_of_expiry(files: &TlsFiles, expires: Option<Duration>) {
    if let Some(warning) = files.warning(expires, Clock::wall()) {
        tracing::warn!("{warning}");
    }
}

/// The longest text of an error: parts of it may come from the peer.
const TEXT_BYTES_MAX: usize = 200;

/// The reason for a failed handshake, for the metric, and a description that is safe to display.
fn failure(error: &io::Error) -> (&'static str, String) {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    let mut text = shown(error.to_string());
    if let Some((end, _)) = text.char_indices().nth(TEXT_BYTES_MAX) {
        text.truncate(end);
    }
    (inner.map_or("closed", reason), text)
}

fn reason(error: &Error) -> &'static str {
    match error {
        Error::NoCertificatesPresented => "no_certificate",
        Error::InvalidCertificate(_) => "certificate",
        Error::AlertReceived(_) => "refused",
        Error::PeerIncompatible(_) | Error::NoApplicationProtocol => "incompatible",
        Error::InvalidMessage(_)
        | Error::InappropriateMessage { .. }
        | Error::InappropriateHandshakeMessage { .. }
        | Error::PeerSentOversizedRecord
        | Error::PeerMisbehaved(_)
        | Error::DecryptError => "garbage",
        _ => "other",
    }
}
