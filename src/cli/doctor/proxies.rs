//! The configurations of the proxies on this machine: whether slowlane is attached.

use std::path::PathBuf;

use crate::cli::doctor::site::{Read, Site};
use crate::cli::doctor::{DoctorReport, haproxy, nginx};
use crate::config::{Config, Listen};
use crate::proxy::attach::Refused;
use slowlane_core::base::Address;

/// The configuration of one proxy.
struct ProxyConfig {
    kind: &'static str,
    /// Its files, as they are shown.
    path: String,
    /// The operator has named the file.
    is_named: bool,
    read: Result<Read, Refused>,
}

/// The proxies of this machine that have a configuration.
pub(super) struct Proxies(Vec<ProxyConfig>);

/// The remedy for HAProxy's `option abortonclose`.
const KEEP_QUERIES: &str = "from HAProxy 3.3 on, `no option abortonclose` in the frontend; before, move the option from defaults to the backends";

const NAME_IT: &str = "name its main file with --haproxy or --nginx";

/// With fewer, a crawler or a crowd that waits can use up a worker of nginx: a client and its query take one each.
const WORKER_CONNECTIONS_MIN: u64 = 2_048;

impl Proxies {
    pub(super) fn read(haproxy: Vec<PathBuf>, nginx: Vec<PathBuf>) -> Proxies {
        let read = |kind, named: Vec<PathBuf>, default: &str, read: fn(&[PathBuf]) -> _| {
            let is_named = !named.is_empty();
            let paths = if is_named { named } else { vec![default.into()] };
            // Without the rights to look, assume that there is one.
            let is_there = is_named || paths[0].try_exists().unwrap_or(true);
            let path = paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
            is_there.then(|| ProxyConfig { kind, read: read(&paths), path, is_named })
        };
        let haproxy = read("haproxy", haproxy, "/etc/haproxy/haproxy.cfg", haproxy::read);
        let nginx = read("nginx", nginx, "/etc/nginx/nginx.conf", nginx::read);
        Proxies(haproxy.into_iter().chain(nginx).collect())
    }

    /// The frontends and servers that query slowlane.
    fn asking(&self) -> impl Iterator<Item = &Site> {
        let sites = self.0.iter().filter_map(|proxy| proxy.read.as_ref().ok()).flat_map(|read| &read.sites);
        sites.filter(|site| site.lacks.is_none())
    }

    /// Whether a proxy of this machine is attached; none if there is no proxy.
    pub(super) fn are_attached(&self) -> Option<bool> {
        (!self.0.is_empty()).then(|| self.asking().next().is_some())
    }

    /// Whether clients reach slowlane over IPv6.
    pub(super) fn have_ipv6(&self) -> bool {
        self.asking().any(|site| site.has_ipv6)
    }

    /// A proxy that does not query slowlane is a fault if the operator names it, or if no other does.
    pub(super) fn report(&self, config: &Config, may_be_asked: bool, report: &mut DoctorReport) {
        let may_be_asked = may_be_asked || self.are_attached() == Some(true);
        for proxy in &self.0 {
            let listen = if proxy.kind == "nginx" { &config.http.listen } else { &config.spop.listen };
            match &proxy.read {
                Ok(read) => proxy.report(read, listen, may_be_asked && !proxy.is_named, report),
                Err(error) => {
                    report.wrong(proxy.kind, error.to_string(), NAME_IT);
                }
            }
        }
    }
}

impl ProxyConfig {
    fn report(&self, read: &Read, listen: &Listen, may_be_unattached: bool, report: &mut DoctorReport) {
        let (kind, path) = (self.kind, &self.path);
        let fix = format!("run `slowlane attach {kind}`");
        let asks = read.sites.iter().any(|site| site.lacks.is_none());
        let mut sites: Vec<&Site> = read.sites.iter().collect();
        sites.sort_by_key(|site| site.lacks);
        for group in sites.chunk_by(|one, other| one.lacks == other.lacks) {
            let names = group.iter().map(|site| site.name.as_str()).collect::<Vec<_>>().join(", ");
            match group[0].lacks {
                None => report.ok(kind, format!("{path}: slowlane is queried by {names}")),
                Some(lacks) if asks || may_be_unattached => {
                    // Behind another proxy, all clients would share the address of that one.
                    let fix = format!("if clients reach it directly, {fix}");
                    report.note(kind, format!("{path}: {lacks}: {names}"), fix);
                }
                Some(lacks) => report.wrong(kind, format!("{path}: {lacks}: {names}"), &fix),
            }
        }
        let ending = read.sites.iter().filter(|site| site.ends_queries).map(|site| site.name.as_str());
        let ending = ending.collect::<Vec<_>>().join(", ");
        if !ending.is_empty() {
            let text = format!(
                "{path}: `option abortonclose`: a client that disconnects may pass uncounted: {ending}"
            );
            report.wrong(kind, text, KEEP_QUERIES);
        }
        if read.sites.is_empty() {
            report.note(kind, format!("{path}: no frontend or server for HTTP"), NAME_IT);
        }
        if !asks {
            return;
        }
        let reaches = |agent: &Address| listen.addresses.iter().any(|own| own.collides(agent));
        if !read.agents.iter().filter_map(|agent| agent.parse().ok()).any(|agent| reaches(&agent)) {
            let own = listen.addresses.iter().map(Address::to_string).collect::<Vec<_>>().join(", ");
            let text = match read.agents.join(", ") {
                none if none.is_empty() => format!("{path}: no server of slowlane, which listens on {own}"),
                agents => format!("{path}: expects slowlane at {agents}, but it listens on {own}"),
            };
            report.wrong(kind, text, format!("use the same address here and in [{}] listen", listen.section));
        }
        if let Some(number) = read.worker_connections.filter(|number| *number < WORKER_CONNECTIONS_MIN) {
            let text = format!("{path}: worker_connections {number}: each client that waits takes two");
            report.note(kind, text, "`worker_connections 4096;` in the block events");
        }
    }
}
