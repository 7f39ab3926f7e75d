//! The settings of the edge of a cluster.

use std::path::PathBuf;

use crate::server::tls::{TlsError, Trust, client};
use crate::sync::url::StoreUrl;
use slowlane_core::cluster::Settings;

/// The section `[cluster]` of the config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SyncConfig {
    pub store: StoreUrl,
    /// The name of this node, for operators.
    pub node: String,
    /// The beginning of all keys in the store.
    pub prefix: String,
    /// The certificate authority of the store, in PEM.
    pub ca: Option<PathBuf>,
    /// The node's own certificate and its key, in PEM, for a store that wants one.
    pub identity: Option<(PathBuf, PathBuf)>,
    pub settings: Settings,
    /// The key secret is that of a file: one from the store is not taken.
    pub is_secret_fixed: bool,
}

impl SyncConfig {
    /// Whether the files of TLS can be used.
    ///
    /// # Errors
    /// The first file that cannot be used.
    pub(crate) fn check_tls(&self) -> Result<(), TlsError> {
        if self.ca.is_none() && self.identity.is_none() {
            return Ok(());
        }
        let trust = self.ca.clone().map_or(Trust::System, Trust::Authority);
        let identity = self.identity.as_ref().map(|(cert, key)| (cert.as_path(), key.as_path()));
        client(&trust, identity).map(drop)
    }
}
