//! The keys of a section for TLS.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The TLS of a listener. Without a certificate it has none.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Tls {
    pub(super) cert: Option<PathBuf>,
    pub(super) key: Option<PathBuf>,
    pub(super) client_ca: Option<PathBuf>,
}
