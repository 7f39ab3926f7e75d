//! The secret of the keys: read from a file, or drawn.

use std::path::PathBuf;
use std::{fs, io};

use rustix::rand::{GetRandomFlags, getrandom};

use crate::config::ConfigError;
use slowlane_core::base::KeySecret;

const EXPECTED: &str = "expected 16 bytes or 32 hex digits, like `openssl rand -hex 16` prints";

/// Reads the secret from a file.
pub(super) fn read(path: PathBuf) -> Result<KeySecret, ConfigError> {
    let read = fs::read(&path).map_err(|error| error.to_string());
    let secret = read.and_then(|bytes| KeySecret::read(&bytes).ok_or_else(|| EXPECTED.to_owned()));
    secret.map_err(|reason| ConfigError::KeySecretFile { path, reason })
}

/// Draws a secret from the system's random bytes.
pub(super) fn draw() -> Result<KeySecret, ConfigError> {
    let mut bytes = [0; 16];
    match getrandom(&mut bytes, GetRandomFlags::empty()) {
        Ok(16) => Ok(KeySecret::from_bytes(bytes)),
        Ok(_) => Err(ConfigError::NoSecret(io::ErrorKind::UnexpectedEof.into())),
        Err(error) => Err(ConfigError::NoSecret(error.into())),
    }
}
