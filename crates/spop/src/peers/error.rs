//! Protocol errors of the other side.

use thiserror::Error;

use crate::error::ReadError;
use crate::peers::frame::{self, Frame};

/// An error made by the sender, which ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Error {
    #[error("message of {bytes} bytes: at most {bytes_max} are allowed")]
    TooBig { bytes: u64, bytes_max: u64 },
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("message with extra bytes at its end: {0}")]
    TooLong(usize),
    #[error("message class {0} does not exist")]
    UnknownClass(u8),
    #[error("message type {kind} of class {class} does not exist")]
    UnknownType { class: u8, kind: u8 },
    #[error("table with key type {0}, which does not exist")]
    UnknownKeyType(u64),
    #[error("table with column {0}, which this version does not support")]
    UnknownColumn(u32),
    #[error("table whose columns are not in the order of their numbers")]
    ColumnOrder,
    #[error("table with {0} values in a column: at most 100 are allowed")]
    TooManyValues(u64),
    #[error("more than {0} tables")]
    TooManyTables(usize),
    #[error("table name or key is too long: {0} bytes")]
    TooLongName(u64),
    #[error("update without a table")]
    NoTable,
    #[error("switch to table {0}, which is not defined")]
    UnknownTable(u64),
    #[error("the peer rejected a message from this side: {0} error")]
    Reported(&'static str),
}

impl Error {
    /// Appends the message that reports the error to the other side.
    pub fn encode(self, out: &mut Vec<u8>) {
        let kind = match self {
            Error::TooBig { .. } | Error::TooManyTables(_) | Error::TooLongName(_) => frame::SIZE_LIMIT,
            _ => frame::PROTOCOL,
        };
        Frame { class: frame::ERROR, kind, body: &[] }.encode(out);
    }
}
