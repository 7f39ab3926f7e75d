//! The two errors that a peer reports to the other.

/// Messages that report an error, and end the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ProtocolError {
    Protocol = 0,
    SizeLimit = 1,
}

impl ProtocolError {
    pub(super) const ALL: [ProtocolError; 2] = [ProtocolError::Protocol, ProtocolError::SizeLimit];
}
