//! The settings for the connection to the store.

use std::path::PathBuf;
use std::sync::Arc;

use tokio_rustls::rustls::ClientConfig;

use crate::server::tls::{TlsError, Trust, client};
use crate::sync::StoreUrl;
use slowlane_core::cluster::Settings;

/// The section `[cluster]` of the config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SyncConfig {
    pub store: StoreUrl,
    /// The name of this node, for operators.
    pub node: String,
    /// The prefix of all keys in the store.
    pub prefix: String,
    pub files: StoreTlsFiles,
    pub settings: Settings,
    /// The key secret comes from a file: the one in the store is not used.
    pub is_secret_fixed: bool,
}

/// The TLS files, in PEM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoreTlsFiles {
    /// The CA of the store. None: those of the system.
    pub ca: Option<PathBuf>,
    /// The node's own certificate and key, for a store that requires one.
    pub identity: Option<(PathBuf, PathBuf)>,
}

impl StoreTlsFiles {
    /// Reads them.
    ///
    /// # Errors
    /// The first file that cannot be used.
    pub(crate) fn client(&self) -> Result<Arc<ClientConfig>, TlsError> {
        let trust = self.ca.clone().map_or(Trust::System, Trust::Authority);
        let identity = self.identity.as_ref().map(|(cert, key)| (cert.as_path(), key.as_path()));
        client(&trust, identity)
    }

    /// Checks whether they can be used, if there are any.
    ///
    /// # Errors
    /// The first file that cannot be used.
    pub(crate) fn check(&self) -> Result<(), TlsError> {
        if *self == StoreTlsFiles::default() { Ok(()) } else { self.client().map(drop) }
    }
}
