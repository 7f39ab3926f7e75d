//! Checks whether slowlane is attached to the proxies on this machine.

use std::path::{Path, PathBuf};

use crate::cli::attach::{files_of, list, lossy};
use crate::cli::doctor::DoctorReport;
use crate::config::{Config, Listen};
use crate::proxy::attach::Refused;
use crate::proxy::attach::nginx::servers;
use crate::proxy::haproxy_syntax::{Config as HaproxyConfig, Section};
use crate::proxy::installed;
use crate::proxy::nginx_files::{NginxFiles, Placed};
use crate::proxy::shipped::haproxy::Version;
use slowlane_core::base::Address;

/// The parts of a configuration that concern slowlane.
struct Read {
    /// The HTTP frontends or servers.
    sites: Vec<Site>,
    /// The addresses at which the proxy reaches slowlane.
    agents: Vec<String>,
    /// nginx's `worker_connections`, the limit for each worker.
    worker_connections: Option<u64>,
}

/// A frontend of HAProxy, or a server of nginx.
struct Site {
    name: String,
    /// The missing line without which the proxy does not query slowlane; `None` if nothing is missing.
    lacks: Option<&'static str>,
    /// Whether it accepts connections over IPv6.
    has_ipv6: bool,
    /// Whether a client that disconnects aborts its query, so that its request may pass uncounted.
    ends_queries: bool,
}

/// The configuration of one proxy.
struct ProxyConfig {
    kind: &'static str,
    /// The paths of the configuration's files, for messages.
    path: String,
    /// Whether the operator has named the file.
    is_named: bool,
    read: Result<Read, Refused>,
}

/// The proxies of this machine that have a configuration.
pub(super) struct Proxies(Vec<ProxyConfig>);

/// The remedy for HAProxy's `option abortonclose`.
const KEEP_QUERIES: &str = "with HAProxy 3.3 or later, add `no option abortonclose` to the frontend; with \
                            an earlier version, move the option from `defaults` to the backends";

/// nginx's own default for `worker_connections`.
const WORKER_CONNECTIONS: u64 = 512;

const NAME_IT: &str = "name the proxy's main file with --haproxy or --nginx";

/// With fewer connections, a crawler or a waiting crowd can exhaust an nginx worker: each client takes two of them.
const WORKER_CONNECTIONS_MIN: u64 = 2_048;

impl Proxies {
    pub(super) fn read(haproxy: Vec<PathBuf>, nginx: Vec<PathBuf>) -> Proxies {
        let read = |kind, named: Vec<PathBuf>, default: &str, read: fn(&[PathBuf]) -> _| {
            let is_named = !named.is_empty();
            let paths = if is_named { named } else { vec![default.into()] };
            // If this user lacks the rights to look, assume that the file exists.
            let is_there = is_named || paths[0].try_exists().unwrap_or(true);
            let path = paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
            is_there.then(|| ProxyConfig { kind, read: read(&paths), path, is_named })
        };
        let haproxy = read("haproxy", haproxy, "/etc/haproxy/haproxy.cfg", read_haproxy);
        let nginx = read("nginx", nginx, "/etc/nginx/nginx.conf", read_nginx);
        Proxies(haproxy.into_iter().chain(nginx).collect())
    }

    /// The frontends and servers that query slowlane.
    fn asking(&self) -> impl Iterator<Item = &Site> {
        let sites = self.0.iter().filter_map(|proxy| proxy.read.as_ref().ok()).flat_map(|read| &read.sites);
        sites.filter(|site| site.lacks.is_none())
    }

    /// Whether a proxy on this machine is attached; `None` if there is no proxy.
    pub(super) fn are_attached(&self) -> Option<bool> {
        (!self.0.is_empty()).then(|| self.asking().next().is_some())
    }

    /// Whether a frontend or server that queries slowlane accepts connections over IPv6.
    pub(super) fn have_ipv6(&self) -> bool {
        self.asking().any(|site| site.has_ipv6)
    }

    /// A proxy that does not query slowlane is a fault if the operator names it, or if no other proxy queries slowlane.
    pub(super) fn report(&self, config: &Config, may_be_asked: bool, report: &mut DoctorReport) {
        let may_be_asked = may_be_asked || self.are_attached() == Some(true);
        for proxy in &self.0 {
            let listen = if proxy.kind == "nginx" { &config.http } else { &config.spop };
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
                    // Behind another proxy, all clients would share that proxy's address.
                    let fix = format!("if clients connect to this proxy directly, {fix}");
                    report.note(kind, format!("{path}: {lacks}: {names}"), fix);
                }
                Some(lacks) => report.wrong(kind, format!("{path}: {lacks}: {names}"), &fix),
            }
        }
        let ending = read.sites.iter().filter(|site| site.ends_queries).map(|site| site.name.as_str());
        let ending = ending.collect::<Vec<_>>().join(", ");
        if !ending.is_empty() {
            let text = format!(
                "{path}: `abortonclose` is in force, so a request whose client disconnects early may pass uncounted: \
                 {ending}"
            );
            report.wrong(kind, text, KEEP_QUERIES);
        }
        if read.sites.is_empty() {
            report.note(kind, format!("{path}: there is no HTTP frontend or server"), NAME_IT);
        }
        if !asks {
            return;
        }
        let reaches = |agent: &Address| listen.addresses.iter().any(|own| own.collides(agent));
        if !read.agents.iter().filter_map(|agent| agent.parse().ok()).any(|agent| reaches(&agent)) {
            let own = listen.addresses.iter().map(Address::to_string).collect::<Vec<_>>().join(", ");
            let own = if own.is_empty() { "no address" } else { &own };
            let text = match read.agents.join(", ") {
                none if none.is_empty() => {
                    format!("{path}: no server leads to slowlane, which listens on {own}")
                }
                agents => format!("{path}: slowlane is expected at {agents}, but listens on {own}"),
            };
            report.wrong(
                kind,
                text,
                format!("use the same address in this file and in [{}] listen", listen.section),
            );
        }
        if let Some(number) = read.worker_connections.filter(|number| *number < WORKER_CONNECTIONS_MIN) {
            let text = format!(
                "{path}: worker_connections is {number}, and each waiting client takes 2 connections"
            );
            report.note(kind, text, "write `worker_connections 4096;` in the `events` block");
        }
    }
}

/// HAProxy's configuration, and slowlane's lines in it.
fn read_haproxy(paths: &[PathBuf]) -> Result<Read, Refused> {
    let texts = files_of(paths, "cfg").iter().map(|path| lossy(path)).collect::<Result<Vec<_>, _>>()?;
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let config = HaproxyConfig::read(&texts);
    let agents = config.sections.iter().filter(|section| section.kind == "backend");
    let agents = agents.filter(|section| section.name.starts_with("slowlane"));
    let servers = agents.flat_map(|section| words(&config, section, "server", 2));
    let sites = config.sections.iter().filter(|section| config.serves(section));
    let version = installed::haproxy().map(|(_, version)| version);
    Ok(Read {
        sites: sites.map(|section| frontend(&config, section, version)).collect(),
        agents: servers.map(|address| address.replace("unix@", "unix:")).collect(),
        worker_connections: None,
    })
}

/// For each line of a section that begins with `first`, the word at index `place`.
fn words<'c>(
    config: &'c HaproxyConfig<'c>,
    section: &'c Section,
    first: &'c str,
    place: usize,
) -> impl Iterator<Item = &'c str> {
    let lines = config.body(section).filter(move |(_, words)| words[0] == first);
    lines.filter_map(move |(_, words)| words.get(place).copied())
}

/// Whether HAProxy aborts the query of a client that disconnects. Before [`Version::WITH_ABORTS`], a frontend inherits
/// the option from `defaults`, and lines for later versions are inside an `.if`.
fn ends_queries(config: &HaproxyConfig<'_>, section: &Section, version: Version) -> bool {
    let is_new = version >= Version::WITH_ABORTS;
    let says = |section: &Section| {
        let lines = config.body(section).filter(|(line, _)| is_new || config.lines[*line].depth == 0);
        lines.rev().find_map(|(_, words)| match words[..] {
            ["option", "abortonclose", ..] => Some(true),
            ["no", "option", "abortonclose", ..] => Some(false),
            _ => None,
        })
    };
    config.chain(section).find_map(says).unwrap_or(is_new)
}

fn frontend(config: &HaproxyConfig<'_>, section: &Section, version: Option<Version>) -> Site {
    let has = |wanted: &[&str]| config.body(section).any(|(_, words)| words.starts_with(wanted));
    let lacks = match has(&["filter", "spoe", "engine", "slowlane"]) {
        false => Some("no `filter spoe engine slowlane`"),
        true if has(&["http-request", "send-spoe-group", "slowlane"]) => None,
        true => Some("slowlane's filter, but no `http-request send-spoe-group slowlane decide`"),
    };
    let is_ipv6 = |address: &str| address.contains("::") || address.starts_with("ipv6@");
    let has_ipv6 = words(config, section, "bind", 1).any(is_ipv6);
    let ends_queries =
        lacks.is_none() && version.is_some_and(|version| ends_queries(config, section, version));
    Site { name: section.name.clone(), lacks, has_ipv6, ends_queries }
}

/// nginx's configuration with its includes, and slowlane's lines in it.
fn read_nginx(paths: &[PathBuf]) -> Result<Read, Refused> {
    let main = files_of(paths, "conf");
    let mains: Vec<&Path> = main.iter().map(PathBuf::as_path).collect();
    let files = NginxFiles::read(
        &mains,
        mains.first().and_then(|main| main.parent()).unwrap_or(Path::new("/")),
        lossy,
        list,
    )?;
    let inside = |name: &str| -> Vec<Placed<'_>> {
        let blocks = files.top().into_iter().filter(|placed| placed.name() == name);
        blocks.flat_map(|block| files.inside(block)).collect()
    };
    let (http, events) = (inside("http"), inside("events"));
    let upstreams = http
        .iter()
        .filter(|placed| matches!(placed.words()[..], ["upstream", name] if name.starts_with("slowlane")));
    let agents = upstreams.flat_map(|&upstream| values(&files.inside(upstream), "server"));
    let servers = servers(&files, &http);
    let sites = servers.iter().map(|server| {
        let is_asking =
            |inner: &[Placed<'_>]| values(inner, "auth_request").iter().any(|to| to.contains("slowlane"));
        let asks = is_asking(&http)
            || is_asking(&server.inner)
            || server.inner.iter().any(|&inner| is_asking(&files.inside(inner)));
        Site {
            name: server.shown(&servers),
            lacks: (!asks).then_some("no `include slowlane.conf`"),
            has_ipv6: values(&server.inner, "listen").iter().any(|address| address.starts_with('[')),
            ends_queries: false,
        }
    });
    let worker_connections = values(&events, "worker_connections").pop();
    Ok(Read {
        sites: sites.collect(),
        agents: agents.collect(),
        worker_connections: worker_connections.map_or(Some(WORKER_CONNECTIONS), |number| number.parse().ok()),
    })
}

/// The first value of each directive with this name.
fn values(inner: &[Placed<'_>], name: &str) -> Vec<String> {
    let named = inner.iter().filter(|placed| placed.name() == name);
    named.filter_map(|placed| placed.directive.words.get(1).cloned()).collect()
}
