//! The address of a store.

use std::fmt;
use std::str::FromStr;

use redis::{Client, ConnectionInfo, IntoConnectionInfo};
use thiserror::Error;

/// The address of a store: a Redis or Valkey server, a server that sentinels name, a Redis Cluster, or a token server.
/// `Display` shows `***` instead of the password.
#[derive(Clone)]
pub(crate) struct StoreUrl {
    /// The address as written, with its password.
    written: String,
    /// The address without its password.
    text: String,
    pub(super) place: StorePlace,
}

impl StoreUrl {
    /// The store's address for the node of a token server: the token server itself.
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

/// The type of a store, and its addresses.
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

/// Why a string is not the address of a store. The messages must not contain a password.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum StoreUrlError {
    #[error(
        "expected a URL such as redis://127.0.0.1:6379, with redis://, redis-sentinel:// or redis-cluster:// (rediss… \
         for TLS; valkey… also works), redis+unix://, slowlane:// or slowlanes://"
    )]
    Scheme,
    #[error("{0}")]
    Server(String),
    #[error(
        "expected the name of the master after the sentinels' addresses, as in redis-sentinel://10.0.0.1:26379,10.0.0.2:26379/mymaster"
    )]
    NoMaster,
    #[error(
        "expected the [cluster] listen address of another slowlane, like slowlane://10.0.0.5:9007 or \
         slowlane://:TOKEN@10.0.0.5:9007"
    )]
    TokenServer,
    #[error("in a password, write / as %2F, ? as %3F and # as %23")]
    Password,
    #[error(
        "the URL of a store must not contain #: use rediss:// for TLS, and name the certificate's CA in [cluster] ca"
    )]
    Fragment,
    #[error(
        "the URL of a store takes no parameter \"{0}\": use rediss:// for TLS, and write the number of the database after \
         the server, as in rediss://10.0.0.1:6379/1"
    )]
    Parameter(String),
    #[error("unknown parameter \"{0}\"; expected db, user, pass or protocol")]
    SocketParameter(String),
    #[error("a Redis Cluster has no database other than 0")]
    Database,
}

impl FromStr for StoreUrl {
    type Err = StoreUrlError;

    fn from_str(text: &str) -> Result<StoreUrl, StoreUrlError> {
        let (scheme, rest) = text.split_once("://").ok_or(StoreUrlError::Scheme)?;
        let place = match scheme {
            "redis+unix" | "valkey+unix" | "unix" => StorePlace::Server(socket(scheme, rest)?),
            "slowlane" => StorePlace::TokenServer(token_server("redis", rest)?),
            "slowlanes" => StorePlace::TokenServer(token_server("rediss", rest)?),
            _ => redis(scheme, rest)?,
        };
        Ok(StoreUrl { written: text.to_owned(), text: without_password(text), place })
    }
}

/// Reads `[user:password@]host:port[,host:port][/path]`, under a scheme of Redis or Valkey.
fn redis(scheme: &str, rest: &str) -> Result<StorePlace, StoreUrlError> {
    let form = scheme.strip_prefix("redis").or_else(|| scheme.strip_prefix("valkey"));
    let form = form.ok_or(StoreUrlError::Scheme)?;
    let (is_secure, form) = form.strip_prefix('s').map_or((false, form), |form| (true, form));
    let (hosts, tail) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    // Otherwise, the beginning of a password would be taken for the host.
    if tail.contains('@') {
        return Err(StoreUrlError::Password);
    }
    let (path, mut parameters) = parameters(tail)?;
    if let Some(name) = parameters.next() {
        return Err(StoreUrlError::Parameter(name.to_owned()));
    }
    let (user, hosts) = user_and_hosts(hosts);
    let path = path.strip_prefix('/').unwrap_or(path);
    let scheme = if is_secure { "rediss" } else { "redis" };
    let at = |user: &str, host: &str, database: &str| server(&format!("{scheme}://{user}{host}/{database}"));
    match form {
        "" => Ok(StorePlace::Server(at(user, hosts, path)?)),
        "-sentinel" => {
            let (name, database) = path.split_once('/').unwrap_or((path, ""));
            if name.is_empty() {
                return Err(StoreUrlError::NoMaster);
            }
            // The address of the master comes from the sentinels; user, password and database come from the URL.
            let master = at(user, "master", database)?;
            let sentinels = hosts.split(',').map(|host| at("", host, "")).collect::<Result<_, _>>()?;
            Ok(StorePlace::Sentinel { sentinels, name: name.to_owned(), master })
        }
        "-cluster" => {
            if !matches!(path, "" | "0") {
                return Err(StoreUrlError::Database);
            }
            hosts.split(',').map(|host| at(user, host, "")).collect::<Result<_, _>>().map(StorePlace::Cluster)
        }
        _ => Err(StoreUrlError::Scheme),
    }
}

/// Splits the part after the hosts into the path and the names of the parameters.
fn parameters(tail: &str) -> Result<(&str, impl Iterator<Item = &str>), StoreUrlError> {
    if tail.contains('#') {
        return Err(StoreUrlError::Fragment);
    }
    let (path, query) = tail.split_once('?').unwrap_or((tail, ""));
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    Ok((path, pairs.map(|pair| pair.split('=').next().unwrap_or_default())))
}

/// Reads `/path[?db=1&user=…&pass=…]`: a socket on this machine.
fn socket(scheme: &str, rest: &str) -> Result<ConnectionInfo, StoreUrlError> {
    let (_, mut parameters) = parameters(rest)?;
    match parameters.find(|name| !matches!(*name, "db" | "user" | "pass" | "protocol")) {
        Some(name) => Err(StoreUrlError::SocketParameter(name.to_owned())),
        None => server(&format!("{scheme}://{rest}")),
    }
}

/// Reads `[:token@]host:port`.
fn token_server(scheme: &str, rest: &str) -> Result<ConnectionInfo, StoreUrlError> {
    let (user, host) = user_and_hosts(rest);
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let is_token = user.is_empty() || user.starts_with(':');
    if !has_port || !is_token || host.contains(['/', '?', '#', ',']) {
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
            ("valkeys-sentinel://u:p@10.0.0.1:26379/main/1", "valkeys-sentinel://***@10.0.0.1:26379/main/1"),
            ("rediss-cluster://:p@10.0.0.1:7000/0", "rediss-cluster://***@10.0.0.1:7000/0"),
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

    /// The servers that an address leads to, each with whether TLS is spoken there, and the database.
    fn led_to(text: &str) -> Result<(Vec<(String, bool)>, i64), StoreUrlError> {
        let infos = match text.parse::<StoreUrl>()?.place {
            StorePlace::Server(info) | StorePlace::TokenServer(info) => vec![info],
            StorePlace::Sentinel { sentinels, master, .. } => [sentinels, vec![master]].concat(),
            StorePlace::Cluster(infos) => infos,
            StorePlace::Own => Vec::new(),
        };
        let is_secure = |info: &ConnectionInfo| {
            matches!(info.addr(), redis::ConnectionAddr::TcpTls { insecure: false, .. })
        };
        let database = infos.last().map_or(0, |info| info.redis_settings().db());
        Ok((infos.iter().map(|info| (info.addr().to_string(), is_secure(info))).collect(), database))
    }

    #[test]
    fn an_address_leads_to_servers_and_takes_no_parameter() {
        let one = |host: &str, is_secure, database| Ok((vec![(host.to_owned(), is_secure)], database));
        for (text, expected) in [
            ("valkey://10.0.0.1/1", one("10.0.0.1:6379", false, 1)),
            ("valkeys://10.0.0.1:7", one("10.0.0.1:7", true, 0)),
            ("rediss-cluster://10.0.0.1:7", one("10.0.0.1:7", true, 0)),
            ("rediss://:p@10.0.0.1/2", one("10.0.0.1:6379", true, 2)),
            ("redis://10.0.0.1#tls", Err(StoreUrlError::Fragment)),
            ("rediss://10.0.0.1#insecure", Err(StoreUrlError::Fragment)),
            ("redis://10.0.0.1?tls=true", Err(StoreUrlError::Parameter("tls".into()))),
            ("redis-cluster://:p@10.0.0.1:7?ssl", Err(StoreUrlError::Parameter("ssl".into()))),
            ("redis-sentinel://10.0.0.1/main?db=2&x", Err(StoreUrlError::Parameter("db".into()))),
            ("redis-cluster://10.0.0.1/1", Err(StoreUrlError::Database)),
            ("redis+unix:///run/redis.sock?tls=true", Err(StoreUrlError::SocketParameter("tls".into()))),
            ("redis://:se?cret@10.0.0.1", Err(StoreUrlError::Password)),
            ("redis-ring://10.0.0.1", Err(StoreUrlError::Scheme)),
        ] {
            assert_eq!(led_to(text), expected, "{text}");
        }
        let (servers, database) = led_to("rediss-sentinel://u:p@10.0.0.1:26379,10.0.0.2/main/1").unwrap();
        assert_eq!((servers.len(), servers.iter().all(|(_, is_secure)| *is_secure), database), (3, true, 1));
    }

    proptest::proptest! {
        /// If an address mentions TLS in any way, its password is never sent in clear text.
        #[test]
        fn no_password_goes_out_in_clear_where_tls_is_asked_for(
            scheme in "(redis|valkey)s?(-sentinel|-cluster)?", hosts in "10[.]0[.]0[.]1(:7)?(,10[.]0[.]0[.]2)?",
            path in "(/|/main|/main/1|/0|/1)?", parameters in "([?](tls|ssl|TLS|db|protocol|secure|x)(=(true|1|yes|on|false|3|required)?)?){0,3}",
            fragment in "(#(tls|insecure))?",
        ) {
            let text = format!("{scheme}://:secret@{hosts}{path}{parameters}{fragment}").replacen("?", "&", 3).replacen('&', "?", 1);
            let lower = text.to_lowercase();
            let yes = ["", "=", "=true", "=1", "=yes", "=on", "=required"];
            let asks = |name: &str| lower.split(['?', '&', '#']).skip(1).any(|part| yes.iter().any(|yes| part == format!("{name}{yes}")));
            let is_asked = scheme.starts_with("rediss")
                || scheme.starts_with("valkeys") || asks("tls") || asks("ssl");
            if let Ok((servers, _)) = led_to(&text) {
                proptest::prop_assert!(!is_asked || servers.iter().all(|(_, is_secure)| *is_secure), "{}", text);
            }
        }
    }
}
