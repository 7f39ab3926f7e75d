//! Addresses of listeners: a host and a port, or a Unix socket.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// An address to listen on or to connect to.
///
/// It is written `127.0.0.1:9000`, `[::1]:9000`, `localhost:9000` or `unix:/run/slowlane/spop.sock`.
///
/// ```
/// use slowlane_core::base::Address;
/// let local = |text: &str| text.parse::<Address>().unwrap().is_local();
/// assert!(local("127.0.0.1:9000") && local("[::1]:9000") && local("unix:/run/slowlane/spop.sock"));
/// assert!(!local("192.0.2.1:9000") && !local("0.0.0.0:9000"));
/// assert!("9000".parse::<Address>().is_err() && "unix:relative".parse::<Address>().is_err());
/// assert!("shop\r.example:9000".parse::<Address>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub enum Address {
    Tcp(String),
    Unix(PathBuf),
}

/// The text is not an address.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0:?}: expected host:port, like 127.0.0.1:9000, or unix:/path")]
pub struct AddressError(String);

impl Address {
    /// Whether only this machine can reach the address. Names are not resolved; only `localhost` counts as local.
    pub fn is_local(&self) -> bool {
        let Address::Tcp(text) = self else { return true };
        let host = split(text).map_or("", |(host, _)| host);
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        host == "localhost" || host.parse().is_ok_and(is_loopback)
    }
}

impl Address {
    /// Whether a listener on one address would prevent a listener on the other, judging by the text of the
    /// addresses alone. Port 0 stands for any free port, so it never collides.
    ///
    /// ```
    /// use slowlane_core::base::Address;
    /// let collide = |one: &str, other: &str| one.parse::<Address>().unwrap().collides(&other.parse().unwrap());
    /// assert!(collide("127.0.0.1:9000", "127.0.0.1:9000") && collide("0.0.0.0:9000", "127.0.0.1:9000"));
    /// assert!(collide("localhost:9000", "127.0.0.1:9000") && collide("unix:/a", "unix:/a"));
    /// assert!(!collide("127.0.0.1:9000", "127.0.0.1:9001") && !collide("192.0.2.1:9000", "127.0.0.1:9000"));
    /// assert!(!collide("127.0.0.1:0", "127.0.0.1:0"));
    /// ```
    pub fn collides(&self, other: &Address) -> bool {
        let (Address::Tcp(one), Address::Tcp(other)) = (self, other) else { return self == other };
        let (Some(one), Some(other)) = (split(one), split(other)) else { return one == other };
        let bound = |host: &str| {
            let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
            let name = if host == "localhost" { "127.0.0.1" } else { host };
            (name.to_owned(), name.parse::<IpAddr>().is_ok_and(|address| address.is_unspecified()))
        };
        let (one_host, other_host) = (bound(one.0), bound(other.0));
        one.1 != 0 && one.1 == other.1 && (one_host.0 == other_host.0 || one_host.1 || other_host.1)
    }
}

/// Whether an IP address is a loopback address, including one in IPv4-mapped IPv6 form.
///
/// ```
/// use slowlane_core::base::is_loopback;
/// assert!(["127.0.0.2", "::1", "::ffff:127.0.0.1"].iter().all(|text| is_loopback(text.parse().unwrap())));
/// assert!(!is_loopback("192.0.2.1".parse().unwrap()));
/// ```
pub fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// The address at which a client on the same machine reaches a listener.
///
/// If the listener accepts connections on all addresses, this is the loopback address.
///
/// ```
/// use slowlane_core::base::reachable;
/// assert_eq!(reachable("0.0.0.0:9000"), "127.0.0.1:9000");
/// assert_eq!(reachable("[::]:9000"), "[::1]:9000");
/// assert_eq!(reachable("192.0.2.1:9000"), "192.0.2.1:9000");
/// ```
pub fn reachable(address: &str) -> String {
    match address.parse::<SocketAddr>() {
        Ok(SocketAddr::V4(v4)) if v4.ip().is_unspecified() => {
            SocketAddr::new(IpAddr::from([127, 0, 0, 1]), v4.port()).to_string()
        }
        Ok(SocketAddr::V6(v6)) if v6.ip().is_unspecified() => format!("[::1]:{}", v6.port()),
        _ => address.to_owned(),
    }
}

/// The host and the port of `host:port`.
fn split(text: &str) -> Option<(&str, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let is_host =
        !host.is_empty() && !host.contains(|letter: char| letter.is_control() || letter.is_whitespace());
    if is_host { Some((host, port.parse().ok()?)) } else { None }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        let address = match text.strip_prefix("unix:") {
            Some(path) => path.starts_with('/').then(|| Address::Unix(path.into())),
            None => split(text).map(|_| Address::Tcp(text.to_owned())),
        };
        address.ok_or_else(|| AddressError(text.to_owned()))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_neither_blanks_nor_control_characters() {
        let is_address = |text: &str| text.parse::<Address>().is_ok();
        assert!(is_address("shop.example:9000"));
        for host in ["shop .example", "shop\u{a0}", "shop\u{7}", "\0shop", "shop\n"] {
            assert!(!is_address(&format!("{host}:9000")), "{host:?}");
        }
    }
}
