//! Why the store of a cluster does not answer.

use std::io;
use std::time::Duration;

use ::redis::{ErrorKind, RedisError};
use thiserror::Error;

use crate::store_protocol::{ProtocolError, Refusal};

/// The longest time to connect.
pub(super) const CONNECT: Duration = Duration::from_secs(2);

/// The reason why the store does not answer.
#[derive(Debug, Error)]
pub(super) enum StoreError {
    #[error("no answer for {} ms", .0.as_millis())]
    Silent(Duration),
    #[error("its answer is not one that slowlane's script gives")]
    Garbage,
    #[error("no sentinel knows a master with this name")]
    NoMaster,
    #[error("this slowlane is not a token server")]
    NoTokenServer,
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Redis(#[from] RedisError),
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    #[error(transparent)]
    Refused(#[from] Refusal),
}

impl StoreError {
    /// The kind of the error in metrics.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            StoreError::Silent(_) => "silent",
            StoreError::NoMaster | StoreError::NoTokenServer | StoreError::Io(_) => "unreachable",
            StoreError::Protocol(ProtocolError::Io(_)) => "unreachable",
            StoreError::Garbage | StoreError::Protocol(_) => "garbage",
            StoreError::Refused(Refusal::Full | Refusal::Numbers) => "other",
            StoreError::Refused(_) => "login",
            StoreError::Redis(error) if error.is_timeout() => "silent",
            StoreError::Redis(error) => match (error.kind(), error.code()) {
                (ErrorKind::AuthenticationFailed, _) | (_, Some("NOAUTH" | "WRONGPASS" | "NOPERM")) => {
                    "login"
                }
                (_, Some("OOM")) => "memory",
                (_, Some("READONLY")) => "read_only",
                (ErrorKind::Io, _) => "unreachable",
                (ErrorKind::Parse | ErrorKind::UnexpectedReturnType, _) => "garbage",
                _ => "other",
            },
        }
    }
}
