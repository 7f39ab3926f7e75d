//! The secrets of a configuration: tokens and the key secret, and the files that hold these secrets.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

use rustix::rand::{GetRandomFlags, getrandom};

use crate::config::{ConfigError, ConfigFile, Listen, Report, Sections};
use crate::server::OpenListener;
use crate::sync::StoreUrl;
use slowlane_core::base::{KeySecret, Token};

/// A file with a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Secret {
    pub(super) path: PathBuf,
    /// The kind of secret, in words.
    holds: &'static str,
}

impl Secret {
    /// A warning if every user of the machine has some permission on the file. The file's group may read it, so that a
    /// service can use a secret that it does not own.
    pub(super) fn warning(&self) -> Option<String> {
        let Secret { path, holds } = self;
        let metadata = fs::metadata(path).ok()?;
        let path = path.display();
        // A file of root's group must first be given to the service's group, or the service could no longer read it.
        let chgrp = if metadata.gid() == ROOT { format!("chgrp slowlane {path} && ") } else { String::new() };
        (metadata.mode() & OTHERS != 0).then(|| {
            format!("{path}: every user may read {holds} in this file: run `{chgrp}chmod o= {path}`")
        })
    }
}

/// The permissions of users that are neither the owner nor in the group.
const OTHERS: u32 = 0o007;

const ROOT: u32 = 0;

/// The files that hold secrets.
pub(super) fn all(sections: &Sections, file: Option<&ConfigFile>) -> Vec<Secret> {
    let Sections { spop, http, grpc, admin, policy, cluster, peers, .. } = sections;
    // `--cluster` replaces the store of the file.
    let is_flag = file.is_some_and(|file| file.flags.cluster.is_some());
    let has_password = !is_flag && cluster.store.as_ref().is_some_and(StoreUrl::has_password);
    let is_in_file = admin.token.is_some() || has_password;
    let files = [
        (admin.token_file.as_deref(), "the admin token"),
        (cluster.token_file.as_deref(), "the nodes' token"),
        (policy.written.key_secret_file.as_deref(), "the key secret"),
        (cluster.key.as_deref(), "a private key"),
        (file.filter(|_| is_in_file).map(|file| file.path.as_path()), "a token or a password"),
    ];
    let tls = [&spop.tls, &http.tls, &grpc.tls, &admin.tls, &cluster.tls, &peers.tls];
    let keys = tls.map(|tls| (tls.key.as_deref(), "a private key"));
    let secret = |(path, holds): (Option<&Path>, _)| Some(Secret { path: path?.to_owned(), holds });
    files.into_iter().chain(keys).filter_map(secret).collect()
}

/// The token of a listener. Reports a listener that other machines can reach without a token.
pub(super) fn guard(
    listen: &Listen,
    token: Option<Token>,
    file: Option<PathBuf>,
    report: Report<'_>,
) -> Option<Token> {
    // An unreadable token is a single error: the listener is not reported again for lacking a token.
    let is_secret = token.is_some() || file.is_some();
    let open = listen.addresses.iter().find(|address| !address.is_local());
    let token = match (token, file) {
        (Some(token), Some(_)) => {
            report(listen.section, "token_file", ConfigError::TwoTokens);
            Some(token)
        }
        (None, Some(path)) => {
            read_token(path).map_err(|error| report(listen.section, "token_file", error)).ok()
        }
        (token, None) => token,
    };
    if let Some(address) = open.filter(|_| !is_secret) {
        let open = OpenListener { section: listen.section, address: address.to_string() };
        report(listen.section, "listen", open.into());
    }
    token
}

/// Reads a token from a file, without the white space around it.
pub(crate) fn read_token(path: PathBuf) -> Result<Token, ConfigError> {
    let read = fs::read_to_string(&path).map_err(|error| error.to_string());
    let token =
        read.and_then(|text| Token::try_from(text.trim().to_owned()).map_err(|error| error.to_string()));
    token.map_err(|reason| ConfigError::TokenFile { path, reason })
}

const EXPECTED: &str = "expected 16 bytes or 32 hex digits, such as the output of `openssl rand -hex 16`";

/// Reads the secret of the keys from a file.
pub(super) fn key_secret(path: PathBuf) -> Result<KeySecret, ConfigError> {
    let read = fs::read(&path).map_err(|error| error.to_string());
    let secret = read.and_then(|bytes| KeySecret::read(&bytes).ok_or_else(|| EXPECTED.to_owned()));
    secret.map_err(|reason| ConfigError::KeySecretFile { path, reason })
}

/// Generates a key secret from the system's random bytes.
pub(super) fn draw() -> Result<KeySecret, ConfigError> {
    let mut bytes = [0; 16];
    match getrandom(&mut bytes, GetRandomFlags::empty()) {
        Ok(16) => Ok(KeySecret::from_bytes(bytes)),
        Ok(_) => Err(ConfigError::NoSecret(io::ErrorKind::UnexpectedEof.into())),
        Err(error) => Err(ConfigError::NoSecret(error.into())),
    }
}
