//! Settings from the command line.

use std::path::PathBuf;

use crate::sync::StoreUrl;
use slowlane_core::base::address::Address;

/// Settings from the command line. An empty list, or `None`, leaves the setting of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags {
    pub policy: Option<PathBuf>,
    pub spop: Vec<Address>,
    pub http: Vec<Address>,
    pub admin: Vec<Address>,
    pub peers: Vec<Address>,
    pub cluster: Option<StoreUrl>,
    pub state: Option<PathBuf>,
}
