//! The TLS settings of connections to a server, as typed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use rustls_native_certs::load_native_certs;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

#[derive(Debug, Args)]
pub(crate) struct TlsFiles {
    /// Connect over TLS, and verify that the server's certificate is valid for the host
    #[arg(long)]
    tls: bool,
    /// The CA of the server's certificate, in PEM [default: the system's CAs]
    #[arg(long, value_name = "FILE", requires = "tls")]
    ca: Option<PathBuf>,
    /// A client certificate, in PEM, for a server that requires one
    #[arg(long, value_name = "FILE", requires_all = ["tls", "key"])]
    cert: Option<PathBuf>,
    /// The private key of --cert, in PEM
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
}

impl TlsFiles {
    /// The settings of a client that offers a protocol. `None` without TLS.
    pub(crate) fn read(&self, protocol: Option<&str>) -> Result<Option<Arc<ClientConfig>>, String> {
        if !self.tls {
            return Ok(None);
        }
        let mut roots = RootCertStore::empty();
        match &self.ca {
            Some(path) => {
                for authority in certificates(path)? {
                    roots.add(authority).map_err(|error| of_file(path, error))?;
                }
            }
            None => {
                roots.add_parsable_certificates(load_native_certs().certs);
            }
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider knows both versions")
            .with_root_certificates(roots);
        let mut config = match self.cert.as_ref().zip(self.key.as_ref()) {
            None => builder.with_no_client_auth(),
            Some((cert, key)) => {
                let private = PrivateKeyDer::from_pem_file(key).map_err(|error| of_file(key, error))?;
                let with = builder.with_client_auth_cert(certificates(cert)?, private);
                with.map_err(|error| of_file(cert, error))?
            }
        };
        config.alpn_protocols = protocol.into_iter().map(|name| name.as_bytes().to_vec()).collect();
        Ok(Some(Arc::new(config)))
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let all = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match all {
        Ok(all) if all.is_empty() => Err(of_file(path, "it has no certificate")),
        all => all.map_err(|error| of_file(path, error)),
    }
}

fn of_file(path: &Path, error: impl ToString) -> String {
    format!("{}: {}", path.display(), error.to_string())
}
