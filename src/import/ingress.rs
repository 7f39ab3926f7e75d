//! ingress-nginx: the annotations `limit-…` of Ingress objects.

use std::collections::{BTreeMap, BTreeSet};

use crate::import::ImportError;
use crate::import::rule::{ADDRESSES, Condition, ENDS, Found, Limit, Match, Rule, at_a_time, quoted};
use crate::import::yaml::{Node, documents};

/// limit-burst-multiplier, if it is not given.
const MULTIPLIER: u64 = 5;

pub(super) fn read(text: &str) -> Result<Found, ImportError> {
    let mut found = Found::default();
    // Objects before, by the hosts that they limit.
    let mut objects: BTreeMap<String, usize> = BTreeMap::new();
    for document in documents(text)? {
        let items = document.get("items").map_or(&[][..], Node::items);
        for object in items.iter().chain([&document]).filter(|object| object.text_of("kind") == "Ingress") {
            ingress(object, &mut objects, &mut found)?;
        }
    }
    Ok(found)
}

/// The annotations of one object that are about limits, by their names without the prefix, with their lines.
type Annotations<'n> = BTreeMap<&'n str, (usize, &'n str)>;

fn ingress(
    object: &Node,
    objects: &mut BTreeMap<String, usize>,
    found: &mut Found,
) -> Result<(), ImportError> {
    let metadata = object.get("metadata");
    let name = |key| metadata.map_or("", |metadata| metadata.text_of(key));
    let name = format!("{}/{}", name("namespace"), name("name"));
    let entries = metadata.and_then(|metadata| metadata.get("annotations")).map_or(&[][..], Node::entries);
    let given: Annotations<'_> = entries
        .iter()
        .filter_map(|(key, node)| Some((key.split_once('/')?.1, (node.line, node.text()))))
        .filter(|(key, _)| key.starts_with("limit-") || key.starts_with("global-rate-limit"))
        .collect();
    let scopes = scopes(object, found, &given);
    let is_for_all = scopes.iter().any(|scope| host(scope).is_empty());
    let hosts: BTreeSet<String> = scopes.iter().map(|scope| host(scope).to_owned()).collect();
    // Objects for different hosts have different keys. Each further one of a host needs a counter of its own.
    let object_of_host = hosts.iter().filter_map(|host| objects.get(host)).max().map_or(0, |last| last + 1);
    let limits = limits(&given, &name, is_for_all, object_of_host, found);
    if !limits.is_empty() {
        objects.extend(hosts.iter().map(|host| (host.clone(), object_of_host)));
    }
    let networks = given.get("limit-whitelist").or_else(|| given.get("limit-allowlist"));
    let networks: Vec<String> = networks
        .map_or(Vec::new(), |(_, list)| list.split(',').map(|network| network.trim().to_owned()).collect());
    if hosts.len() > 1 && !limits.is_empty() {
        found.differs(
            "ingress-nginx counts a client for all hosts of an Ingress together, slowlane for each host.",
        );
    }
    for scope in scopes {
        found.rule(Rule { line: object.line, scope, limits: limits.clone(), networks: networks.clone() })?;
    }
    Ok(())
}

/// The host of a scope; empty for all hosts.
fn host(scope: &[Condition]) -> &str {
    match scope {
        [(field, Match::Exact(host)), ..] if field == "website" => host,
        _ => "",
    }
}

/// The hosts and paths of an object. One without rules is for every request.
fn scopes(object: &Node, found: &mut Found, given: &Annotations<'_>) -> Vec<Vec<Condition>> {
    let rules = object.get("spec").and_then(|spec| spec.get("rules")).map_or(&[][..], Node::items);
    let mut scopes = Vec::new();
    for rule in rules {
        let host = rule.text_of("host");
        if host.starts_with('*') {
            if !given.is_empty() {
                found.omissions.add(
                    rule.line,
                    host,
                    "this host needs a map of websites with match = \"end\"",
                );
            }
            continue;
        }
        let website = (!host.is_empty()).then(|| ("website".to_owned(), Match::Exact(host.to_owned())));
        let website: Vec<Condition> = website.into_iter().collect();
        let paths = rule.get("http").and_then(|http| http.get("paths")).map_or(&[][..], Node::items);
        let mut add = |path: Option<Match>| {
            let path = path.map(|path| ("path".to_owned(), path));
            scopes.push(website.iter().cloned().chain(path).collect());
        };
        for path in paths {
            match (path.text_of("path"), path.text_of("pathType")) {
                ("" | "/", kind) if kind != "Exact" => add(None),
                (path, "Exact") => add(Some(Match::Exact(path.to_owned()))),
                (path, "Prefix") => {
                    // `/a` is the path /a and those below it, not /ab.
                    let path = path.trim_end_matches('/');
                    add(Some(Match::Exact(path.to_owned())));
                    add(Some(Match::Prefix(format!("{path}/"))));
                }
                (path, _) => add(Some(Match::Prefix(path.to_owned()))),
            }
        }
        if paths.is_empty() {
            add(None);
        }
    }
    if rules.is_empty() {
        scopes.push(Vec::new());
    }
    scopes
}

/// The limits in the order of ingress-nginx: connections, rpm, rps.
fn limits(
    given: &Annotations<'_>,
    name: &str,
    is_for_all: bool,
    object_of_host: usize,
    found: &mut Found,
) -> Vec<Limit> {
    let count = |name: &str| {
        given.get(name).and_then(|(_, text)| text.parse::<u64>().ok()).filter(|&count| count > 0)
    };
    let multiplier = count("limit-burst-multiplier").unwrap_or(MULTIPLIER);
    let burst = |count: u64| count.saturating_mul(multiplier).saturating_add(1);
    let bucket =
        |period| move |count| format!("burst={} rate={count}/{period} law=token-bucket", burst(count));
    let mut limits = Vec::new();
    let kinds: [(&str, &dyn Fn(u64) -> String); 3] =
        [("limit-connections", &at_a_time), ("limit-rpm", &bucket("m")), ("limit-rps", &bucket("s"))];
    for (kind, options) in kinds {
        let Some(count) = count(kind) else { continue };
        let counter = format!("{kind} {object_of_host}");
        let key = ["source", "website"]
            .map(str::to_owned)
            .into_iter()
            .take(if is_for_all { 1 } else { 2 })
            .collect();
        let (line, text) = given[kind];
        let quoted = quoted(&format!("{name}: {kind}: {text}"));
        limits.push(Limit { counter, key, options: options(count), line, quoted });
        found.differs(REPLICAS);
        found.differs(STATUS);
        found.differs(ADDRESSES);
        found.differs(if kind == "limit-connections" { ENDS } else { BURST });
    }
    for (kind, (line, text)) in given {
        let is_known = ["limit-burst-multiplier", "limit-whitelist", "limit-allowlist"].contains(kind)
            || kinds.iter().any(|(known, _)| known == kind && (count(kind).is_some() || *text == "0"));
        if !is_known {
            found.omissions.add(
                *line,
                &format!("{name}: {kind}: {text}"),
                "slowlane has no such limit, or the number is not one",
            );
        }
    }
    limits
}

const REPLICAS: &str = "Each replica of ingress-nginx counts by itself: three replicas admit three times the rate. One slowlane, or a cluster, \
     counts for all, so multiply the numbers if you mean that.";

const STATUS: &str =
    "ingress-nginx refuses with 503, unless limit-req-status-code says otherwise. slowlane refuses with 429.";

const BURST: &str = "The burst is the rate times limit-burst-multiplier (5 by default), and one for the first request. Excess requests \
                     are refused, not delayed: remove law=token-bucket to delay them.";
