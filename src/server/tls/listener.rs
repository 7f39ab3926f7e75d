//! TLS of a listener: its files, which are read again when they change, and its handshakes.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use der::asn1::{AnyRef, GeneralizedTime, UtcTime};
use der::{Decode, SliceReader, Tag, Tagged};
use prometheus_client::metrics::counter::Counter;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{self, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsStream};

use crate::observe::groups::TlsMetrics;
use crate::observe::{Clock, OncePerSecond};
use crate::server::Lobby;
use slowlane_core::base::{Timestamp, date::written, shown};

/// The maximum number of unfinished handshakes per listener. At the limit, a new handshake ends the oldest one: a proxy
/// finishes within two round trips, but a client that only occupies places does not finish.
const UNFINISHED_MAX: usize = 1_000;

/// The TLS settings of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listener {
    /// The listener's section in the config, which is also its name in metrics.
    pub section: &'static str,
    /// The ALPN protocols. If the list is empty, clients need not name a protocol.
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
        // At least half of the places are left for connections that have finished their handshake.
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

    /// Reads the files again, all together. If any of them cannot be used, the previous files stay in force.
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
                tracing::info!("[{section}.tls] files reloaded: {}{until}", self.files.cert.display());
                warn_of_expiry(&self.files, expires);
            }
            Err(error) => {
                self.metrics.refused(section);
                tracing::warn!(
                    "[{section}.tls] files not reloaded; the previous files stay in force: {error}"
                );
            }
        }
    }

    /// Performs the handshake of a connection. `None` if the handshake failed, which is counted and logged.
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
            _ = lost => ("crowded", "too many handshakes were unfinished, and this was the oldest".into()),
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

/// The maximum number of characters of an error's text, parts of which may come from the peer.
const TEXT_BYTES_MAX: usize = 200;

/// The reason for a failed handshake, as the label of the metric, and a description that is safe to display.
fn failure(error: &io::Error) -> (&'static str, String) {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let mut text = shown(error.to_string());
    if let Some((end, _)) = text.char_indices().nth(TEXT_BYTES_MAX) {
        text.truncate(end);
    }
    (inner.map_or("closed", reason), text)
}

fn reason(error: &rustls::Error) -> &'static str {
    use tokio_rustls::rustls::Error;
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

/// The maximum size of a file, with room for hundreds of CAs.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The paths of the TLS files of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    /// The certificate in PEM, then its intermediate CAs.
    pub cert: PathBuf,
    /// The certificate's private key in PEM.
    pub key: PathBuf,
    /// The CAs of the clients in PEM. If set, every client must present a certificate signed by one of these CAs.
    pub client_ca: Option<PathBuf>,
}

/// The content of the files, ready for handshakes.
#[derive(Debug)]
struct Loaded {
    config: Arc<ServerConfig>,
    /// The expiry of the certificate, since 1970, if known.
    expires: Option<Duration>,
}

/// A file that cannot be used. The message names the file and a remedy, and never quotes the file.
#[derive(Debug, Error)]
#[error("{}: {error}", .path.display())]
pub(crate) struct TlsError {
    pub(crate) path: PathBuf,
    error: FileError,
}

#[derive(Debug, Error)]
enum FileError {
    #[error("{0}; slowlane must be able to read the file")]
    Unreadable(io::Error),
    #[error("expected a file of at most {} KiB", FILE_BYTES_MAX >> 10)]
    NoFile,
    #[error("expected PEM, but a line is damaged")]
    NoPem,
    #[error("the file has no certificate; expected PEM that begins with -----BEGIN CERTIFICATE-----")]
    NoCertificate,
    #[error("the certificate cannot be used: {0}")]
    Certificate(String),
    #[error("the file has no private key; expected PEM like -----BEGIN PRIVATE KEY-----")]
    NoKey,
    #[error(
        "the key is encrypted, and slowlane cannot ask for its passphrase; use `openssl pkey` to write the \
         key without a passphrase"
    )]
    Encrypted,
    #[error("the key cannot be used; expected RSA of 2048 bits or more, ECDSA P-256 or P-384, or Ed25519")]
    Key,
    #[error("the key does not belong to the certificate in {}", .0.display())]
    Mismatch(PathBuf),
    #[error("the file has no certificate; expected the certificates of the CAs to trust")]
    NoAuthority,
}

impl TlsError {
    /// The error for a certificate and a key that the TLS library rejects.
    pub(super) fn of_pair(error: rustls::Error, cert: &Path, key: &Path) -> TlsError {
        match error {
            rustls::Error::InconsistentKeys(_) => at(key, FileError::Mismatch(cert.to_owned())),
            rustls::Error::InvalidCertificate(error) => {
                at(cert, FileError::Certificate(shown(error.to_string())))
            }
            _ => at(key, FileError::Key),
        }
    }
}

impl TlsFiles {
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        [&self.cert, &self.key].into_iter().chain(&self.client_ca).map(PathBuf::as_path)
    }

    /// Checks whether the files can be used. Returns the time since 1970 at which the certificate expires, if known.
    ///
    /// # Errors
    /// The first file that cannot be used.
    pub(crate) fn check(&self) -> Result<Option<Duration>, TlsError> {
        self.read(&[]).map(|loaded| loaded.expires)
    }

    /// A warning about a certificate that has expired. `expires` and `wall` are times since 1970.
    pub(crate) fn warning(&self, expires: Option<Duration>, wall: Duration) -> Option<String> {
        let expires = expires.filter(|&expires| expires < wall)?;
        let (path, day) = (self.cert.display(), written(Timestamp::default() + expires));
        Some(format!("{path}: the certificate expired on {day} UTC, so proxies refuse it: replace the file"))
    }

    /// Reads the files. `protocols` are the listener's ALPN protocols.
    fn read(&self, protocols: &[&[u8]]) -> Result<Loaded, TlsError> {
        let (chain, key) = pair(&self.cert, &self.key)?;
        let expires = chain.first().and_then(|first| not_after(first));
        let provider = Arc::new(default_provider());
        let unusable = |error| TlsError::of_pair(error, &self.cert, &self.key);
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(unusable)?;
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(authorities(path)?, provider).build();
                let unusable = |_| at(path, FileError::NoAuthority);
                builder.with_client_cert_verifier(verifier.map_err(unusable)?)
            }
        };
        let mut config = builder.with_single_cert(chain, key).map_err(unusable)?;
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Ok(Loaded { config: Arc::new(config), expires })
    }
}

/// Reads a certificate with its intermediate CAs, and its key.
pub(super) fn pair(
    cert: &Path,
    key: &Path,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
    Ok((chain(cert)?, private(key)?))
}

/// The certificates of a file, at least one.
pub(super) fn chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let chain = certificates(path)?;
    if chain.is_empty() { Err(at(path, FileError::NoCertificate)) } else { Ok(chain) }
}

fn private(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let text = read(path)?;
    let is_encrypted = text.windows(ENCRYPTED.len()).any(|part| part == ENCRYPTED);
    let error = match PrivateKeyDer::from_pem_slice(&text) {
        // The older PEM format marks encryption in a header. Such a key can be read, but not used.
        _ if is_encrypted => FileError::Encrypted,
        Ok(key) => return Ok(key),
        Err(rustls::pki_types::pem::Error::NoItemsFound) => FileError::NoKey,
        Err(_) => FileError::NoPem,
    };
    Err(at(path, error))
}

/// The word in the PEM markers of an encrypted key, in both formats.
const ENCRYPTED: &[u8] = b"ENCRYPTED";

/// The certificates of a file as CAs.
pub(super) fn authorities(path: &Path) -> Result<Arc<RootCertStore>, TlsError> {
    let mut authorities = RootCertStore::empty();
    for certificate in certificates(path)? {
        let unusable = |error: rustls::Error| at(path, FileError::Certificate(shown(error.to_string())));
        authorities.add(certificate).map_err(unusable)?;
    }
    if authorities.is_empty() { Err(at(path, FileError::NoAuthority)) } else { Ok(Arc::new(authorities)) }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let text = read(path)?;
    let all = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
    all.map_err(|_| at(path, FileError::NoPem))
}

/// Reads a file. Only a regular file is opened, because a pipe would block startup.
fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    let unreadable = |error| at(path, FileError::Unreadable(error));
    let metadata = fs::metadata(path).map_err(unreadable)?;
    if !metadata.is_file() || metadata.len() > FILE_BYTES_MAX {
        return Err(at(path, FileError::NoFile));
    }
    let mut text = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(FILE_BYTES_MAX).read_to_end(&mut text).map_err(unreadable)?;
    Ok(text)
}

fn at(path: &Path, error: FileError) -> TlsError {
    TlsError { path: path.to_owned(), error }
}

/// The time since 1970 at which a certificate expires (RFC 5280, 4.1). `None` if it cannot be read.
fn not_after(certificate: &[u8]) -> Option<Duration> {
    let mut certificate = sequence(&mut SliceReader::new(certificate).ok()?)?;
    let mut parts = sequence(&mut certificate)?;
    // The version comes first, and is omitted for version 1.
    let has_version = part(&mut parts)?.tag().is_context_specific();
    // The serial number, the algorithm of the signature and the issuer come before the validity.
    for _ in 0..2 + usize::from(has_version) {
        part(&mut parts)?;
    }
    let mut validity = sequence(&mut parts)?;
    let _not_before = part(&mut validity)?;
    let end = part(&mut validity)?;
    match end.tag() {
        Tag::UtcTime => Some(end.decode_as::<UtcTime>().ok()?.to_unix_duration()),
        Tag::GeneralizedTime => Some(end.decode_as::<GeneralizedTime>().ok()?.to_unix_duration()),
        _ => None,
    }
}

fn part<'a>(reader: &mut SliceReader<'a>) -> Option<AnyRef<'a>> {
    AnyRef::decode(reader).ok()
}

fn sequence<'a>(reader: &mut SliceReader<'a>) -> Option<SliceReader<'a>> {
    let part = part(reader).filter(|part| part.tag() == Tag::Sequence)?;
    SliceReader::new(part.value()).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SEQUENCE: u8 = 0x30;
    const UTC_TIME: u8 = 0x17;
    const GENERALIZED_TIME: u8 = 0x18;
    const VERSION: u8 = 0xa0;

    fn part(tag: u8, value: &[u8]) -> Vec<u8> {
        let mut bytes = vec![tag];
        match u8::try_from(value.len()) {
            Ok(length @ 0..=0x7f) => bytes.push(length),
            Ok(length) => bytes.extend([0x81, length]),
            Err(_) => bytes.extend([0x82, (value.len() >> 8) as u8, value.len() as u8]),
        }
        bytes.extend(value);
        bytes
    }

    /// A certificate as far as its validity.
    fn certificate(version: &[u8], issuer: &[u8], end: Vec<u8>) -> Vec<u8> {
        let validity = part(SEQUENCE, &[part(UTC_TIME, b"000101000000Z"), end].concat());
        let parts = [version, &part(0x02, &[1]), &part(SEQUENCE, &[]), &part(SEQUENCE, issuer), &validity];
        part(SEQUENCE, &part(SEQUENCE, &parts.concat()))
    }

    fn ends(tag: u8, time: &[u8]) -> Option<u64> {
        let version = part(VERSION, &part(0x02, &[2]));
        not_after(&certificate(&version, &[0; 300], part(tag, time))).map(|end| end.as_secs())
    }

    #[test]
    fn both_notations_of_a_time_are_read() {
        assert_eq!(ends(UTC_TIME, b"700102000001Z"), Some(86_401));
        assert_eq!(ends(UTC_TIME, b"490101000000Z"), ends(GENERALIZED_TIME, b"20490101000000Z"));
        assert_eq!(ends(GENERALIZED_TIME, b"20000229123456Z"), Some(951_827_696));
        assert!(ends(GENERALIZED_TIME, b"99991231235959Z").unwrap() > 18_000_000_000);
        for wrong in [&b""[..], b"Z", b"7001020000Z", b"700102000001", b"70010200000xZ", b"701302000001Z"] {
            assert_eq!(ends(UTC_TIME, wrong), None, "{}", wrong.escape_ascii());
        }
        let first_version = certificate(&[], b"", part(UTC_TIME, b"700102000001Z"));
        assert_eq!(not_after(&first_version), Some(Duration::from_secs(86_401)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = not_after(&bytes);
        }

        #[test]
        fn a_certificate_that_is_cut_off_has_no_end(at in 0usize..340) {
            let whole = certificate(&[], &[7; 290], part(UTC_TIME, b"700102000001Z"));
            prop_assert_eq!(not_after(&whole[..at.min(whole.len() - 1)]), None);
        }
    }
}
