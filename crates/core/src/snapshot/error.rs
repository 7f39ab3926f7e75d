//! The reasons to reject a snapshot.

use std::io;

use thiserror::Error;

/// A file that is not a snapshot, or not a complete one.
#[derive(Debug, Error)]
pub enum SnapshotError {
    #[error("it is not a slowlane snapshot")]
    Foreign,
    #[error("it has the layout {0}, and this slowlane reads {1}")]
    Version(u16, u16),
    #[error("it is truncated")]
    CutOff,
    #[error("it is damaged: part {0} does not match its checksum")]
    Damaged(u64),
    #[error("it is larger than {0} bytes, the maximum for this table and its auxiliary state")]
    Huge(u64),
    #[error("its time is {0} ahead of this machine's clock")]
    Future(String),
    #[error(transparent)]
    Unreadable(io::Error),
}

impl From<io::Error> for SnapshotError {
    fn from(error: io::Error) -> SnapshotError {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => SnapshotError::CutOff,
            _ => SnapshotError::Unreadable(error),
        }
    }
}
