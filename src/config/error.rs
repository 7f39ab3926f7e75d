//! Configuration errors.

use std::path::{Path, PathBuf};
use std::{fmt, io};

use thiserror::Error;

use crate::server::{OpenListener, TlsError};

/// All reasons to reject a configuration, one per line. A returned error has at least one reason.
#[derive(Debug, Error)]
pub(crate) struct ConfigErrors(pub(crate) Vec<ConfigError>);

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(ConfigError::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl From<ConfigError> for ConfigErrors {
    fn from(error: ConfigError) -> ConfigErrors {
        ConfigErrors(vec![error])
    }
}

/// A reason to reject a configuration. The message is one line.
#[derive(Debug, Error)]
pub(crate) enum ConfigError {
    #[error("{}: {source}: use --config to name a file that can be read", .path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{}:{line}: {message}", .path.display())]
    Invalid { path: PathBuf, line: usize, message: String },
    #[error(transparent)]
    Open(#[from] OpenListener),
    #[error("[{section}] listens on {address}, and so does [{other}]: give each a port of its own")]
    SamePort { section: &'static str, address: String, other: &'static str },
    #[error("[admin] sets both token and token_file: keep one of the two")]
    TwoTokens,
    #[error("token file {}: {reason}", .path.display())]
    TokenFile { path: PathBuf, reason: String },
    #[error(
        "[peers] on {0} is open to others: the protocol does not authenticate peers, so set [peers.tls] \
         with client_ca, or listen on 127.0.0.1 or unix:/path"
    )]
    OpenPeers(String),
    #[error("[ends] {0}: log lines arrive over UDP; expected host:port, like 127.0.0.1:9004")]
    EndsOverUnix(String),
    #[error(
        "[peers] dial {0}: connections that slowlane opens are not encrypted; let the proxy connect \
         instead, with [peers.tls]"
    )]
    RemotePeer(String),
    #[error("[{section}] has {has} but no {lacks}: set both")]
    HalfTls { section: String, has: &'static str, lacks: &'static str },
    #[error("[{section}] {error}")]
    Tls { section: String, error: TlsError },
    #[error("key secret file {}: {reason}", .path.display())]
    KeySecretFile { path: PathBuf, reason: String },
    #[error("cannot get random bytes from the system for the key secret: {0}; set [policy] key_secret_file")]
    NoSecret(io::Error),
    #[error(
        "{}: the service runs as the user slowlane, which cannot read this file: `chgrp slowlane` and `chmod g+r` the \
         file, and `chmod g+x` its directories", .0.display()
    )]
    NotForService(PathBuf),
    #[error("{0}: every path in a config file must be UTF-8 text")]
    Unwritable(String),
}

/// Collects each error with its section and its key.
pub(super) type Report<'r> = &'r mut dyn FnMut(&str, &str, ConfigError);

impl ConfigError {
    /// The file and the line, if the error has them, and the rest of the message.
    pub(crate) fn place(&self) -> (Option<&Path>, Option<usize>, String) {
        match self {
            ConfigError::Unreadable { path, .. } => {
                let message = self.to_string();
                let prefix = format!("{}: ", path.display());
                (Some(path), None, message.strip_prefix(&prefix).unwrap_or(&message).to_owned())
            }
            ConfigError::Invalid { path, line, message } => (Some(path), Some(*line), message.clone()),
            other => (None, None, other.to_string()),
        }
    }
}
