//! HAProxy's configuration, and slowlane's lines in it.

use std::path::PathBuf;

use crate::cli::attach::{files_of, lossy};
use crate::cli::doctor::site::{Read, Site};
use crate::proxy::attach::Refused;
use crate::proxy::haproxy_syntax::{Config, Section};
use crate::proxy::installed;
use crate::proxy::shipped::haproxy::Version;

pub(super) fn read(paths: &[PathBuf]) -> Result<Read, Refused> {
    let texts = files_of(paths, "cfg").iter().map(|path| lossy(path)).collect::<Result<Vec<_>, _>>()?;
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let config = Config::read(&texts);
    let agents = config.sections.iter().filter(|section| section.kind == "backend");
    let agents = agents.filter(|section| section.name.starts_with("slowlane"));
    let servers = agents.flat_map(|section| word(&config, section, "server", 2));
    let sites = config.sections.iter().filter(|section| config.serves(section));
    let version = installed::haproxy().map(|(_, version)| version);
    Ok(Read {
        sites: sites.map(|section| site(&config, section, version)).collect(),
        agents: servers.map(|address| address.replace("unix@", "unix:")).collect(),
        worker_connections: None,
    })
}

/// The word at a place of each line with this first word.
fn word<'c>(
    config: &'c Config<'c>,
    section: &'c Section,
    first: &'c str,
    place: usize,
) -> impl Iterator<Item = &'c str> {
    let lines = config.body(section).filter(move |(_, words)| words[0] == first);
    lines.filter_map(move |(_, words)| words.get(place).copied())
}

/// Whether HAProxy ends the query of a client that disconnects. Before [`Version::WITH_ABORTS`], `defaults` decides for a
/// frontend, and a line for later versions stands in an `.if`.
fn ends_queries(config: &Config<'_>, section: &Section, version: Version) -> bool {
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

fn site(config: &Config<'_>, section: &Section, version: Option<Version>) -> Site {
    let has = |wanted: &[&str]| config.body(section).any(|(_, words)| words.starts_with(wanted));
    let lacks = match has(&["filter", "spoe", "engine", "slowlane"]) {
        false => Some("no `filter spoe engine slowlane`"),
        true if has(&["http-request", "send-spoe-group", "slowlane"]) => None,
        true => Some("slowlane's filter, and no `http-request send-spoe-group slowlane decide`"),
    };
    let is_ipv6 = |address: &str| address.contains("::") || address.starts_with("ipv6@");
    let has_ipv6 = word(config, section, "bind", 1).any(is_ipv6);
    let ends_queries =
        lacks.is_none() && version.is_some_and(|version| ends_queries(config, section, version));
    Site { name: section.name.clone(), lacks, has_ipv6, ends_queries }
}
