//! nginx's configuration with its includes, and slowlane's lines in it.

use std::path::{Path, PathBuf};

use crate::cli::attach::{files_of, list, lossy};
use crate::cli::doctor::site::{Read, Site};
use crate::proxy::attach::Refused;
use crate::proxy::attach::nginx::servers;
use crate::proxy::nginx_files::{NginxFiles, Placed};

/// nginx's own default.
const WORKER_CONNECTIONS: u64 = 512;

pub(super) fn read(paths: &[PathBuf]) -> Result<Read, Refused> {
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

/// The first values of the directives of a name.
fn values(inner: &[Placed<'_>], name: &str) -> Vec<String> {
    let named = inner.iter().filter(|placed| placed.name() == name);
    named.filter_map(|placed| placed.directive.words.get(1).cloned()).collect()
}
