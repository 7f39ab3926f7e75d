//! Configuration errors.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::server::listener::OpenAdmin;

/// The configuration cannot be used. The message is one line.
#[derive(Debug, Error)]
pub(crate) enum ConfigError {
    #[error("{}: {source}: name a file that can be read with --config", .path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{}:{line}: {message}", .path.display())]
    Invalid { path: PathBuf, line: usize, message: String },
    #[error(transparent)]
    Open(#[from] OpenAdmin),
    #[error("[admin] token and token_file: keep one of the two")]
    TwoTokens,
    #[error("token file {}: {reason}", .path.display())]
    TokenFile { path: PathBuf, reason: String },
    #[error("key secret file {}: {reason}", .path.display())]
    KeySecretFile { path: PathBuf, reason: String },
    #[error("the system has no random bytes for the secret of the keys: {0}; set [policy] key_secret_file")]
    NoSecret(io::Error),
    #[error("{0}: expected paths that are text, to write them into a config file")]
    Unwritable(String),
}
