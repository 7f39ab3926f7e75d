//! TLS on the client's side: from a node to its store, and from commands to an admin listener.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls_native_certs::load_native_certs;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

use crate::server::tls::listener::{TlsError, authorities, chain, pair};

/// The server certificates that a client trusts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    /// Certificates from the system's CAs.
    System,
    /// Certificates from the CAs in a file.
    Authority(PathBuf),
    /// The first certificate in a file, whatever its name and its CA.
    Certificate(PathBuf),
}

/// Builds the TLS configuration of a client. `identity` is the client's own certificate and key.
///
/// # Errors
/// The first file that cannot be used.
pub(crate) fn client(trust: &Trust, identity: Option<(&Path, &Path)>) -> Result<Arc<ClientConfig>, TlsError> {
    let provider = Arc::new(default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .expect("the provider supports both TLS versions");
    let builder = match trust {
        Trust::System => {
            let mut system = RootCertStore::empty();
            // Unreadable certificates are skipped, because the CA stores of some systems contain a few.
            system.add_parsable_certificates(load_native_certs().certs);
            builder.with_root_certificates(system)
        }
        Trust::Authority(path) => builder.with_root_certificates(authorities(path)?),
        Trust::Certificate(path) => {
            let certificate = chain(path)?.swap_remove(0);
            builder.dangerous().with_custom_certificate_verifier(Arc::new(Pinned { certificate, provider }))
        }
    };
    Ok(Arc::new(match identity {
        None => builder.with_no_client_auth(),
        Some((cert, key)) => {
            let (chain, private) = pair(cert, key)?;
            let unusable = |error| TlsError::of_pair(error, cert, key);
            builder.with_client_auth_cert(chain, private).map_err(unusable)?
        }
    }))
}

/// Trusts only one certificate. The handshake proves that the server has the certificate's key.
#[derive(Debug)]
struct Pinned {
    certificate: CertificateDer<'static>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match *shown == self.certificate {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure)),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
