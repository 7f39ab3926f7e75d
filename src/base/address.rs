//! Where to listen: a host and a port, or a Unix socket.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Where to listen: `127.0.0.1:9000`, `[::1]:9000`, `localhost:9000` or `unix:/run/slowlane/spop.sock`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub enum Address {
    Tcp(String),
    Unix(PathBuf),
}

/// What was written is no address.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0:?}: expected host:port, like 127.0.0.1:9000, or unix:/path")]
pub struct AddressError(String);

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        let error = || AddressError(text.to_owned());
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.starts_with('/') { Ok(Address::Unix(path.into())) } else { Err(error()) };
        }
        match text.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {
                Ok(Address::Tcp(text.to_owned()))
            }
            _ => Err(error()),
        }
    }
}

impl TryFrom<String> for Address {
    type Error = AddressError;

    fn try_from(text: String) -> Result<Address, AddressError> {
        text.parse()
    }
}

impl From<Address> for String {
    fn from(address: Address) -> String {
        address.to_string()
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => f.write_str(address),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Address {
    /// Whether only this machine can reach it, as far as its text tells.
    pub fn is_local(&self) -> bool {
        let Address::Tcp(address) = self else { return true };
        let host = address.rsplit_once(':').map_or("", |(host, _)| host);
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        host == "localhost" || host.parse().is_ok_and(|host: IpAddr| host.to_canonical().is_loopback())
    }
}
