//! Why a log format cannot be read.

use thiserror::Error;

/// A format that cannot be read, with what can.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FormatError {
    #[error("nothing in it that differs from line to line: expected items like %ci or $remote_addr")]
    NoItems,
    #[error("{0:?} is not closed")]
    Open(String),
    #[error("{0}: HAProxy has no such item")]
    Unknown(String),
    #[error("{0} and {1} have nothing between them: their values cannot be told apart")]
    Adjacent(String, String),
    #[error("{0}: its lines are not text: give those that are to be replayed a log-format without it")]
    Encoded(String),
    #[error("{0}: one item is expected, like %[var(txn.owner)] or $http_x_owner")]
    NotOneItem(String),
    #[error("no time in it: expected {0}")]
    NoTime(&'static str),
}
