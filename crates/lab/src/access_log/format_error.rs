//! Why a log format cannot be read.

use thiserror::Error;

/// Why a format cannot be read, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FormatError {
    #[error("no items: expected some, like %ci or $remote_addr")]
    NoItems,
    #[error("{0:?} is not closed")]
    Open(String),
    #[error("{0}: not an item of HAProxy")]
    Unknown(String),
    #[error("{0} and {1} touch: put something between them, like a space")]
    Adjacent(String, String),
    #[error("{0}: cannot be replayed: use a log-format without it")]
    Encoded(String),
    #[error("{0}: expected a single item, like %[var(txn.owner)] or $http_x_owner")]
    NotOneItem(String),
    #[error("no time: expected {0}")]
    NoTime(&'static str),
}
