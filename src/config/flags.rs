//! Settings from the command line.

use std::path::PathBuf;

use crate::base::address::Address;

/// Settings from the command line. An empty list, or `None`, leaves the setting of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    pub policy: Option<PathBuf>,
    pub spop: Vec<Address>,
    pub http: Vec<Address>,
    pub admin: Vec<Address>,
}
