//! The address of a store.

use std::fmt;
use std::str::FromStr;

use redis::{Client, ConnectionInfo, IntoConnectionInfo};
use thiserror::Error;

/// The address of a store: a Redis or Valkey server, one behind sentinels, a Redis Cluster, or a token server.
/// `Display` leaves the password out.
#[derive(Clone)]
pub(crate) struct StoreUrl {
    /// As written, with its password.
    written: String,
    /// Without its password.
    text: String,
    pub(super) place: StorePlace,
}

impl StoreUrl {
    /// A token server is the store of its own node.
    pub(crate) fn own() -> StoreUrl {
        let text = "this token server".to_owned();
        StoreUrl { written: text.clone(), text, place: StorePlace::Own }
    }

    pub(crate) fn has_password(&self) -> bool {
        self.text != self.written
    }
}

impl Eq for StoreUrl {}

impl PartialEq for StoreUrl {
    fn eq(&self, other: &StoreUrl) -> bool {
        self.written == other.written
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Where a store is.
#[derive(Clone, Debug)]
pub(super) enum StorePlace {
    /// `redis://`, `rediss://` or `redis+unix://`.
    Server(ConnectionInfo),
    /// `redis-sentinel://host:port,host:port/name`: the master that the sentinels name.
    Sentinel { sentinels: Vec<ConnectionInfo>, name: String, master: ConnectionInfo },
    /// `redis-cluster://host:port,host:port`.
    Cluster(Vec<ConnectionInfo>),
    /// `slowlane://host:port`, or `slowlanes://host:port` over TLS.
    TokenServer(ConnectionInfo),
    /// This slowlane is the token server.
    Own,
}

/// The reason why a text is not the address of a store.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum StoreUrlError {
    #[error(
        "expected redis://, rediss://, redis+unix://, redis-sentinel://, redis-cluster://, slowlane:// or slowlanes://, like \
         redis://127.0.0.1:6379"
    )]
    Scheme,
    #[error("{0}")]
    Server(String),
    #[error(
        "expected the name of the master behind the sentinels, like redis-sentinel://10.0.0.1:26379,10.0.0.2:26379/mymaster"
    )]
    NoMaster,
    #[error(
        "expected the [cluster] listen of another slowlane, like slowlane://10.0.0.5:9007 or slowlane://:TOKEN@10.0.0.5:9007"
    )]
    TokenServer,
}

impl FromStr for StoreUrl {
    type Err = StoreUrlError;

    fn from_str(text: &str) -> Result<StoreUrl, StoreUrlError> {
        let (scheme, rest) = text.split_once("://").ok_or(StoreUrlError::Scheme)?;
        let place = match scheme {
            "redis" | "rediss" | "redis+unix" => StorePlace::Server(server(text)?),
            "redis-sentinel" => sentinel(rest)?,
            "redis-cluster" => StorePlace::Cluster(servers(rest)?),
            "slowlane" => StorePlace::TokenServer(token_server("redis", rest)?),
            "slowlanes" => StorePlace::TokenServer(token_server("rediss", rest)?),
            _ => return Err(StoreUrlError::Scheme),
        };
        Ok(StoreUrl { written: text.to_owned(), text: without_password(text), place })
    }
}

/// Reads `[user:password@]host:port,host:port/master[/database]`.
fn sentinel(rest: &str) -> Result<StorePlace, StoreUrlError> {
    let (hosts, path) = rest.split_once('/').ok_or(StoreUrlError::NoMaster)?;
    let (name, database) = path.split_once('/').unwrap_or((path, "0"));
    if name.is_empty() {
        return Err(StoreUrlError::NoMaster);
    }
    let (user, hosts) = user_and_hosts(hosts);
    let sentinels =
        hosts.split(',').map(|host| server(&format!("redis://{host}"))).collect::<Result<_, _>>()?;
    // The address of the master comes from the sentinels; user, password and database are those of the URL.
    let master = server(&format!("redis://{user}master/{database}"))?;
    Ok(StorePlace::Sentinel { sentinels, name: name.to_owned(), master })
}

/// Reads `[user:password@]host:port,host:port`.
fn servers(rest: &str) -> Result<Vec<ConnectionInfo>, StoreUrlError> {
    let (user, hosts) = user_and_hosts(rest);
    hosts.split(',').map(|host| server(&format!("redis://{user}{host}"))).collect()
}

/// Reads `[:token@]host:port`.
fn token_server(scheme: &str, rest: &str) -> Result<ConnectionInfo, StoreUrlError> {
    let (user, host) = user_and_hosts(rest);
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let is_token = user.is_empty() || user.starts_with(':');
    if !has_port || !is_token || host.contains(['/', '?', ',']) {
        return Err(StoreUrlError::TokenServer);
    }
    server(&format!("{scheme}://{rest}"))
}

fn user_and_hosts(text: &str) -> (&str, &str) {
    text.rfind('@').map_or(("", text), |at| text.split_at(at + 1))
}

fn server(url: &str) -> Result<ConnectionInfo, StoreUrlError> {
    let refused = |error: redis::RedisError| StoreUrlError::Server(error.to_string());
    let info = url.into_connection_info().map_err(refused)?;
    Client::open(info.clone()).map_err(refused)?;
    Ok(info)
}

/// The text with `***` for everything that may be a password.
fn without_password(text: &str) -> String {
    let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
    let rest = match user_and_hosts(rest) {
        ("", rest) => rest.to_owned(),
        (_, rest) => format!("***@{rest}"),
    };
    match rest.find("pass=") {
        Some(at) => format!("{scheme}://{}pass=***", &rest[..at]),
        None => format!("{scheme}://{rest}"),
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_its_password() {
        for (text, shown) in [
            ("redis://127.0.0.1:6379/2", "redis://127.0.0.1:6379/2"),
            ("redis://:secret@10.0.0.1", "redis://***@10.0.0.1"),
            ("rediss://user:a@b@redis.example:6380", "rediss://***@redis.example:6380"),
            ("redis+unix:///run/redis.sock?db=1&pass=secret", "redis+unix:///run/redis.sock?db=1&pass=***"),
            (
                "redis-sentinel://u:p@10.0.0.1:26379,10.0.0.2/main/1",
                "redis-sentinel://***@10.0.0.1:26379,10.0.0.2/main/1",
            ),
            ("redis-cluster://10.0.0.1:7000,10.0.0.2:7000", "redis-cluster://10.0.0.1:7000,10.0.0.2:7000"),
            ("slowlane://[2001:db8::5]:9007", "slowlane://[2001:db8::5]:9007"),
            ("slowlane://:0123456789abcdef@slowlane.example:9007", "slowlane://***@slowlane.example:9007"),
            ("slowlanes://:0123456789abcdef@10.0.0.5:9007", "slowlanes://***@10.0.0.5:9007"),
        ] {
            assert_eq!(text.parse::<StoreUrl>().map(|url| url.to_string()), Ok(shown.to_owned()));
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "",
            "127.0.0.1:6379",
            "http://x",
            "redis-sentinel://10.0.0.1:26379",
            "redis://x:y:z",
            "redis-sentinel://h/",
            "slowlane://10.0.0.5",
            "slowlanes://10.0.0.5",
            "slowlane://10.0.0.5:9007/1",
            "slowlane://10.0.0.5:9007,10.0.0.6:9007",
            "slowlane://user:0123456789abcdef@10.0.0.5:9007",
        ] {
            assert!(text.parse::<StoreUrl>().is_err(), "{text}");
        }
    }
}
