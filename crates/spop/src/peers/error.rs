//! Protocol errors of the other side, and errors that two peers report to each other.

use thiserror::Error;

use crate::error::ReadError;

/// An error of the sender. It ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Error {
    #[error("message of {bytes} bytes: at most {bytes_max} are allowed")]
    TooBig { bytes: u64, bytes_max: u64 },
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("message with {0} bytes too many")]
    TooLong(usize),
    #[error("message class {0} does not exist")]
    UnknownClass(u8),
    #[error("message type {kind} of class {class} does not exist")]
    UnknownType { class: u8, kind: u8 },
    #[error("table with key type {0}, which does not exist")]
    UnknownKeyType(u64),
    #[error("table with a column {0}, which this version does not know")]
    UnknownColumn(u32),
    #[error("table with columns in another order than that of their numbers")]
    ColumnOrder,
    #[error("table with {0} values in a column: at most 100 are allowed")]
    TooManyValues(u64),
    #[error("more than {0} tables")]
    TooManyTables(usize),
    #[error("table name or key of {0} bytes: too long")]
    TooLongName(u64),
    #[error("update without a table")]
    NoTable,
    #[error("switch to table {0}, which is not defined")]
    UnknownTable(u64),
    #[error("the peer reports an error of this side: {0}")]
    Reported(&'static str),
}

impl Error {
    /// The message to the other side about the error.
    pub const fn protocol_error(self) -> ProtocolError {
        match self {
            Error::TooBig { .. } | Error::TooManyTables(_) | Error::TooLongName(_) => {
                ProtocolError::SizeLimit
            }
            _ => ProtocolError::Protocol,
        }
    }
}

/// Messages that report an error, and end the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ProtocolError {
    Protocol = 0,
    SizeLimit = 1,
}

impl ProtocolError {
    /// Each variant has the value of its number.
    pub(super) const ALL: [ProtocolError; 2] = [ProtocolError::Protocol, ProtocolError::SizeLimit];
}
