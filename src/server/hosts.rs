//! The names by which clients may address an admin listener without a token.

use std::net::IpAddr;

use hyper::header::HOST;
use hyper::{Request, Version};

use slowlane_core::base::{Host, is_loopback};

/// The allowed names and addresses of reverse proxies, besides `localhost` and the loopback addresses.
///
/// A web page of any site can make the site's name resolve to 127.0.0.1 (DNS rebinding). The browser then takes
/// slowlane for that site, and lets the page read all answers. But the `Host` header still contains the site's name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hosts(Vec<String>);

/// An item of `[admin] hosts` that is not a host. The message says what is expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?}: expected a name or an address without a port, like slowlane.example")]
pub(crate) struct HostError(String);

impl Hosts {
    pub(crate) fn new(hosts: &[String]) -> Result<Hosts, HostError> {
        let known = |text: &String| {
            let host = canonical(text.as_bytes()).filter(|_| !has_port(text));
            host.ok_or_else(|| HostError(text.clone()))
        };
        Ok(Hosts(hosts.iter().map(known).collect::<Result<_, _>>()?))
    }

    /// Whether all hosts that a request names, in its target and in `Host`, are allowed. An HTTP/1.0 request, such as a
    /// health check, may name no host; browsers always name one.
    pub(crate) fn allow<B>(&self, request: &Request<B>) -> bool {
        let written = request.headers().get_all(HOST).iter().map(|host| host.as_bytes());
        let mut named =
            request.uri().authority().map(|host| host.as_str().as_bytes()).into_iter().chain(written);
        let is_allowed = |host| canonical(host).is_some_and(|host| self.has(&host));
        match named.next() {
            None => request.version() == Version::HTTP_10,
            Some(first) => is_allowed(first) && named.all(is_allowed),
        }
    }

    fn has(&self, host: &str) -> bool {
        let is_local = host == "localhost" || host.parse().is_ok_and(is_loopback);
        is_local || self.0.iter().any(|known| known == host)
    }
}

/// The canonical spelling of a host: lower case, without a final dot.
fn canonical(text: &[u8]) -> Option<String> {
    Some(match Host::read(text)? {
        Host::Ipv6(address) => IpAddr::from(address).to_canonical().to_string(),
        Host::Name { name, .. } => str::from_utf8(name).ok()?.to_ascii_lowercase(),
    })
}

/// Whether a host is followed by a port. An IPv6 address contains colons, too.
fn has_port(host: &str) -> bool {
    match host.rsplit_once(']') {
        Some((_, behind)) => !behind.is_empty(),
        None => host.matches(':').count() == 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(hosts: &[&str], named: &[&str]) -> bool {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let request =
            named.iter().fold(Request::get("/metrics"), |request, host| request.header(HOST, *host));
        Hosts::new(&hosts).unwrap().allow(&request.body(()).unwrap())
    }

    #[test]
    fn loopback_names_and_addresses_are_allowed_with_any_port() {
        for host in [
            "localhost",
            "LocalHost:9002",
            "localhost.",
            "localhost.:80",
            "127.0.0.1",
            "127.0.0.1:9002",
            "127.8.9.10:1",
            "[::1]",
            "[::1]:9002",
            "[::ffff:127.0.0.1]:9002",
            "::1",
            "localhost:",
        ] {
            assert!(allows(&[], &[host]), "{host:?}");
        }
    }

    #[test]
    fn other_names_are_refused() {
        for host in [
            "",
            "evil.example",
            "evil.example:9002",
            "localhost.evil.example",
            "localhost:9002.evil.example",
            "127.0.0.1.evil.example",
            "evil.example:127.0.0.1",
            "x@localhost",
            "localhost@evil.example:80",
            "192.0.2.1:9002",
            "0.0.0.0:9002",
            "[::]:9002",
            "[2001:db8::1]",
            "[127.0.0.1]",
            "127.1",
            "2130706433",
            "evil.localhost",
            "localhost..",
            ".",
            ":9002",
            "[::1]evil.example",
            "[::1",
            "é",
            "localhost, evil.example",
            "localhost evil.example",
            "localhost/",
        ] {
            assert!(!allows(&[], &[host]), "{host:?}");
            assert!(!allows(&[], &["localhost", host]), "{host:?}");
            assert!(!allows(&[], &[host, "localhost"]), "{host:?}");
        }
        assert!(!allows(&[], &[]), "with HTTP/1.1");
        let absolute = |uri| {
            let request = Request::get(uri).header(HOST, "localhost").body(()).unwrap();
            Hosts::default().allow(&request)
        };
        assert!(absolute("http://127.0.0.1:9002/metrics"));
        assert!(!absolute("http://evil.example/metrics"));
    }

    #[test]
    fn configured_hosts_are_allowed_too() {
        let hosts = &["Slowlane.Example.", "2001:db8::1", "192.0.2.1"];
        for host in
            ["slowlane.example", "SLOWLANE.example.:443", "[2001:DB8::1]:443", "192.0.2.1:80", "localhost"]
        {
            assert!(allows(hosts, &[host]), "{host:?}");
        }
        for host in ["evil.example", "x.slowlane.example", "192.0.2.2"] {
            assert!(!allows(hosts, &[host]), "{host:?}");
        }
        for wrong in ["", "slowlane.example:443", "http://slowlane.example", "*.example", "a b", "a,b", "."] {
            let error = Hosts::new(&[wrong.to_owned()]).unwrap_err().to_string();
            assert!(error.ends_with("expected a name or an address without a port, like slowlane.example"));
        }
    }
}
