//! The settings of the edge of a cluster.

use std::path::PathBuf;

use crate::cluster::Settings;
use crate::sync::url::StoreUrl;

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
    pub settings: Settings,
    /// The key secret is that of a file: one from the store is not taken.
    pub is_secret_fixed: bool,
}
